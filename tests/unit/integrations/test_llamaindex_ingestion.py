"""The door of LlamaIndex: ingestion. And what LlamaIndex's own keys do not see."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="needs llama-index-core")

from llama_index.core import Document, MockEmbedding
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.ingestion.pipeline import get_transformation_hash
from llama_index.core.node_parser import MarkdownNodeParser, SentenceSplitter
from llama_index.core.schema import BaseNode, ImageNode, MediaResource, TextNode, TransformComponent
from llama_index.core.storage.kvstore import SimpleKVStore

from mmcache import Cache, UnversionedModelError
from mmcache.integrations.llamaindex import CachedEmbedding, CachedTransform, MMCacheKVStore, cached_ingestion
from mmcache.model.errors import SettingsError

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache() as cache:
        yield cache


class Shout(TransformComponent):  # type: ignore[misc]
    mark: str = "!"
    make: Callable[[str], str] = str.upper

    def __call__(self, nodes: Sequence[BaseNode], **options: Any) -> Sequence[BaseNode]:
        RAN.append([node.get_content() for node in nodes])
        relations = [dict(node.relationships) for node in nodes]
        return [
            TextNode(text=self.make(node.get_content()) + self.mark, relationships=held, metadata=node.metadata)
            for node, held in zip(nodes, relations, strict=True)
        ]


class Look(TransformComponent):  # type: ignore[misc]
    """Reads the picture of a node."""

    def __call__(self, nodes: Sequence[BaseNode], **options: Any) -> Sequence[BaseNode]:
        RAN.append(len(nodes))
        return [TextNode(text=_picture(node)) for node in nodes]


def _picture(node: BaseNode) -> str:
    if isinstance(node, ImageNode):
        return node.image or Path(node.image_path or "").read_text()
    resource = node.image_resource
    return base64.b64decode(resource.data).decode() if resource and resource.data else ""


class Letters(MockEmbedding):  # type: ignore[misc]
    def _get_text_embedding(self, text: str) -> list[float]:
        RAN.append(text)
        return [float(len(text)), 0.1]


def splitter() -> SentenceSplitter:
    return SentenceSplitter(chunk_size=64, chunk_overlap=0)


def quietly(text: str) -> str:
    return text.lower()


def properly(text: str) -> str:
    return text.title()


def texts(nodes: Sequence[BaseNode]) -> list[str]:
    return [node.get_content() for node in nodes]


def test_a_second_run_runs_nothing_and_gives_the_same_nodes(cache: Cache) -> None:
    pipeline = cached_ingestion(IngestionPipeline(transformations=[splitter(), Shout()]), cache)
    documents = [Document(text="Hello world. " * 40, id_="doc", metadata={"b": 1, "a": [1, 2]})]
    first = pipeline.run(documents=documents)
    RAN.clear()
    assert pipeline.run(documents=documents) == first
    assert asyncio.run(pipeline.arun(documents=documents)) == first
    assert RAN == []
    assert len(first) > 1


def test_it_survives_a_restart_with_documents_read_anew(tmp_path: Path) -> None:
    """Their ids are drawn anew: the results are of the documents at hand."""
    for round_ in range(2):
        with Cache(tmp_path) as cache:
            transformations = [
                splitter(),
                Letters(embed_dim=2, model_name="letters"),
            ]
            pipeline = cached_ingestion(IngestionPipeline(transformations=transformations), cache)
            documents = [Document(text="Hello world. " * 40), Document(text="Other words. " * 40)]
            nodes = pipeline.run(documents=documents)
            assert [node.ref_doc_id for node in nodes] == [d.id_ for d in documents for _ in range(len(nodes) // 2)]
            assert len({node.id_ for node in nodes}) == len(nodes)
            assert all(node.embedding == [float(len(node.get_content(metadata_mode="embed"))), 0.1] for node in nodes)
            followed = {node.id_: node.next_node.node_id for node in nodes if node.next_node}
            assert set(followed.values()) < {node.id_ for node in nodes}
            assert bool(RAN) is (round_ == 0)
            RAN.clear()


def test_equal_texts_of_two_documents_stay_theirs(cache: Cache) -> None:
    """LlamaIndex's own cache hands out the first document's nodes for the second."""
    one, other = (Document(text="The same words.", id_=name) for name in ("one", "other"))
    own = IngestionPipeline(transformations=[SentenceSplitter()])
    assert own.run(documents=[one])[0].ref_doc_id == "one" == own.run(documents=[other])[0].ref_doc_id
    ours = cached_ingestion(IngestionPipeline(transformations=[SentenceSplitter()]), cache)
    found = [ours.run(documents=[document])[0] for document in (one, other)]
    assert [node.ref_doc_id for node in found] == ["one", "other"]
    random = [Document(text="The same words.") for _ in range(2)]
    chunks = [ours.run(documents=[document])[0] for document in random]
    assert [chunk.ref_doc_id for chunk in chunks] == [document.id_ for document in random]
    assert chunks[0].id_ != chunks[1].id_
    assert ours.run(documents=[random[1]])[0] == chunks[1]


def test_texts_that_are_cut_elsewhere_are_other_texts(cache: Cache) -> None:
    one, other = [TextNode(text="ab"), TextNode(text="c")], [TextNode(text="a"), TextNode(text="bc")]
    assert get_transformation_hash(one, Shout()) == get_transformation_hash(other, Shout())
    shout = CachedTransform(Shout(), cache)
    assert texts(shout(one)) == ["AB!", "C!"]
    assert texts(shout(other)) == ["A!", "BC!"]


def test_two_functions_are_two_transformations(cache: Cache) -> None:
    nodes = [TextNode(text="aB")]
    first, second = Shout(make=quietly), Shout(make=properly)
    assert get_transformation_hash(nodes, first) == get_transformation_hash(nodes, second)
    assert texts(CachedTransform(first, cache)(nodes)) == ["ab!"]
    assert texts(CachedTransform(second, cache)(nodes)) == ["Ab!"]


def test_what_a_function_closes_over_counts(cache: Cache) -> None:
    def suffixed(suffix: str) -> Callable[[str], str]:
        return lambda text: text + suffix

    nodes = [TextNode(text="a")]
    assert texts(CachedTransform(Shout(make=suffixed("1")), cache)(nodes)) == ["a1!"]
    assert texts(CachedTransform(Shout(make=suffixed("2")), cache)(nodes)) == ["a2!"]


def test_a_setting_that_changes_later_is_seen(cache: Cache) -> None:
    shout = Shout()
    cached = CachedTransform(shout, cache)
    nodes = [TextNode(text="a")]
    assert texts(cached(nodes)) == ["A!"]
    shout.mark = "?"
    assert texts(cached(nodes)) == ["A?"]


def test_pictures_count(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / "picture"
    cached = CachedTransform(Look(), cache)
    cat, dog = ImageNode(image="Y2F0"), ImageNode(image="ZG9n")
    assert get_transformation_hash([cat], Look()) == get_transformation_hash([dog], Look())
    assert [texts(cached([one])) for one in (cat, dog, cat)] == [["Y2F0"], ["ZG9n"], ["Y2F0"]]
    for content in ("cat", "dog", "cat"):  # under one name
        path.write_text(content)
        assert texts(cached([ImageNode(image_path=str(path))])) == [content]
    for data in (b"cat", b"dog!"):
        assert texts(cached([Document(image_resource=MediaResource(data=data))])) == [data.decode()]
    assert len(RAN) == 6


def test_data_of_media_survives(cache: Cache) -> None:
    """LlamaIndex's own way of writing nodes leaves them out."""

    class Keep(TransformComponent):  # type: ignore[misc]
        def __call__(self, nodes: Sequence[BaseNode], **options: Any) -> Sequence[BaseNode]:
            RAN.append(len(nodes))
            return nodes

    cached = CachedTransform(Keep(), cache)
    document = Document(text="a cat", image_resource=MediaResource(data=b"\xff\xd8cat"), metadata={"n": 1})
    assert cached([document]) == cached([document]) == [document]
    assert RAN == [1]


