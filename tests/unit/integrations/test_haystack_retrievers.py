"""Haystack's retrievers behind a cache: filters, versions, writers; by picture and words; what was ingested before."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")  # nothing leaves this machine
pytest.importorskip("haystack")
pytest.importorskip("PIL")

from haystack import Document, Pipeline, component
from haystack.components.embedders import MockTextEmbedder
from haystack.components.joiners import DocumentJoiner
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever, InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy
from PIL import Image

from mmcache import Cache
from mmcache.integrations.haystack import CacheConfig, CachedRetriever, ContentChecker, IndexWriter, JointRetriever
from mmcache.model.errors import SettingsError, TierError


@pytest.fixture
def config(tmp_path: Path) -> CacheConfig:
    return CacheConfig(root=str(tmp_path / "cache"), memory="16MiB")


def filled(*texts: str) -> Any:
    store = InMemoryDocumentStore()  # of a name of its own
    store.write_documents(
        [Document(content=text, meta={"n": n}, embedding=[float(n), 1.0]) for n, text in enumerate(texts)]
    )
    return store


def counted(store: Any) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for name in "bm25_retrieval", "embedding_retrieval":
        found: Callable[..., Any] = getattr(store, name)

        def asked(found: Callable[..., Any] = found, **inputs: Any) -> Any:
            calls.append(inputs)
            return found(**inputs)

        setattr(store, name, asked)
    return calls


def test_a_repeated_question_does_not_ask_the_store(config: CacheConfig) -> None:
    store = filled("a cat", "a dog", "a cat and a dog")
    calls = counted(store)
    retriever = CachedRetriever(InMemoryBM25Retriever(store), config, index_version="1")
    first = retriever.run(query="cat", top_k=2)
    assert retriever.run(query="cat", top_k=2) == first
    assert len(calls) == 1
    assert first["documents"] == InMemoryBM25Retriever(store).run(query="cat", top_k=2)["documents"]
    first["documents"][0].meta["n"] = "written to by the caller"
    assert retriever.run(query="cat", top_k=2)["documents"][0].meta["n"] != "written to by the caller"


@pytest.mark.parametrize(
    "inputs",
    [
        {"query": "dog"},
        {"query": "cat", "top_k": 1},
        {"query": "cat", "scale_score": True},
        {"query": "cat", "filters": {"field": "meta.n", "operator": "==", "value": 0}},
        {"query": "cat", "index_version": "2"},
        {"query": "cat", "cache_tenant": "another"},
    ],
    ids=["query", "top_k", "scale", "filters", "version", "tenant"],
)
def test_whatever_changes_a_result_is_in_the_key(config: CacheConfig, inputs: dict[str, Any]) -> None:
    store = filled("a cat", "a dog", "a cat and a dog")
    calls = counted(store)
    retriever = CachedRetriever(InMemoryBM25Retriever(store), config, index_version="1")
    retriever.run(query="cat")
    found = retriever.run(**inputs)
    assert len(calls) == 2
    inputs.pop("index_version", None), inputs.pop("cache_tenant", None)
    assert found == InMemoryBM25Retriever(store).run(**inputs)


def test_filters_count_by_what_they_say(config: CacheConfig) -> None:
    store = filled("a cat")
    calls = counted(store)
    retriever = CachedRetriever(InMemoryBM25Retriever(store), config, index_version="1")
    retriever.run(query="cat", filters={"field": "meta.n", "operator": "==", "value": 0})
    retriever.run(query="cat", filters={"value": 0, "operator": "==", "field": "meta.n"})
    assert len(calls) == 1
    retriever.run(query="cat", filters={"field": "meta.n", "operator": "==", "value": 0.0})
    assert len(calls) == 2


def test_init_parameters_of_the_retriever_are_in_the_key(config: CacheConfig) -> None:
    store = filled("a cat", "a dog", "a cat and a dog")
    one = CachedRetriever(InMemoryBM25Retriever(store, top_k=1), config, index_version="1")
    two = CachedRetriever(InMemoryBM25Retriever(store, top_k=2), config, index_version="1")
    assert len(one.run(query="cat")["documents"]) == 1
    assert len(two.run(query="cat")["documents"]) == 2
    filters = {"field": "meta.device", "operator": "==", "value": "x"}
    three = CachedRetriever(InMemoryBM25Retriever(store, top_k=2, filters=filters), config, index_version="1")
    assert three.run(query="cat")["documents"] == []


def test_without_a_version_nothing_is_looked_up(config: CacheConfig) -> None:
    store = filled("a cat")
    calls = counted(store)
    retriever = CachedRetriever(InMemoryBM25Retriever(store), config)
    for _ in range(2):
        retriever.run(query="cat")
    assert len(calls) == 2
    with pytest.raises(SettingsError):
        CachedRetriever(InMemoryBM25Retriever(store), config, index_version="")


def test_writing_makes_results_old(config: CacheConfig) -> None:
    store = filled("a cat")
    writer = IndexWriter(DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE), "docs", config)
    retriever = CachedRetriever(InMemoryBM25Retriever(store), config, index="docs")
    assert len(retriever.run(query="cat")["documents"]) == 1
    assert writer.run(documents=[Document(content="another cat")]) == {"documents_written": 1}
    assert len(retriever.run(query="cat")["documents"]) == 2
    calls = counted(store)
    retriever.run(query="cat")
    assert not calls
    failing = IndexWriter(DocumentWriter(store, policy=DuplicatePolicy.FAIL), "docs", config)
    with pytest.raises(Exception, match="already exists"):
        failing.run(documents=[Document(content="another cat")])
    retriever.run(query="cat")
    assert len(calls) == 1  # nobody knows what it had written
    elsewhere = CachedRetriever(InMemoryBM25Retriever(store), config, index="others")
    elsewhere.run(query="cat")
    writer.run(documents=[Document(content="a third cat")])
    assert elsewhere.run(query="cat")["documents"]
    assert len(calls) == 2


def test_a_writer_whose_cache_cannot_be_told_writes_nothing(tmp_path: Path) -> None:
    store = filled("a cat")
    (tmp_path / "file").write_text("in the way")
    writer = IndexWriter(DocumentWriter(store), "docs", CacheConfig(root=str(tmp_path / "file")))
    with pytest.raises(TierError, match="docs"):
        writer.run(documents=[Document(content="new")])
    assert store.count_documents() == 1


def test_documents_come_back_whole() -> None:
    whole = Document(
        content="text", blob=ByteStream(bytes(range(256)), meta={"a": [1, {"b": None}]}, mime_type="image/png"),
        meta={"page": 1, "nested": {"list": [1, 2.5, "x", None, True]}, "long": "ü" * 1000}, score=0.1,
        embedding=[0.1, 1e-300, 3.0], sparse_embedding=SparseEmbedding(indices=[1, 5], values=[0.5, 0.25]),
    )  # fmt: skip

    @component
    class Giving:
        @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
        def run(self, query: str) -> dict[str, Any]:
            return {"documents": [whole, Document(content=None, meta={})]}

    with Cache(memory="4MiB") as cache:
        retriever = CachedRetriever(Giving(), cache, index_version="1")
        first, second = retriever.run(query="x"), retriever.run(query="x")
        assert cache.stats().hits == 1
    assert first == second == Giving().run(query="x")
    assert second["documents"][0].id == whole.id
    assert second["documents"][0].embedding == whole.embedding
    assert second["documents"][0].blob.data == whole.blob.data
    assert second["documents"][0] is not first["documents"][0]


def test_what_cannot_be_stored_is_handed_out(config: CacheConfig) -> None:
    @component
    class Odd:
        calls = 0

        @component.output_types(documents=list[Document], extra=Any)  # type: ignore[untyped-decorator]
        def run(self, query: str) -> dict[str, Any]:
            Odd.calls += 1
            return {"documents": [Document(content="x", meta={"path": Path("x")})], "extra": object}

    retriever = CachedRetriever(Odd(), config, index_version="1")
    for _ in range(2):
        assert retriever.run(query="x")["documents"][0].meta == {"path": Path("x")}
    assert Odd.calls == 2


async def test_the_async_twin_asks_the_store_once(config: CacheConfig) -> None:
    retriever = CachedRetriever(InMemoryEmbeddingRetriever(filled("a", "b")), config, index_version="1")
    first = await retriever.run_async(query_embedding=[1.0, 0.0], top_k=1)
    assert await retriever.run_async(query_embedding=[1.0, 0.0], top_k=1) == first
    assert first["documents"][0].content == "b"
    await retriever.close_async()


# Picture and words ----------------------------------------------------------------------------------------------------


@component
class Seeing:
    """Embeds a picture by its mean colours."""

    def __init__(self, model: str = "seeing 1", file_path_meta_field: str = "file_path") -> None:
        self.model, self.file_path_meta_field = model, file_path_meta_field
        self.calls = 0

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, documents: list[Document]) -> dict[str, Any]:
        self.calls += len(documents)
        made = []
        for one in documents:
            pixels = np.asarray(Image.open(one.meta[self.file_path_meta_field]).convert("RGB"), np.float64)
            made.append(replace(one, embedding=pixels.mean(axis=(0, 1))[:2].tolist()))
        return {"documents": made}


def joint(config: CacheConfig, store: Any, **options: Any) -> JointRetriever:
    chosen: dict[str, Any] = {"index_version": "1", "top_k": 3} | options
    return JointRetriever(
        Seeing(), MockTextEmbedder(dimension=2), InMemoryEmbeddingRetriever(store), InMemoryEmbeddingRetriever(store),
        DocumentJoiner(join_mode="reciprocal_rank_fusion"), config, **chosen,
    )  # fmt: skip


def test_picture_and_words_are_looked_up_jointly_and_the_locator_says_where_it_died(
    config: CacheConfig, tmp_path: Path
) -> None:
    picture = Image.effect_noise((16, 16), 60).convert("RGB")
    for name in "a.png", "b.bmp":
        picture.save(tmp_path / name)
    store = filled("one", "two", "three", "four")
    calls, retriever = counted(store), joint(config, store)
    first = retriever.run(picture=str(tmp_path / "a.png"), words="which?")
    assert first["located"]["died"] == "picture"
    assert len(first["documents"]) == 3
    stream = ByteStream((tmp_path / "b.bmp").read_bytes())
    again = retriever.run(picture=stream, words="which?")  # the same pixels in another file
    assert again["located"]["died"] is None
    assert again["documents"] == first["documents"]
    assert retriever._parts["picture_embedder"].calls == 1
    assert len(calls) == 2
    assert retriever.run(picture=stream, words="what?")["located"]["died"] == "text"
    assert retriever.run(picture=stream, words="which?", index_version="2")["located"]["died"] == "store"
    assert retriever.run(picture=stream, words="which?", top_k=1)["documents"][0].id in {
        d.id for d in first["documents"]
    }
    assert retriever.run(picture=None, words="which?")["located"]["hops"][0]["outcome"] == "none given"
    assert retriever.run(picture=stream, words="which?", cache_tenant="b")["located"]["died"] == "picture"
    assert retriever.locator.lookups == 7
    with pytest.raises(ValueError, match="picture"):
        retriever.run()
    retriever.close()


def test_the_joint_retriever_goes_to_yaml_and_back(config: CacheConfig, tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png")
    pipeline = Pipeline()
    pipeline.add_component("joint", joint(config, filled("one", "two")))
    asked = {"joint": {"picture": str(tmp_path / "a.png"), "words": "w"}}
    first = pipeline.run(asked)["joint"]
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["mmcache.*", Seeing.__module__])
    assert again == pipeline
    assert again.run(asked)["joint"]["documents"] == first["documents"]
    assert again.run(asked)["joint"]["located"]["died"] is None


def test_what_a_part_raises_is_raised(config: CacheConfig, tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png")
    store = filled("one")
    store.embedding_retrieval = None
    with pytest.raises(TypeError):
        joint(config, store).run(picture=str(tmp_path / "a.png"), words="w")
    with pytest.raises(SettingsError):
        joint(config, store, near_picture=0.9)


def test_without_a_cache_the_parts_are_asked(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "a.png")
    (tmp_path / "file").write_text("in the way")
    found = joint(CacheConfig(root=str(tmp_path / "file")), filled("one")).run(
        picture=str(tmp_path / "a.png"), words="w"
    )
    assert [one.content for one in found["documents"]] == ["one"]
    unknown = joint(CacheConfig(root=str(tmp_path / "cache")), filled("one"), index_version=None)
    assert unknown.run(words="w")["located"] == {}
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])  # has no canonical content here
    told = joint(CacheConfig(root=str(tmp_path / "cache")), filled("one"))
    for picture in (tmp_path / "moving.gif", ByteStream((tmp_path / "moving.gif").read_bytes())):
        assert told.run(picture=picture, words="w") == {"documents": found["documents"], "located": {}}


# What was ingested ----------------------------------------------------------------------------------------------------


def test_a_checker_knows_content_by_any_name(config: CacheConfig, tmp_path: Path) -> None:
    picture = Image.effect_noise((16, 16), 60).convert("RGB")
    for name in "a.png", "b.bmp":
        picture.save(tmp_path / name)
    (tmp_path / "c.txt").write_text("words")
    store = InMemoryDocumentStore()
    checker = ContentChecker(store, config)
    items = [str(tmp_path / "a.png"), tmp_path / "b.bmp", tmp_path / "c.txt", Document(content="text")]
    first = checker.run(items=items)
    assert first["hits"] == []
    assert len(first["misses"]) == 3
    assert [one.meta["file_path"] for one in first["duplicates"]] == [str(tmp_path / "b.bmp")]
    store.write_documents([Document(content="made of it", meta=one.meta) for one in first["misses"]])
    second = checker.run(items=items)
    assert len(second["hits"]) == 3
    assert second["misses"] == second["duplicates"] == []
    renamed = ByteStream((tmp_path / "b.bmp").read_bytes(), mime_type="image/bmp")
    assert len(checker.run(items=[renamed, Document(content="new")])["hits"]) == 1
    assert checker.run(items=items, cache_tenant="another")["hits"] == []
    store.delete_documents([one.id for one in second["hits"]])
    assert len(checker.run(items=items)["misses"]) == 3


def test_what_the_checker_cannot_name_is_a_miss(config: CacheConfig) -> None:
    checker = ContentChecker(InMemoryDocumentStore(), config)
    odd = [Document(meta={"n": 1}), 7, ByteStream(b"no picture", mime_type="image/png")]
    assert len(checker.run(items=odd)["misses"]) == 3
    assert len(checker.run(items=odd, cache_tenant="")["misses"]) == 3
    again = Pipeline()
    again.add_component("checker", checker)
    assert Pipeline.loads(again.dumps(), allowed_modules=["mmcache.*"]) == again


async def test_the_checker_s_async_twin(config: CacheConfig) -> None:
    store = InMemoryDocumentStore()
    checker = ContentChecker(store, config)
    (missed,) = (await checker.run_async(items=[Document(content="x")]))["misses"]
    store.write_documents([missed])
    assert (await checker.run_async(items=[Document(content="x")]))["hits"] == [missed]
