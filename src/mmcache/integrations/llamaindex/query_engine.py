"""`CachedQueryEngine`: a query engine's answers, kept until the index, the model or the prompts change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.results import Results, State
from mmcache.integrations.llamaindex.events import tell
from mmcache.integrations.llamaindex.fronting import Fronting
from mmcache.integrations.llamaindex.nodes import query_parts, response_of, response_text
from mmcache.integrations.llamaindex.retriever import facts_of
from mmcache.model.errors import SettingsError

KIND = "llamaindex answer 1"


class CachedQueryEngine(Fronting, BaseQueryEngine):  # type: ignore[misc]
    """`query_engine`, with a cache in front.

    >>> engine = CachedQueryEngine(index.as_query_engine(), Cache("cache"), index_version="manual 2026-11")

    index_version, signature, tenant, ttl: as for `CachedRetriever`. The engine's model, prompts and postprocessors are
    part of what is looked at with each query. Whole answers are kept; streams and errors are not.
    """

    def __init__(
        self,
        query_engine: BaseQueryEngine,
        cache: Cache | Realm,
        *,
        index_version: State,
        signature: str | None = None,
        tenant: TenantOption = None,
        namespace: str | None = None,
        ttl: float | None = None,
    ) -> None:
        if not isinstance(query_engine, BaseQueryEngine):
            raise SettingsError(f"query_engine is a LlamaIndex query engine, not {type(query_engine).__name__}")
        self._behind = query_engine
        realm = cache if isinstance(cache, Realm) else Realm(cache, tenant, namespace)
        self._results = Results(realm, KIND, index_version, response_text, response_of, ttl)
        self._facts = facts_of(query_engine, signature)
        super().__init__(callback_manager=query_engine.callback_manager)

    def retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """What the engine behind retrieves; not looked up: wrap its retriever for that."""
        return list(self._behind.retrieve(query_bundle))

    def synthesize(self, query_bundle: QueryBundle, nodes: list[NodeWithScore], **options: Any) -> Any:
        """What the engine behind makes of these nodes; not looked up."""
        return self._behind.synthesize(query_bundle, nodes, **options)

    async def asynthesize(self, query_bundle: QueryBundle, nodes: list[NodeWithScore], **options: Any) -> Any:
        """What the engine behind makes of these nodes; not looked up."""
        return await self._behind.asynthesize(query_bundle, nodes, **options)

    def _query(self, query_bundle: QueryBundle) -> Any:
        question = self._results.question(self._facts, lambda salt: query_parts(self._results, query_bundle, salt))
        told = self._results.answer(question, lambda: self._behind.query(replace(query_bundle)))
        tell("query engine", told)
        return told.value

    async def _aquery(self, query_bundle: QueryBundle) -> Any:
        results = self._results
        question = await in_thread(
            lambda: results.question(self._facts, lambda salt: query_parts(results, query_bundle, salt))
        )
        told = await results.aanswer(question, lambda: self._behind.aquery(replace(query_bundle)))
        tell("query engine", told)
        return told.value