def test_the_order_of_metadata_counts(cache: Cache) -> None:
    cached = CachedTransform(Shout(), cache)
    assert list(cached([TextNode(text="a", metadata={"x": 1, "y": 2})])[0].metadata) == ["x", "y"]
    assert list(cached([TextNode(text="a", metadata={"y": 2, "x": 1})])[0].metadata) == ["y", "x"]


def test_what_cannot_be_known_or_kept_is_computed(cache: Cache) -> None:
    class Own(TextNode):  # type: ignore[misc]
        """Would come back as a TextNode."""

    class Strange(TransformComponent):  # type: ignore[misc]
        def __call__(self, nodes: Sequence[BaseNode], **options: Any) -> Sequence[BaseNode]:
            RAN.append(options)
            return [Own(text=node.get_content(), metadata={"t": (1, 2)}) for node in nodes]

    cached = CachedTransform(Strange(), cache)
    for _ in range(2):
        assert type(cached([TextNode(text="a")])[0]) is Own
    for _ in range(2):
        cached([ImageNode(image_url="https://example.com/cat.png")])
        cached([TextNode(text="a")], handle=object())
    assert len(RAN) == 6


def test_tenants_and_kwargs_are_apart(cache: Cache) -> None:
    nodes = [TextNode(text="a")]
    CachedTransform(Shout(), cache, tenant="one")(nodes)
    CachedTransform(Shout(), cache, tenant="two")(nodes)
    CachedTransform(Shout(), cache, tenant="two")(nodes, style="loud")
    CachedTransform(Shout(), cache, tenant="two")(nodes, show_progress=True)
    assert len(RAN) == 3


