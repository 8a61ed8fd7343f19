"""`CachedRetriever`: a cache in front of any retriever, by words or by embedding."""

from __future__ import annotations

from functools import partial
from typing import Any

from haystack import component, default_from_dict
from haystack.core.serialization import component_to_dict

from mmcache.cache import Cache
from mmcache.integrations.haystack.config import CacheConfig
from mmcache.integrations.haystack.door import TENANT, Door, NotStored, digest_key, off_loop
from mmcache.integrations.haystack.freezing import frozen_documents, thawed_documents
from mmcache.integrations.haystack.index import VERSION, check_index, index_state
from mmcache.integrations.haystack.signing import Signed
from mmcache.keys.arguments import canonical_arguments
from mmcache.model.key import Key


@component
class CachedRetriever(Door):
    """Has the inputs and outputs of the retriever that it wraps, and `index_version`.

    retriever: any component that gives `documents` for a query or an embedding; its filters, `top_k`, scaling, and its
    document store's parameters are part of the key.
    index_version: which version of the store's content this is; the input of that name says so for a run.
    index: a name whose edition moves when an `IndexWriter` of that name writes (in any process on the same cache).
    One of the two is needed, or nothing is looked up: a store does not say when it changed, and its number of
    documents stays the same when one is replaced. Other arguments as for `CachedTextEmbedder`.
    """

    def __init__(
        self,
        retriever: Any,
        cache: CacheConfig | Cache,
        index_version: str | None = None,
        index: str | None = None,
        signature: str | None = None,
        tenant: str | None = None,
        per_tenant: bool = False,
        ttl: float | None = None,
    ) -> None:
        self._set_up([retriever], cache, tenant, per_tenant, ttl)
        check_index(index, index_version)
        self.retriever, self.index_version, self.index, self.signature = retriever, index_version, index, signature
        self._signed = Signed(retriever, signature, modality="retrieval", versioned=True)
        self._take_sockets(retriever, (VERSION,))
        component.set_input_type(self, VERSION, str | None, None)

    def to_dict(self) -> dict[str, Any]:
        """For pipeline files. Raises `SerializationError` for a `Cache` that is no `CacheConfig`."""
        return self._to_dict(
            retriever=component_to_dict(self.retriever, "retriever"), index_version=self.index_version,
            index=self.index, signature=self.signature, ttl=self.ttl,
        )  # fmt: skip

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CachedRetriever:
        """Opens nothing: `warm_up` does."""
        made: CachedRetriever = default_from_dict(cls, data)
        return made

    def run(self, **inputs: Any) -> dict[str, Any]:
        """See the wrapped component. What it raises is raised; a failure of the cache is not."""
        self.warm_up()
        return self._flow(inputs, self.retriever.run)

    async def run_async(self, **inputs: Any) -> dict[str, Any]:
        """The async twin: the wrapped component's `run_async` where it has one, else its `run`, in a thread."""
        await self.warm_up_async()
        return await off_loop(partial(self._flow, inputs), self.retriever)

    def _flow(self, inputs: dict[str, Any], run: Any) -> dict[str, Any]:
        tenant, version = inputs.pop(TENANT, None), inputs.pop(VERSION, None)
        version = self.index_version if version is None else version

        def key(cache: Cache) -> Key:
            scope = self._signed_scope(cache, self._signed, tenant)
            state = index_state(cache, self.index, version, self.cache.tenant, self.cache.namespace)
            asked = canonical_arguments((), self._given(inputs))
            return digest_key(scope, "haystack retrieval", state, asked)

        value, _ = self._answer(key, lambda: frozen_documents(run(**inputs)))
        return dict(value.value) if isinstance(value, NotStored) else thawed_documents(value)
