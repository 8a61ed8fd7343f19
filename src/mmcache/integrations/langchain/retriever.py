"""`CachedRetriever`: what a retriever found, kept until the store or the retriever's settings change."""

from __future__ import annotations

from typing import Any

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables.config import ensure_config
from pydantic import Field, PrivateAttr

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.integrations.framework.described import described, settings_of
from mmcache.integrations.framework.held import erase
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.results import Results, State
from mmcache.integrations.langchain.documents import documents_of, documents_text
from mmcache.integrations.langchain.tenants import asked_with
from mmcache.keys.arguments import canonical_arguments
from mmcache.model.errors import SettingsError

KIND = "langchain retrieval 1"


class CachedRetriever(BaseRetriever):  # type: ignore[misc]
    """`retriever`, with a cache in front.

    >>> retriever = CachedRetriever(store.as_retriever(), Cache("cache"), index_version="manual 2026-11")

    index_version: name and version of what is in the store, or a function that tells them at each query; with another
    version nothing old is served. The retriever's settings (search type, k, filters, the embedding model) are looked
    at with each query, too; where they cannot be read, `signature` is needed to say them. Raises
    `UnversionedModelError`, `SettingsError`.
    """

    retriever: Any = Field(exclude=True)
    _given: str | None = PrivateAttr(default=None)
    _results: Results = PrivateAttr()

    def __init__(
        self,
        retriever: BaseRetriever,
        cache: Cache,
        *,
        index_version: State,
        signature: str | None = None,
        tenant: TenantOption = None,
        namespace: str | None = None,
        ttl: float | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(retriever, BaseRetriever):
            raise SettingsError(f"retriever is a LangChain retriever, not {type(retriever).__name__}")
        if signature is not None and not signature:
            raise SettingsError("signature='' names no version; pass e.g. signature='my retriever 1'")
        super().__init__(retriever=retriever, **options)
        self._given = signature
        self._results = Results(
            Realm(cache, tenant, namespace), KIND, index_version, documents_text, documents_of, ttl
        )  # fmt: skip
        _ = self._facts()

    def _facts(self) -> str:
        behind = self.retriever
        settings = [behind, getattr(getattr(behind, "vectorstore", None), "embeddings", None)]
        if self._given is not None:
            return f"{type(behind).__module__}.{type(behind).__qualname__} {self._given} {settings_of(settings)}"
        return described(settings)

    def facts_for_keys(self) -> str:
        """What the keys of other caches need to know of it."""
        return f"{self._facts()} {self._results.state()}"

    def forget(self) -> int:
        """Erase the results of the present index version, of this tenant; how many there were."""
        results, tenant = self._results, self._results.realm.tenant()
        return 0 if tenant is None else erase(results.realm, tenant, results.name(results.state()))

    def invoke(self, input: str, config: Any = None, **kwargs: Any) -> list[Document]:
        """Documents for a query."""
        with asked_with(ensure_config(config)):
            found: list[Document] = super().invoke(input, config, **kwargs)
        return found

    async def ainvoke(self, input: str, config: Any = None, **kwargs: Any) -> list[Document]:
        """Documents for a query."""
        with asked_with(ensure_config(config)):
            found: list[Document] = await super().ainvoke(input, config, **kwargs)
        return found

    def _get_relevant_documents(self, query: str, *, run_manager: Any, **kwargs: Any) -> list[Document]:
        question = self._results.question(self._facts, lambda salt: canonical_arguments([query], kwargs))
        behind = self.retriever
        told = self._results.answer(
            question, lambda: behind.invoke(query, config={"callbacks": run_manager.get_child()}, **kwargs)
        )
        found: list[Document] = told.value
        return found

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any, **kwargs: Any) -> list[Document]:
        results, behind = self._results, self.retriever
        question = await in_thread(
            lambda: results.question(self._facts, lambda salt: canonical_arguments([query], kwargs))
        )
        told = await results.aanswer(
            question, lambda: behind.ainvoke(query, config={"callbacks": run_manager.get_child()}, **kwargs)
        )
        found: list[Document] = told.value
        return found
