"""`CachedRetriever`: what a retriever found, kept until the index or the retriever's settings change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.integrations.framework.described import described, settings_of
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.results import Results, State
from mmcache.integrations.llamaindex.events import tell
from mmcache.integrations.llamaindex.fronting import Fronting
from mmcache.integrations.llamaindex.nodes import query_parts, scored_of, scored_text
from mmcache.model.errors import SettingsError

KIND = "llamaindex retrieval 1"


class CachedRetriever(Fronting, BaseRetriever):  # type: ignore[misc]
    """`retriever`, with a cache in front.

    >>> retriever = CachedRetriever(index.as_retriever(), Cache("cache"), index_version="manual 2026-11")

    index_version: name and version of what is in the index, or a function that tells them at each query (see
    `index_state`); with another version nothing old is served. The retriever's settings (top k, filters, mode, its
    embedding model) are looked at with each query, too; where they cannot be read, `signature` is needed to say them.
    Raises `UnversionedModelError`, `SettingsError`.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        cache: Cache | Realm,
        *,
        index_version: State,
        signature: str | None = None,
        tenant: TenantOption = None,
        namespace: str | None = None,
        ttl: float | None = None,
    ) -> None:
        if not isinstance(retriever, BaseRetriever):
            raise SettingsError(f"retriever is a LlamaIndex retriever, not {type(retriever).__name__}")
        self._behind = retriever
        realm = cache if isinstance(cache, Realm) else Realm(cache, tenant, namespace)
        self._results = Results(realm, KIND, index_version, scored_text, scored_of, ttl)
        self._facts = facts_of(retriever, signature)
        super().__init__(callback_manager=retriever.callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        question = self._results.question(self._facts, lambda salt: query_parts(self._results, query_bundle, salt))
        # A copy: retrievers write the embedding into the query, which would be another one when it is asked again.
        told = self._results.answer(question, lambda: self._behind.retrieve(replace(query_bundle)))
        tell("retriever", told)
        found: list[NodeWithScore] = told.value
        return found

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        results = self._results
        question = await in_thread(
            lambda: results.question(self._facts, lambda salt: query_parts(results, query_bundle, salt))
        )
        told = await results.aanswer(question, lambda: self._behind.aretrieve(replace(query_bundle)))
        tell("retriever", told)
        found: list[NodeWithScore] = told.value
        return found


def facts_of(component: Any, signature: str | None) -> Callable[[], str]:
    """What tells the component's settings; it is asked at each call. Raises `UnversionedModelError`."""
    kind = f"{type(component).__module__}.{type(component).__qualname__}"
    if signature is not None:
        if not signature:
            raise SettingsError("signature='' names no version; pass e.g. signature='my retriever 1'")
        return lambda: f"{kind} {signature} {settings_of(component)}"
    _ = described(component)
    return lambda: described(component)
