"""Retrievers of LlamaIndex and LangChain: a signature says what cannot be read, and replaces nothing that can."""

from __future__ import annotations

from typing import Any

import pytest

from mmcache import Cache


def test_llamaindex_settings_count_beside_a_signature() -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

    from mmcache.integrations.llamaindex import CachedRetriever

    class Several(BaseRetriever):  # type: ignore[misc]
        def __init__(self, k: int) -> None:
            self._similarity_top_k = k
            super().__init__()

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return [NodeWithScore(node=TextNode(text=str(n)), score=1.0) for n in range(self._similarity_top_k)]

    with Cache(memory="1MiB") as cache:
        for k in 2, 5:
            retriever = CachedRetriever(Several(k), cache, index_version="manual 1", signature="several 1")
            assert [len(retriever.retrieve("q")) for _ in range(2)] == [k, k]


def test_langchain_settings_count_beside_a_signature() -> None:
    pytest.importorskip("langchain_core")
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    from mmcache.integrations.langchain import CachedRetriever

    class Several(BaseRetriever):  # type: ignore[misc]
        k: int

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return [Document(page_content=str(n)) for n in range(self.k)]

    with Cache(memory="1MiB") as cache:
        for k in 2, 5:
            retriever = CachedRetriever(Several(k=k), cache, index_version="manual 1", signature="several 1")
            assert [len(retriever.invoke("q")) for _ in range(2)] == [k, k]
