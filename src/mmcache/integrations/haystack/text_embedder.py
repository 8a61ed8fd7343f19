"""`CachedTextEmbedder`: a cache in front of any component that embeds a text."""

from __future__ import annotations

from functools import partial
from typing import Any

from haystack import component, default_from_dict
from haystack.core.serialization import component_to_dict

from mmcache.cache import Cache
from mmcache.integrations.haystack.config import CacheConfig
from mmcache.integrations.haystack.door import TENANT, Door, NotStored, digest_key, off_loop
from mmcache.integrations.haystack.freezing import frozen_embedding, thawed_embedding
from mmcache.integrations.haystack.signing import Signed
from mmcache.keys.arguments import canonical_arguments
from mmcache.model.key import Key


@component
class CachedTextEmbedder(Door):
    """Has the inputs and outputs of the embedder that it wraps.

    embedder: any text embedder, e.g. `OpenAITextEmbedder()`.
    cache: a `CacheConfig`; a `Cache` of your own works too, but not in a pipeline file.
    signature: version of the model; needed where the embedder's parameters name none.
    tenant: whose results these are; the input `cache_tenant` says so for a run. per_tenant: it must be given.
    ttl: seconds that embeddings stay. On a hit, `meta["usage"]` is 0 and `meta["mmcache"]` says what was saved.
    Raises `UnversionedModelError`, `SettingsError`.
    """

    def __init__(
        self,
        embedder: Any,
        cache: CacheConfig | Cache,
        signature: str | None = None,
        tenant: str | None = None,
        per_tenant: bool = False,
        ttl: float | None = None,
    ) -> None:
        self._set_up([embedder], cache, tenant, per_tenant, ttl)
        self.embedder, self.signature = embedder, signature
        self._signed = Signed(embedder, signature, modality="text")
        self._take_sockets(embedder)

    def to_dict(self) -> dict[str, Any]:
        """For pipeline files. Raises `SerializationError` for a `Cache` that is no `CacheConfig`."""
        return self._to_dict(
            embedder=component_to_dict(self.embedder, "embedder"), signature=self.signature, ttl=self.ttl
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CachedTextEmbedder:
        """Opens nothing: `warm_up` does."""
        made: CachedTextEmbedder = default_from_dict(cls, data)
        return made

    def run(self, **inputs: Any) -> dict[str, Any]:
        """See the wrapped component. What it raises is raised; a failure of the cache is not."""
        self.warm_up()
        return self._flow(inputs, self.embedder.run)

    async def run_async(self, **inputs: Any) -> dict[str, Any]:
        """The async twin: the wrapped component's `run_async` where it has one, else its `run`, in a thread."""
        await self.warm_up_async()
        return await off_loop(partial(self._flow, inputs), self.embedder)

    def _flow(self, inputs: dict[str, Any], run: Any) -> dict[str, Any]:
        tenant = inputs.pop(TENANT, None)

        def key(cache: Cache) -> Key:
            scope = self._signed_scope(cache, self._signed, tenant)
            return digest_key(scope, "haystack text", canonical_arguments((), self._given(inputs)))

        value, hit = self._answer(key, lambda: frozen_embedding(run(**inputs)))
        return dict(value.value) if isinstance(value, NotStored) else thawed_embedding(value, hit)
