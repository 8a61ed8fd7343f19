"""Retrievers of LlamaIndex and LangChain: a signature says what cannot be read, and replaces nothing that can; no
failure of the cache's, and nothing that it cannot keep, is a failure of the caller's."""

from __future__ import annotations

from pathlib import Path
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


TROUBLES = ["closed", "odd", "tenant", "version", "untold"]


def options(trouble: str) -> dict[str, Any]:
    def failing() -> str:
        raise KeyError("nobody knows")

    told: dict[str, dict[str, Any]] = {
        "tenant": {"tenant": lambda: None}, "version": {"index_version": failing},
        "untold": {"index_version": lambda: ""},
    }  # fmt: skip
    return {"index_version": "manual 1"} | told.get(trouble, {})


@pytest.fixture
def picture(tmp_path: Path) -> str:
    image = pytest.importorskip("PIL.Image")
    image.effect_noise((16, 16), 50).convert("RGB").save(tmp_path / "picture.png")
    return str(tmp_path / "picture.png")


@pytest.mark.parametrize("trouble", TROUBLES)
def test_llamaindex_finds_in_spite_of(trouble: str, picture: str) -> None:
    pytest.importorskip("llama_index.core")
    from llama_index.core.embeddings.multi_modal_base import MultiModalEmbedding
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

    from mmcache.integrations.llamaindex import JointRetriever

    class Eyes(MultiModalEmbedding):  # type: ignore[misc]
        size: float = 1.0

        def _get_image_embedding(self, img_file_path: Any) -> list[float]:
            return [self.size, 2.0]

        async def _aget_image_embedding(self, img_file_path: Any) -> list[float]:
            return [self.size, 2.0]

        def _get_query_embedding(self, query: str) -> list[float]:
            return [self.size, 3.0]

        def _get_text_embedding(self, text: str) -> list[float]:
            return [self.size, 3.0]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return [self.size, 3.0]

    asked = []

    def search(seen: Any, read: Any, k: int) -> list[NodeWithScore]:
        asked.append((list(seen), list(read)))
        odd = {"odd": object()} if trouble == "odd" else {}
        return [NodeWithScore(node=TextNode(text="x", metadata=odd), score=1.0)]

    cache, eyes = Cache(memory="4MiB"), Eyes(model_name="eyes 1")
    retriever = JointRetriever(eyes, search, cache, **options(trouble))
    if trouble == "closed":
        cache.close()
    for count in 1, 2:
        assert retriever.retrieve(QueryBundle("words", image_path=picture))[0].node.text == "x"
        assert asked == [([1.0, 2.0], [1.0, 3.0])] * count
    cache.close()


@pytest.mark.parametrize("trouble", TROUBLES)
def test_langchain_finds_in_spite_of(trouble: str, picture: str) -> None:
    pytest.importorskip("langchain_core")
    from langchain_core.documents import Document

    from mmcache.integrations.langchain import JointRetriever

    asked = []

    def search(seen: Any, read: Any, k: int) -> list[Document]:
        asked.append((seen, read))
        return [Document(page_content="x", metadata={"odd": object()} if trouble == "odd" else {})]

    cache = Cache(memory="4MiB")
    retriever = JointRetriever(eyes_of_langchain(), search, cache, **options(trouble))
    if trouble == "closed":
        cache.close()
    for count in 1, 2:
        assert retriever.invoke({"text": "words", "image": picture})[0].page_content == "x"
        assert asked == [([1.0, 2.0], [1.0, 3.0])] * count
    cache.close()


def eyes_of_langchain() -> Any:
    from langchain_core.embeddings import Embeddings

    class Eyes(Embeddings):  # type: ignore[misc]
        def __init__(self) -> None:
            self.model, self.size = "eyes 1", 1.0

        def embed_image(self, uris: list[str]) -> list[list[float]]:
            return [[self.size, 2.0] for _ in uris]

        def embed_query(self, text: str) -> list[float]:
            return [self.size, 3.0]

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[self.size, 3.0] for _ in texts]

    return Eyes()


def test_a_joint_retriever_notices_that_its_model_was_reconfigured(picture: str) -> None:
    pytest.importorskip("langchain_core")
    from langchain_core.documents import Document

    from mmcache.integrations.langchain import JointRetriever

    eyes = eyes_of_langchain()
    with Cache(memory="4MiB") as cache:
        retriever = JointRetriever(
            eyes, lambda seen, read, k: [Document(page_content=str(seen))], cache, index_version="manual 1"
        )
        before = [retriever.invoke({"text": "words", "image": picture})[0].page_content for _ in range(2)]
        eyes.size = 5.0
        assert before == ["[1.0, 2.0]"] * 2
        assert retriever.invoke({"text": "words", "image": picture})[0].page_content == "[5.0, 2.0]"
