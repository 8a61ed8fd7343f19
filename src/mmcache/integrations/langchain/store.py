"""`MMCacheStore`: a `ByteStore`, for LangChain's own `CacheBackedEmbeddings`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from blake3 import blake3
from langchain_core.stores import BaseStore

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.integrations.framework.held import held
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.ways import by
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.lookup import Make
from mmcache.model.errors import MMCacheError, SettingsError
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.scopes import Scope
from mmcache.settings import parse_ttl

KIND = "langchain store 1"


class MMCacheStore(BaseStore[str, bytes]):  # type: ignore[misc]
    """Bytes under names, for as long as there is room.

    >>> store = MMCacheStore(Cache("cache"), "text-embedding-3-small, 512 dimensions")
    >>> CacheBackedEmbeddings.from_bytes_store(embeddings, store, key_encoder="sha256")

    model: which model, in which version, with which settings; `CacheBackedEmbeddings` asks a store by the text alone
    (its `namespace` is empty by default), so each model needs a store of its own, and queries another one. Better:
    `cached_embeddings`, which finds that out by itself.
    """

    def __init__(
        self,
        cache: Cache,
        model: str,
        *,
        tenant: TenantOption = None,
        namespace: str | None = None,
        ttl: float | None = None,
    ) -> None:
        if not (isinstance(model, str) and model):
            raise SettingsError("say which model the stored vectors are of, e.g. 'text-embedding-3-small, 512'")
        parse_ttl(ttl)
        self._realm, self._ttl = Realm(cache, tenant, namespace), ttl
        self._signature = Signature(function=KIND, model_version=model, modality="text")

    def _scope(self) -> Scope | None:
        tenant = self._realm.tenant()
        return None if tenant is None else self._realm.cache.scopes.of(self._signature, tenant, self._realm.namespace)

    @staticmethod
    def _key(scope: Scope, name: str) -> Key:
        asked = framed("name", name.encode("utf-8", "surrogatepass"))
        return Key(scope.digest, blake3(asked, key=scope.salt).digest(length=DIGEST_BYTES))

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        """What is held for each name, or None."""
        scope = self._scope()
        if scope is None or not keys:
            return [None] * len(keys)
        try:
            with by("langchain"):
                looks = self._realm.cache.answers.look_up([self._key(scope, name) for name in keys])
            makes = [look.make for look in looks]
            return [None if make is None else _value(make, name) for make, name in zip(makes, keys, strict=True)]
        except MMCacheError as error:
            self._realm.failed(f"not looked up: {type(error).__name__}")
            return [None] * len(keys)

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """Keep values under names."""
        scope = self._scope()
        for name, value in key_value_pairs if scope is not None else ():
            assert scope is not None
            try:
                self._realm.cache.put(self._key(scope, name), {"name": name, "value": bytes(value)}, ttl=self._ttl)
            except MMCacheError as error:
                self._realm.failed(f"not kept: {type(error).__name__}")

    def mdelete(self, keys: Sequence[str]) -> None:
        """Drop them, in every tier."""
        scope = self._scope()
        if scope is not None:
            self._realm.cache.invalidate([self._key(scope, name) for name in keys])

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """Names of what is held; reads every block of this store."""
        scope, tenant = self._scope(), self._realm.tenant()
        if scope is None or tenant is None:
            return
        for key in held(self._realm, tenant, self._signature.model_version):
            found = self._realm.cache.get(key) if key.scope == scope.digest else None
            if isinstance(found, dict) and found["name"].startswith(prefix or ""):
                yield found["name"]

    async def amget(self, keys: Sequence[str]) -> list[bytes | None]:
        """See `mget`."""
        return await in_thread(lambda: self.mget(keys))

    async def amset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """See `mset`."""
        await in_thread(lambda: self.mset(key_value_pairs))

    async def amdelete(self, keys: Sequence[str]) -> None:
        """See `mdelete`."""
        await in_thread(lambda: self.mdelete(keys))

    async def ayield_keys(self, *, prefix: str | None = None) -> AsyncIterator[str]:
        """See `yield_keys`."""
        for name in await in_thread(lambda: list(self.yield_keys(prefix=prefix))):
            yield name


def _value(make: Make, name: str) -> bytes | None:
    found = make()
    return found["value"] if isinstance(found, dict) and found["name"] == name else None
