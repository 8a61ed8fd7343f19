"""`MMCacheKVStore`: a store for LlamaIndex's own `IngestionCache`, with LlamaIndex's own keys."""

from __future__ import annotations

import json
from typing import Any

from blake3 import blake3
from llama_index.core.storage.kvstore.types import DEFAULT_COLLECTION, BaseKVStore

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.integrations.framework.held import held
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.ways import by
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import MMCacheError, SettingsError
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.scopes import Scope

KIND = "llamaindex store 1"
_MEDIA = ("image", "image_path", "image_url", "image_resource", "audio_resource", "video_resource")


class MMCacheKVStore(BaseKVStore):  # type: ignore[misc]
    """Pass it as `IngestionCache(cache=MMCacheKVStore(cache))`; what it holds may be evicted, so never as a document
    store.

    LlamaIndex's keys see texts and metadata only: not pictures, functions, or which document a text is of. Nodes with
    media are therefore not kept here. `cached_ingestion` has keys that see them; prefer it.
    """

    def __init__(
        self, cache: Cache, *, tenant: TenantOption = None, namespace: str | None = None, ttl: float | None = None
    ) -> None:
        self._realm, self._ttl = Realm(cache, tenant, namespace), ttl

    def _place(self, key: str, collection: str) -> tuple[Key, Scope] | None:
        if collection == "embeddings":
            raise SettingsError(
                "as an embeddings_cache, a store is asked by the text alone, whatever the model: use CachedEmbedding"
            )
        tenant = self._realm.tenant()
        if tenant is None:
            return None
        signature = Signature(function=KIND, model_version=f"{KIND}: {collection}", modality="text")
        scope = self._realm.cache.scopes.of(signature, tenant, self._realm.namespace)
        asked = framed("key", collection.encode("utf-8", "surrogatepass"), key.encode("utf-8", "surrogatepass"))
        return Key(scope.digest, blake3(asked, key=scope.salt).digest(length=DIGEST_BYTES)), scope

    def put(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """Keep a value that is JSON, for as long as there is room; nodes with media are not kept."""
        place = self._place(key, collection)
        if place is None:
            return
        try:
            text = json.dumps([key, val])
            if json.loads(text) != [key, val] or any(map(_has_media, val.get("nodes", ()))):
                self._realm.failed("nodes with media, or a value that is no JSON, were not kept")
                return
            self._realm.cache.put(place[0], text, ttl=self._ttl)
        except (MMCacheError, TypeError, ValueError) as error:
            self._realm.failed(f"not kept: {type(error).__name__}")

    def get(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """What is kept for it, or None."""
        place = self._place(key, collection)
        found = None if place is None else self._read(place[0])
        return None if found is None or found[0] != key else found[1]

    def _read(self, key: Key) -> tuple[str, dict[str, Any]] | None:
        try:
            with by("llamaindex"):
                text = self._realm.cache.get(key)
        except MMCacheError as error:
            self._realm.failed(f"not looked up: {type(error).__name__}")
            return None
        if text is None:
            return None
        name, value = json.loads(text)
        return name, value

    def get_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """All that is kept in a collection; reads every block's header."""
        place, tenant = self._place("", collection), self._realm.tenant()
        if place is None or tenant is None:
            return {}
        name = place[1].signature.model_version
        found = [self._read(key) for key in held(self._realm, tenant, name) if key.scope == place[1].digest]
        return {each[0]: each[1] for each in found if each is not None}

    def delete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """Whether it was kept."""
        place = self._place(key, collection)
        return place is not None and self._realm.cache.invalidate(place[0]) > 0

    async def aput(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        """See `put`."""
        await in_thread(lambda: self.put(key, val, collection))

    async def aget(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        """See `get`."""
        return await in_thread(lambda: self.get(key, collection))

    async def aget_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        """See `get_all`."""
        return await in_thread(lambda: self.get_all(collection))

    async def adelete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """See `delete`."""
        return await in_thread(lambda: self.delete(key, collection))


def _has_media(node: Any) -> bool:
    data = node.get("__data__", {}) if isinstance(node, dict) else {}
    return any(data.get(name) is not None for name in _MEDIA)
