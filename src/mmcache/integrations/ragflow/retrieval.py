"""`CachedRetrieval`: a cache in front of `rag.retrieve(…)` of RAGFlow's own SDK."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from mmcache.integrations.ragflow.state import States
from mmcache.keys.arguments import canonical_arguments
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import InvalidInputError, MMCacheError, SettingsError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.settings import parse_ttl

if TYPE_CHECKING:
    from ragflow_sdk import RAGFlow

    from mmcache.cache import Cache
    from mmcache.semantic.options import SourceKind

_SIGNATURE = Signature(function="mmcache.integrations.ragflow.retrieval", model_version="1", modality="retrieval")


class _Fresh:
    """Carries what was found past the cache: no codec takes it, so it is handed out and not kept."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows


class CachedRetrieval:
    """Call it like `rag.retrieve`: `retrieve(dataset_ids=[…], question=…)`. It gives the SDK's `Chunk`s.

    rag: a `ragflow_sdk.RAGFlow`. Its address and its API key (as a keyed hash) are part of the key: what one user may
    see is never served to another.
    version: which state the datasets are in, a string or a function; None = RAGFlow is asked, with the caller's key,
    for each dataset's counts and the time of its last update (two small requests), and refuses who may not see it.
    state_seconds: for so long its word is believed. settle_seconds: what is found so soon after an update is not kept,
    for RAGFlow's index shows a document a moment after its database does.
    ttl: seconds that results stay. RAGFlow does not say that a chunk was edited by hand: for that, use the webhook, or
    a `ttl` as long as you can wait. Raises `SettingsError`.
    """

    def __init__(
        self,
        rag: RAGFlow,
        cache: Cache,
        *,
        version: str | Callable[[], str] | None = None,
        state_seconds: float = 0.0,
        settle_seconds: float = 10.0,
        ttl: float | None = 3600.0,
        tenant: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if version is not None and not callable(version) and (not isinstance(version, str) or not version):
            raise SettingsError(f"version is a string that is not empty, a function, or None, not {version!r:.60}")
        if not (state_seconds >= 0 and settle_seconds >= 0):
            raise SettingsError("state_seconds and settle_seconds are numbers, 0 or more")
        self.rag, self.cache, self._version, self.ttl = rag, cache, version, parse_ttl(ttl)
        self._settle, self._clock = settle_seconds, clock
        self.tenant = cache.tenant if tenant is None else tenant
        self._states = States(rag, state_seconds, clock)
        self._scope = cache.scopes.of(_SIGNATURE, self.tenant, cache.namespace)
        self._signature = inspect.signature(rag.retrieve)

    def __call__(self, *arguments: Any, **keywords: Any) -> list[Any]:
        """Chunks, as `rag.retrieve` gives them. What that raises is raised; a failure of the cache is not."""
        from ragflow_sdk import Chunk

        return [Chunk(self.rag, dict(row)) for row in self.rows(*arguments, **keywords)]

    async def a(self, *arguments: Any, **keywords: Any) -> list[Any]:
        """The async twin: runs in a thread."""
        import asyncio

        return await asyncio.to_thread(self, *arguments, **keywords)

    def rows(self, *arguments: Any, **keywords: Any) -> list[dict[str, Any]]:
        """The same as plain data."""
        ask = partial(self.rag.retrieve, *arguments, **keywords)
        ran, found = False, None

        def compute() -> Any:
            nonlocal ran, found
            ran = True
            found = [row_of(chunk) for chunk in ask()]
            return _Fresh(found) if unsettled else found

        unsettled = False
        try:
            bound = self._signature.bind(*arguments, **keywords)
            bound.apply_defaults()
            key, unsettled = self._key(dict(bound.arguments))
            value = self.cache.get_or_compute(key, compute, ttl=self.ttl)
        except (MMCacheError, TypeError) as error:
            if ran:
                if found is None:  # it was RAGFlow's
                    raise
                return found
            self.cache.events.emit(Failed("ragflow", f"stepping aside: {error}"))
            return [row_of(chunk) for chunk in ask()]
        if isinstance(value, _Fresh):
            value = value.rows if ran else deepcopy(value.rows)
        rows: list[dict[str, Any]] = value
        return rows

    def state(self, dataset_ids: list[str]) -> tuple[bytes, bool]:
        """What a key holds of datasets, and whether they changed just now. Raises `RetrievalError`, `TierError`."""
        editions = self.cache.meaning.editions(_sources(dataset_ids))
        if self._version is not None:
            version = self._named()
            if not isinstance(version, str) or not version:
                raise InvalidInputError(f"version names the state of the datasets, it cannot be {version!r:.40}")
            return framed("named", version.encode(), editions), False
        state = self._states.of(dataset_ids)
        told = json.dumps(state.parts, sort_keys=True).encode()
        return framed("asked", told, editions), self._clock() - state.newest < self._settle

    def _named(self) -> Any:
        if not callable(self._version):
            return self._version
        try:
            return self._version()
        except Exception as error:  # a plug-in
            raise InvalidInputError(f"version failed, so nothing is looked up: {type(error).__name__}") from error

    def _key(self, asked: dict[str, Any]) -> tuple[Key, bool]:
        datasets, documents = asked.get("dataset_ids"), asked.get("document_ids") or []
        for ids in datasets, documents:
            if not isinstance(ids, list) or not all(isinstance(one, str) and one for one in ids):
                raise InvalidInputError("dataset_ids and document_ids are lists of ids")
        assert isinstance(datasets, list)
        if not datasets:
            raise InvalidInputError("without a dataset, nobody knows what has changed")
        state, unsettled = self.state(datasets)
        parts = [
            str(self.rag.api_url).encode(), canonical_arguments((), asked | {"document_ids": documents}), state,
            self.cache.meaning.editions(_sources(documents)), self.caller(),
        ]  # fmt: skip
        digest = blake3(framed("ragflow", *parts), key=self._scope.salt).digest(length=DIGEST_BYTES)
        return Key(self._scope.digest, digest), unsettled

    def caller(self) -> bytes:
        """Stands for the API key: two users never share, and nobody reads it back."""
        header = str(self.rag.authorization_header.get("Authorization", ""))
        return blake3(framed("caller", header.encode()), key=self._scope.salt).digest()


def _sources(names: list[str]) -> list[tuple[SourceKind, str]]:
    return [("document", name) for name in names]


def row_of(chunk: Any) -> dict[str, Any]:
    """A chunk as the cache stores it."""
    return {name: value for name, value in chunk.to_json().items() if not name.startswith("_")}
