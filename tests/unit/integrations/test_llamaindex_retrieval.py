"""The door of LlamaIndex: retrievers, query engines, and retrieval by picture and words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from PIL import Image

pytest.importorskip("llama_index.core", reason="needs llama-index-core")

from llama_index.core import Document, MockEmbedding, PromptTemplate, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.embeddings import MockMultiModalEmbedding
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters

from mmcache import Cache
from mmcache.integrations.llamaindex import (
    CachedEmbedding,
    CachedQueryEngine,
    CachedRetriever,
    CacheHitEvent,
    CacheMissEvent,
    JointRetriever,
    index_state,
)
from mmcache.model.errors import MMCacheError, SettingsError, UnversionedModelError
from mmcache.retrieval import Locator

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache() as cache:
        yield cache


class Letters(MockEmbedding):  # type: ignore[misc]
    def _get_text_embedding(self, text: str) -> list[float]:
        return [float(sum(text.encode()) % 89), float(len(text)), 1.0]

    def _get_query_embedding(self, query: str) -> list[float]:
        RAN.append(query)
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class Model(MockLLM):  # type: ignore[misc]
    def complete(self, prompt: str, formatted: bool = False, **options: Any) -> Any:
        RAN.append("answered")
        return super().complete(prompt, formatted, **options)

    async def acomplete(self, prompt: str, formatted: bool = False, **options: Any) -> Any:
        return self.complete(prompt, formatted, **options)


class Fixed(BaseRetriever):  # type: ignore[misc]
    """Finds what it is told to."""

    def __init__(self, found: list[NodeWithScore], style: str = "") -> None:
        super().__init__()
        self._found, self._style = found, style
        self.similarity_top_k = 2

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        RAN.append(query_bundle.query_str)
        return [NodeWithScore(node=one.node, score=one.score) for one in self._found]


def made(*texts: str) -> VectorStoreIndex:
    embed = Letters(embed_dim=3, model_name="letters")
    documents = [Document(text=text, id_=f"doc-{text}", metadata={"n": len(text)}) for text in texts]
    return VectorStoreIndex.from_documents(documents, embed_model=embed)


def test_a_second_query_asks_neither_model_nor_store(cache: Cache) -> None:
    behind = made("one", "three", "seventeen").as_retriever(similarity_top_k=2)
    retriever = CachedRetriever(behind, cache, index_version="v1")
    first = retriever.retrieve("three")
    assert first == behind.retrieve("three")
    RAN.clear()
    assert retriever.retrieve("three") == first == asyncio.run(retriever.aretrieve("three"))
    assert RAN == []
    assert [type(one) for one in first] == [NodeWithScore] * 2
    first[0].node.metadata["written"] = True  # a caller's own
    assert "written" not in retriever.retrieve("three")[0].node.metadata


def test_everything_that_may_change_a_result_is_another_key(cache: Cache) -> None:
    built = made("one", "three", "seventeen")

    def asked(query: Any = "three", version: str = "v1", **settings: Any) -> None:
        behind = built.as_retriever(**({"similarity_top_k": 2} | settings))
        CachedRetriever(behind, cache, index_version=version).retrieve(query)

    def misses() -> int:
        return cache.stats().misses

    asked()
    before = misses()
    asked()
    assert misses() == before
    year = MetadataFilters(filters=[MetadataFilter(key="n", value=3)])
    other = MetadataFilters(filters=[MetadataFilter(key="m", value=3)])
    changed: list[tuple[Any, dict[str, Any]]] = [
        ("Three", {}),
        ("three", {"version": "v2"}),
        ("three", {"similarity_top_k": 3}),
        ("three", {"filters": year}),
        ("three", {"filters": other}),
        ("three", {"vector_store_query_mode": "mmr"}),
        ("three", {"doc_ids": ["x"]}),
        (QueryBundle("three", custom_embedding_strs=["four"]), {}),
        (QueryBundle("three", embedding=[1.0, 2.0, 3.0]), {}),
    ]
    for query, options in changed:
        before = misses()
        asked(query, **options)
        assert misses() == before + 1, (query, options)
    before = misses()
    for query, options in changed:
        asked(query, **options)
    assert misses() == before


def test_a_picture_counts_by_its_pixels_and_an_address_is_passed_by(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    picture = Image.effect_noise((20, 10), 50)
    picture.save(path)
    picture.save(tmp_path / "two.bmp")
    retriever = CachedRetriever(Fixed([NodeWithScore(node=TextNode(text="x"), score=1.0)]), cache, index_version="v1")
    for name in ("one.png", "two.bmp"):
        retriever.retrieve(QueryBundle("what?", image_path=str(tmp_path / name)))
    assert len(RAN) == 1
    Image.new("L", (20, 10)).save(path)
    retriever.retrieve(QueryBundle("what?", image_path=str(path)))
    assert len(RAN) == 2
    for _ in range(2):
        retriever.retrieve(QueryBundle("what?", image_path="https://example.com/cat.png"))
    assert len(RAN) == 4


def test_a_setting_that_changes_later_is_seen(cache: Cache) -> None:
    behind = Fixed([])
    retriever = CachedRetriever(behind, cache, index_version="v1")
    retriever.retrieve("q")
    behind.similarity_top_k = 3
    retriever.retrieve("q")
    behind._style = "other"
    retriever.retrieve("q")
    retriever.retrieve("q")
    assert len(RAN) == 3


def test_the_state_of_an_index_moves_with_its_documents(cache: Cache) -> None:
    built = made("one", "three")
    retriever = CachedRetriever(built.as_retriever(), cache, index_version=index_state(built, "manual"))
    before = retriever.retrieve("four")
    retriever.retrieve("four")
    assert len(RAN) == 1
    built.insert(Document(text="four"))
    retriever.retrieve("four")
    assert len(RAN) == 2
    retriever = CachedRetriever(
        built.as_retriever(similarity_top_k=9), cache, index_version=index_state(built, "manual")
    )
    assert {one.text for one in retriever.retrieve("four")} == {"four", *(one.text for one in before)}
    built.update_ref_doc(Document(text="five", id_="doc-one", metadata={}))
    asked = len(RAN)
    retriever.retrieve("four")
    assert len(RAN) == asked + 1
    again = made("one", "three")  # built anew of the same: another process would find other node ids, and ask again
    assert index_state(built, "manual")() != index_state(again, "manual")()
    assert index_state(built, "manual")() != index_state(built, "other")()


def test_an_index_whose_store_keeps_the_texts_has_no_state_of_its_own() -> None:
    class Store:
        stores_text = True

    class Held:
        vector_store = Store()

        class docstore:  # noqa: N801
            docs: ClassVar[dict[str, Any]] = {}

    with pytest.raises(SettingsError, match="index_version"):
        index_state(Held())


def test_what_changed_meanwhile_is_handed_out_and_not_kept(cache: Cache) -> None:
    version = ["v1"]

    class Slow(Fixed):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            version[0] = "v2"
            return super()._retrieve(query_bundle)

    found = [NodeWithScore(node=TextNode(text="x"), score=0.5)]
    retriever = CachedRetriever(Slow(found), cache, index_version=lambda: version[0])
    assert retriever.retrieve("q") == found
    version[0] = "v1"
    assert retriever.retrieve("q") == found
    assert len(RAN) == 2


@pytest.mark.parametrize("version", ["", None, 3])
def test_a_version_is_needed(cache: Cache, version: Any) -> None:
    with pytest.raises(SettingsError, match="version"):
        CachedRetriever(Fixed([]), cache, index_version=version)


def test_a_version_that_is_not_told_passes_the_cache_by(cache: Cache) -> None:
    def lost() -> str:
        raise ConnectionError("no store")

    for tell in (lost, lambda: ""):
        retriever = CachedRetriever(Fixed([]), cache, index_version=tell)
        for _ in range(2):
            assert retriever.retrieve("q") == []
    assert len(RAN) == 4


def test_what_would_not_come_back_as_it_was_is_not_kept(cache: Cache) -> None:
    class Own(TextNode):  # type: ignore[misc]
        pass

    for node in (Own(text="x"), IndexNode(text="x", index_id="i", obj=Fixed([])), TextNode(metadata={"t": (1, 2)})):
        retriever = CachedRetriever(Fixed([NodeWithScore(node=node)]), cache, index_version="v1")
        RAN.clear()
        assert [type(one.node) for one in retriever.retrieve("q")] == [type(node)] * (type(node) is not IndexNode)
        retriever.retrieve("q")
        assert RAN[::2] == RAN[1::2]
        assert len(RAN) >= 2


def test_tenants_are_apart_and_forget_erases(cache: Cache) -> None:
    who = ["a"]
    retriever = CachedRetriever(Fixed([]), cache, index_version="v1", tenant=lambda: who[0])
    for name in ("a", "b", "a", "b", ""):
        who[0] = name
        retriever.retrieve("q")
    assert len(RAN) == 3
    who[0] = "a"
    assert retriever.forget() == 1
    retriever.retrieve("q")
    who[0] = "b"
    retriever.retrieve("q")
    assert len(RAN) == 4


def test_no_failure_of_the_cache_fails_a_query_and_errors_pass() -> None:
    class Broken(Fixed):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            raise MMCacheError("its own")

    cache = Cache()
    broken = CachedRetriever(Broken([]), cache, index_version="v1")
    with pytest.raises(MMCacheError, match="its own"):
        broken.retrieve("q")
    retriever = CachedRetriever(Fixed([]), cache, index_version="v1")
    cache.close()
    assert retriever.retrieve("q") == []
    assert asyncio.run(retriever.aretrieve("q")) == []


def test_too_much_to_be_settings_is_said_at_once(cache: Cache) -> None:
    class Bulky(Fixed):
        def __init__(self) -> None:
            super().__init__([])
            self.corpus = [[str(n)] for n in range(30_000)]

    with pytest.raises(UnversionedModelError, match="signature="):
        CachedRetriever(Bulky(), cache, index_version="v1")
    CachedRetriever(Bulky(), cache, index_version="v1", signature="bulky 1").retrieve("q")
    with pytest.raises(SettingsError):
        CachedRetriever(Bulky(), cache, index_version="v1", signature="")
    with pytest.raises(SettingsError):
        CachedRetriever(object(), cache, index_version="v1")


class Heard(BaseEventHandler):  # type: ignore[misc]
    events: list[Any] = []  # noqa: RUF012 - pydantic copies it

    def handle(self, event: Any, **options: Any) -> None:
        self.events.append(event)


def test_instrumentation_hears_hits_with_what_they_saved(cache: Cache) -> None:
    handler = Heard(events=[])
    get_dispatcher().add_event_handler(handler)
    try:
        retriever = CachedRetriever(Fixed([]), cache, index_version="v1")
        retriever.retrieve("a private question")
        retriever.retrieve("a private question")
    finally:
        get_dispatcher().event_handlers.remove(handler)
    ours = [event for event in handler.events if isinstance(event, CacheHitEvent | CacheMissEvent)]
    assert [(event.class_name(), event.door) for event in ours] == [
        ("CacheMissEvent", "retriever"), ("CacheHitEvent", "retriever"),
    ]  # fmt: skip
    assert ours[0].reason == "absent"
    assert ours[1].saved_seconds > 0
    assert "private" not in str([event.model_dump() for event in ours])


# Query engines --------------------------------------------------------------------------------------------------------


def test_an_answer_is_kept_with_its_sources(cache: Cache) -> None:
    engine = made("one", "three").as_query_engine(llm=Model())
    cached = CachedQueryEngine(engine, cache, index_version="v1")
    first = cached.query("what?")
    RAN.clear()
    assert cached.query("what?") == first == asyncio.run(cached.aquery("what?"))
    assert RAN == []
    assert first.source_nodes
    assert first.metadata
    assert cached.retrieve(QueryBundle("what?")) == first.source_nodes


def test_another_model_prompt_or_setting_is_another_answer(cache: Cache) -> None:
    built = made("one", "three")

    def answered(engine: Any) -> int:
        RAN.clear()
        CachedQueryEngine(engine, cache, index_version="v1").query("what?")
        return RAN.count("answered")

    assert answered(built.as_query_engine(llm=Model())) == 1
    assert answered(built.as_query_engine(llm=Model())) == 0
    assert answered(built.as_query_engine(llm=Model(max_tokens=7))) == 1
    assert answered(built.as_query_engine(llm=Model(), similarity_top_k=1)) == 1
    engine = built.as_query_engine(llm=Model())
    cached = CachedQueryEngine(engine, cache, index_version="v1")
    name = "response_synthesizer:text_qa_template"
    assert name in cached.get_prompts()
    cached.update_prompts({name: PromptTemplate("Say it in rhymes. {context_str} {query_str}")})
    RAN.clear()
    cached.query("what?")
    assert RAN.count("answered") == 1


def test_streams_empty_answers_and_objects_are_not_kept(cache: Cache) -> None:
    engine = made("one").as_query_engine(llm=Model(), streaming=True)
    cached = CachedQueryEngine(engine, cache, index_version="v1")
    for _ in range(2):
        assert "".join(cached.query("what?").response_gen)

    class Silent(CustomQueryEngine):  # type: ignore[misc]
        def custom_query(self, query_str: str) -> str:
            RAN.append("silent")
            return ""

    silent = CachedQueryEngine(Silent(), cache, index_version="v1")
    RAN.clear()
    for _ in range(2):
        assert silent.query("what?").response == ""
    assert RAN == ["silent"] * 2
    with pytest.raises(SettingsError):
        CachedQueryEngine(object(), cache, index_version="v1")


# A picture and words --------------------------------------------------------------------------------------------------


class Eyes(MockMultiModalEmbedding):  # type: ignore[misc]
    def _get_image_embedding(self, img_file_path: Any) -> list[float]:
        RAN.append("saw")
        picture = Image.open(img_file_path).convert("L").resize((4, 4))
        return [float(x) for x in picture.tobytes()]

    def _get_text_embedding(self, text: str) -> list[float]:
        RAN.append("read")
        return [float(text.lower().count(letter)) for letter in "abcdefghijklmnop"]


def search(picture: list[float] | None, text: list[float] | None, k: int) -> list[NodeWithScore]:
    RAN.append("searched")
    found = f"{picture is not None} {sum(text or [])}"
    return [NodeWithScore(node=TextNode(text=found, id_=str(n)), score=1.0 / (n + 1)) for n in range(k)]


def test_the_joint_retriever_asks_nobody_twice_and_says_where_a_lookup_died(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    Image.effect_noise((20, 10), 50).save(path)
    eyes = Eyes(embed_dim=16, model_name="eyes")
    retriever = JointRetriever(eyes, search, cache, index_version="v1", similarity_top_k=2)
    query = QueryBundle("which dialog?", image_path=str(path))
    first = retriever.retrieve(query)
    assert RAN == ["saw", "read", "searched"]
    assert len(first) == 2
    assert retriever.retrieve(query) == first == asyncio.run(retriever.aretrieve(query))
    assert RAN == ["saw", "read", "searched"]
    located = retriever.locate(QueryBundle("which button?", image_path=str(path)))
    assert located.died is not None
    assert located.died.value == "text"
    assert [hop.name.value for hop in located.hops] == ["picture", "text", "joint", "store"]
    assert retriever.locate(query).died is None
    assert "died at: text" in str(located)
    assert retriever.locator.lookups == 5
    assert len(retriever.retrieve("words alone")) == 2
    assert len(retriever.retrieve(QueryBundle("", image_path=str(path)))) == 2


def test_the_joint_retriever_keeps_versions_searches_and_tenants_apart(cache: Cache) -> None:
    who, eyes, locator = ["a"], Eyes(embed_dim=16, model_name="eyes"), Locator()

    def other(picture: Any, text: Any, k: int) -> list[NodeWithScore]:
        RAN.append("searched")
        return []

    def ask(**options: Any) -> int:
        RAN.clear()
        settings: dict[str, Any] = {"search": search, "index_version": "v1", "tenant": lambda: who[0]} | options
        JointRetriever(eyes, cache=cache, locator=locator, **settings).retrieve("words")
        return RAN.count("searched")

    assert [ask(), ask()] == [1, 0]
    assert ask(index_version="v2") == 1
    assert ask(search=other) == 1
    assert ask(similarity_top_k=3) == 1
    who[0] = "b"
    assert [ask(), ask()] == [1, 0]
    who[0] = ""  # nobody can say: nothing is looked up or stored
    assert [ask(), ask()] == [1, 1]
    with pytest.raises(SettingsError):
        JointRetriever(Letters(embed_dim=3, model_name="l"), search, cache, index_version="v1")


def test_a_model_that_fails_says_so_itself(cache: Cache) -> None:
    class Blind(Eyes):
        def _get_text_embedding(self, text: str) -> list[float]:
            raise ValueError("boom")

    blind = Blind(embed_dim=16, model_name="b")
    retriever = JointRetriever(blind, search, cache, index_version="v1")
    with pytest.raises(ValueError, match="boom"):
        retriever.retrieve("words")


def test_a_cached_embedding_inside_counts_by_its_model(cache: Cache) -> None:
    def retrieve(name: str) -> None:
        embed = CachedEmbedding(Letters(embed_dim=3, model_name=name), cache)
        built = VectorStoreIndex([TextNode(text="x", id_="x")], embed_model=embed)
        CachedRetriever(built.as_retriever(), cache, index_version="v1").retrieve("q")

    retrieve("one")
    before = cache.stats().misses
    retrieve("one")
    assert cache.stats().misses == before
    retrieve("two")
    assert cache.stats().misses > before