def test_errors_pass_and_a_closed_cache_is_no_error() -> None:
    class Broken(TransformComponent):  # type: ignore[misc]
        def __call__(self, nodes: Sequence[BaseNode], **options: Any) -> Sequence[BaseNode]:
            raise ValueError("boom")

    cache = Cache()
    broken, shout = CachedTransform(Broken(), cache), CachedTransform(Shout(), cache)
    with pytest.raises(ValueError, match="boom"):
        broken([TextNode(text="a")])
    cache.close()
    assert texts(shout([TextNode(text="a")])) == ["A!"]


@pytest.mark.slow
def test_worker_processes_share_the_folder(tmp_path: Path) -> None:
    documents = [Document(text=f"# Words of {n}\n\nHello", id_=str(n)) for n in range(4)]
    with Cache(tmp_path) as cache:
        pipeline = cached_ingestion(IngestionPipeline(transformations=[MarkdownNodeParser()]), cache)
        first = pipeline.run(documents=documents, num_workers=2)
        assert {node.id_ for node in pipeline.run(documents=documents, num_workers=2)} == {node.id_ for node in first}


def test_what_has_a_cache_stays_and_embeddings_are_by_text(cache: Cache) -> None:
    embed = CachedEmbedding(Letters(embed_dim=2, model_name="letters"), cache)
    shout = CachedTransform(Shout(), cache)
    pipeline = cached_ingestion(IngestionPipeline(transformations=[shout, embed]), cache)
    assert pipeline.transformations == [shout, embed]
    assert pipeline.disable_cache
    pipeline.run(nodes=[TextNode(text="a"), TextNode(text="b")])
    RAN.clear()
    pipeline.run(nodes=[TextNode(text="a"), TextNode(text="c")])
    assert RAN == [["a", "c"], "C!"]
    with pytest.raises(UnversionedModelError):
        cached_ingestion(IngestionPipeline(transformations=[Letters(embed_dim=2)]), cache)
    with pytest.raises(SettingsError):
        CachedTransform(object(), cache)


# The store for LlamaIndex's own cache ---------------------------------------------------------------------------------


def test_llamaindex_own_ingestion_cache_works_on_our_store(tmp_path: Path) -> None:
    for round_ in range(2):
        with Cache(tmp_path) as cache:
            own = IngestionCache(cache=MMCacheKVStore(cache, tenant="acme"), collection="docs")
            pipeline = IngestionPipeline(transformations=[Shout()], cache=own)
            assert texts(pipeline.run(documents=[Document(text="a", id_="1")])) == ["A!"]
            assert len(RAN) == (round_ == 0)
            RAN.clear()
    with Cache(tmp_path) as cache:
        own = IngestionCache(cache=MMCacheKVStore(cache, tenant="acme"), collection="docs")
        own.clear()
        IngestionPipeline(transformations=[Shout()], cache=own).run(documents=[Document(text="a", id_="1")])
        assert len(RAN) == 1


def test_the_store_keeps_what_a_simple_one_would(cache: Cache) -> None:
    ours, theirs = MMCacheKVStore(cache), SimpleKVStore()
    for store in (ours, theirs):
        store.put("k", {"a": [1, {"b": None}]}, collection="one")
        store.put_all([("k", {"c": 2}), ("l", {"d": 3})], collection="two")
    for collection in ("one", "two", "three"):
        assert ours.get_all(collection) == theirs.get_all(collection)
        for key in ("k", "l"):
            assert ours.get(key, collection) == theirs.get(key, collection)
    assert ours.delete("k", "one")
    assert not ours.delete("k", "one")
    assert ours.get("k", "one") is None
    assert ours.get("k", "two") == {"c": 2}
    asyncio.run(ours.aput("m", {"e": 4}))
    assert asyncio.run(ours.aget("m")) == {"e": 4}
    assert asyncio.run(ours.aget_all()) == {"m": {"e": 4}}
    assert asyncio.run(ours.adelete("m"))
    assert MMCacheKVStore(cache, tenant="other").get("k", "two") is None


def test_the_store_keeps_nothing_that_llamaindex_keys_do_not_see(cache: Cache) -> None:
    store = MMCacheKVStore(cache)
    IngestionCache(cache=store).put("k", [ImageNode(image="Y2F0")])
    assert store.get("k", "llama_cache") is None
    store.put("k", {"not json": object()})
    assert store.get("k") is None
    with pytest.raises(SettingsError, match="CachedEmbedding"):
        store.get("text", "embeddings")
