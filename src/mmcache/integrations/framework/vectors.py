"""`Vectors`: embeddings of texts or pictures; only those that are missing are computed, each once, in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

from mmcache.fill import in_thread
from mmcache.integrations.framework.realm import Realm
from mmcache.integrations.framework.ways import by
from mmcache.keys.content import Content, identify
from mmcache.model.errors import InvalidInputError, MMCacheError
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.scopes import Scope
from mmcache.settings import parse_ttl

Vector = list[float]


@dataclass(frozen=True, slots=True)
class Tallied:
    """What one call found."""

    hits: int
    misses: int
    """Inputs that the model computed, here or for somebody who asked at the same time."""
    bypassed: int
    """Inputs without an identity (a remote address), or all where nobody could say whose they are."""


@dataclass(frozen=True, slots=True)
class _Request:
    key: Key
    scope: Scope
    content: Content


class Vectors:
    """The embeddings of one model in one role (query, passage, picture). signature: its function begins with the door.

    The model is given the canonical form of what the key describes: NFC text; upright pixels, as PNG.
    """

    def __init__(self, realm: Realm, signature: Signature, modality: str, ttl: float | None = None) -> None:
        parse_ttl(ttl)
        self._realm, self._modality, self._ttl = realm, modality, ttl
        self._signature = replace(signature, modality=modality)
        self._door = signature.function.partition(" ")[0]

    @property
    def digest(self) -> str:
        """Of the signature, as hex."""
        return self._signature.digest.hex()

    def many(self, sources: Sequence[Any], compute: Callable[[list[Any]], list[Any]]) -> tuple[list[Vector], Tallied]:
        """Vectors in the order of `sources`. Raises what `compute` raises, and nothing of the cache's own."""
        tenant = self._realm.tenant()
        requests = [None if tenant is None else self._identified(source, tenant) for source in sources]
        known = [request for request in requests if request is not None]
        missed = {request.key for request in known}
        found = self._answered(known, compute, missed) if known else []
        odd = [source for source, request in zip(sources, requests, strict=True) if request is None]
        others = iter(_vectors(compute(odd), len(odd)) if odd else [])
        values = iter(found)
        vectors = [next(others) if request is None else next(values) for request in requests]
        misses = sum(request.key in missed for request in known)
        return vectors, Tallied(len(known) - misses, misses, len(odd))

    async def amany(
        self, sources: Sequence[Any], compute: Callable[[list[Any]], Awaitable[list[Any]]]
    ) -> tuple[list[Vector], Tallied]:
        """The async twin: lookups in a thread of their own, `compute` on the caller's loop."""
        loop = asyncio.get_running_loop()

        async def awaited(missing: list[Any]) -> list[Any]:
            return await compute(missing)

        def bridged(missing: list[Any]) -> list[Any]:
            return asyncio.run_coroutine_threadsafe(awaited(missing), loop).result()

        return await in_thread(lambda: self.many(sources, bridged))

    def _identified(self, source: Any, tenant: str) -> _Request | None:
        cache = self._realm.cache
        try:
            scope = cache.scopes.of(self._signature, tenant, self._realm.namespace)
            read = source.getvalue() if isinstance(source, BytesIO) else source
            content = identify(read, self._modality, salt=scope.salt, memo=cache.memo)
            if content.decoder:
                signature = replace(self._signature, decoder=content.decoder)
                scope = cache.scopes.of(signature, tenant, self._realm.namespace)
            return _Request(Key(scope.digest, content.digest), scope, content)
        except MMCacheError as error:
            self._realm.failed(f"not looked up: {type(error).__name__}")
            return None

    def _answered(
        self, requests: list[_Request], compute: Callable[[list[Any]], list[Any]], missed: set[Key]
    ) -> list[Vector]:
        """`missed` begins with all keys; those that are answered go."""
        ran: set[Key] = set()
        own: dict[Key, Vector] = {}

        def run(missing: Sequence[_Request]) -> list[Vector]:
            ran.update(request.key for request in missing)
            vectors = _vectors(compute([self._given(request.content) for request in missing]), len(missing))
            own.update(zip((request.key for request in missing), vectors, strict=True))
            return vectors

        try:
            with by(self._door):
                values: list[Vector] = self._realm.cache.answers.answer_many(requests, run, ttl=self._ttl)
        except MMCacheError as error:
            if ran - own.keys():
                raise  # the model's own
            self._realm.failed(f"went on without the cache: {type(error).__name__}")
            left = [request for request in requests if request.key not in own]
            vectors = _vectors(compute([self._given(one.content) for one in left]), len(left)) if left else []
            own.update(zip((request.key for request in left), vectors, strict=True))
            return [own[request.key] for request in requests]
        missed &= ran
        if ran:
            self._realm.computed()
        return values

    def _given(self, content: Content) -> Any:
        if self._modality != "image":
            return content.canonical()
        file = BytesIO()
        content.canonical().save(file, "PNG")
        file.seek(0)
        return file


def _vectors(output: Any, count: int) -> list[Vector]:
    found = [vector if isinstance(vector, list) else [float(x) for x in vector] for vector in output]
    if len(found) != count:
        raise InvalidInputError(f"the model gave {len(found)} vectors for {count} inputs")
    return found
