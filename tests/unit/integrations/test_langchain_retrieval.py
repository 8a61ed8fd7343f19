"""The door of LangChain: embeddings, the byte store, retrievers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

pytest.importorskip("langchain_core", reason="needs langchain-core")

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import BaseModel, SecretStr

from mmcache import Cache, UnversionedModelError
from mmcache.integrations.langchain import (
    CachedRetriever,
    JointRetriever,
    MMCacheStore,
    cached_embeddings,
    from_config,
)
from mmcache.model.errors import InvalidInputError, MMCacheError, SettingsError

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache() as cache:
        yield cache


class Letters(BaseModel, Embeddings):  # type: ignore[misc]
    model: str = "letters-1"
    dimensions: int = 3
    api_key: SecretStr = SecretStr("sk-secret")
    chunk_size: int = 100

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        RAN.append(list(texts))
        return [[float(sum(text.encode("utf-8", "replace")) % 89), float(len(text)), 0.1] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        RAN.append(text)
        return [float(len(text)), 2.0, 0.1]


class Eyes(Letters):
    def embed_image(self, uris: list[str], **options: Any) -> list[list[float]]:
        RAN.append(list(uris))
        return [[float(x) for x in Image.open(uri).convert("L").resize((2, 2)).tobytes()] for uri in uris]


class Fixed(BaseRetriever):  # type: ignore[misc]
    found: list[Any] = []  # noqa: RUF012 - pydantic copies it
    k: int = 2

    def _get_relevant_documents(self, query: str, *, run_manager: Any, style: str = "") -> list[Document]:
        RAN.append((query, style))
        return [document.model_copy() for document in self.found]


def test_only_misses_reach_the_model_and_queries_are_no_documents(cache: Cache) -> None:
    embed, plain = cached_embeddings(Letters(), cache), Letters()
    assert embed.embed_documents(["a", "b", "a"]) == plain.embed_documents(["a", "b", "a"])
    assert RAN[:1] == [["a", "b"]]
    RAN.clear()
    assert embed.embed_documents(["b", "c", "a"])[1] == [10.0, 1.0, 0.1]
    assert RAN == [["c"]]
    assert embed.embed_query("a") == embed.embed_query("a") != embed.embed_documents(["a"])[0]
    assert RAN == [["c"], "a"]
    assert asyncio.run(embed.aembed_documents(["a", "d"])) == embed.embed_documents(["a", "d"])
    assert asyncio.run(embed.aembed_query("a")) == [1.0, 2.0, 0.1]
    assert RAN == [["c"], "a", ["d"]]
    embed.embed_query("a")[0] = 1e9
    assert embed.embed_query("a")[0] == 1.0


def test_another_model_setting_tenant_or_namespace_is_another_key(cache: Cache) -> None:
    cached_embeddings(Letters(), cache).embed_documents(["a"])
    cached_embeddings(Letters(api_key=SecretStr("sk-other")), cache).embed_documents(["a"])
    assert len(RAN) == 1
    cached_embeddings(Letters(model="letters-2"), cache).embed_documents(["a"])
    cached_embeddings(Letters(dimensions=2), cache).embed_documents(["a"])
    cached_embeddings(Letters(), cache, tenant="acme").embed_documents(["a"])
    cached_embeddings(Letters(), cache, namespace="else").embed_documents(["a"])
    assert len(RAN) == 5
    model = Letters()
    embed = cached_embeddings(model, cache)
    model.dimensions = 7
    embed.embed_documents(["a"])
    assert len(RAN) == 6


def test_a_model_without_a_name_is_refused_unless_somebody_says_which_it_is(cache: Cache) -> None:
    with pytest.raises(UnversionedModelError, match="signature="):
        cached_embeddings(Letters(model=""), cache)
    cached_embeddings(Letters(model=""), cache, signature="mine 1").embed_query("a")
    cached_embeddings(Letters(model=""), cache, signature="mine 2").embed_query("a")
    assert len(RAN) == 2
    with pytest.raises(SettingsError):
        cached_embeddings(object(), cache)


def test_pictures_count_by_their_pixels(cache: Cache, tmp_path: Path) -> None:
    embed = cached_embeddings(Eyes(), cache)
    picture = Image.effect_noise((20, 10), 50)
    paths = [str(tmp_path / name) for name in ("one.png", "two.bmp")]
    for path in paths:
        picture.save(path)
    first = embed.embed_image(paths)
    assert first[0] == first[1] == Eyes().embed_image(paths)[0]
    RAN.clear()
    assert embed.embed_image([paths[1]]) == first[:1]
    assert RAN == []
    Image.new("L", (20, 10)).save(paths[0])
    assert embed.embed_image([paths[0]]) != first[:1]
    assert not hasattr(cached_embeddings(Letters(), cache), "embed_image")


def test_no_failure_of_the_cache_fails_a_call() -> None:
    cache = Cache()
    embed, store = cached_embeddings(Letters(), cache), MMCacheStore(cache, "letters")
    retriever = CachedRetriever(Fixed(), cache, index_version="v1")
    cache.close()
    assert embed.embed_query("a") == [1.0, 2.0, 0.1]
    assert embed.embed_documents(["\ud800"])[0][1] == 1.0
    store.mset([("a", b"1")])
    assert store.mget(["a"]) == [None]
    assert retriever.invoke("q") == []


# The byte store -------------------------------------------------------------------------------------------------------


def test_the_store_is_a_store(cache: Cache) -> None:
    store = MMCacheStore(cache, "letters 1")
    store.mset([("a", b"1"), ("ab", b"\x00\xff" * 1000), ("b", b"")])
    assert store.mget(["b", "a", "c", "ab"]) == [b"", b"1", None, b"\x00\xff" * 1000]
    assert sorted(store.yield_keys()) == ["a", "ab", "b"]
    assert sorted(store.yield_keys(prefix="a")) == ["a", "ab"]
    store.mdelete(["a", "c"])
    assert store.mget(["a", "b"]) == [None, b""]
    assert MMCacheStore(cache, "letters 2").mget(["b"]) == [None]
    assert MMCacheStore(cache, "letters 1", tenant="acme").mget(["b"]) == [None]
    assert list(MMCacheStore(cache, "letters 1", tenant="acme").yield_keys()) == []
    lost = MMCacheStore(cache, "letters 1", tenant=lambda: None)
    lost.mset([("x", b"1")])
    lost.mdelete(["b"])
    assert lost.mget(["x", "b"]) == [None, None]
    assert list(lost.yield_keys()) == []
    with pytest.raises(SettingsError):
        MMCacheStore(cache, "")


async def test_the_store_is_an_async_store_too(cache: Cache) -> None:
    store = MMCacheStore(cache, "letters 1")
    await store.amset([("a", b"1")])
    assert await store.amget(["a", "b"]) == [b"1", None]
    assert [name async for name in store.ayield_keys()] == ["a"]
    await store.amdelete(["a"])
    assert await store.amget(["a"]) == [None]


def test_langchain_own_embeddings_cache_works_on_our_store(tmp_path: Path) -> None:
    embeddings = pytest.importorskip("langchain_classic.embeddings", reason="needs langchain-classic")
    for _ in range(2):
        with Cache(tmp_path) as cache:
            store = MMCacheStore(cache, "letters-1")
            backed = embeddings.CacheBackedEmbeddings.from_bytes_store(Letters(), store, key_encoder="sha256")
            assert backed.embed_documents(["a", "b"]) == [[8.0, 1.0, 0.1], [9.0, 1.0, 0.1]]
    assert RAN == [["a", "b"]]


def test_langchain_own_embeddings_cache_takes_one_models_vectors_for_anothers(cache: Cache) -> None:
    """The hole that a store of ours closes by being one model's: its key is the text and a namespace that is empty."""
    embeddings = pytest.importorskip("langchain_classic.embeddings", reason="needs langchain-classic")
    stores = pytest.importorskip("langchain_core.stores")
    build = embeddings.CacheBackedEmbeddings.from_bytes_store
    theirs = stores.InMemoryByteStore()
    build(Letters(), theirs, key_encoder="sha256").embed_documents(["a"])
    build(Letters(model="letters-2"), theirs, key_encoder="sha256").embed_documents(["a"])
    assert len(RAN) == 1
    for name in ("letters-1", "letters-2"):
        build(Letters(model=name), MMCacheStore(cache, name), key_encoder="sha256").embed_documents(["a"])
    assert len(RAN) == 3


# Retrievers -----------------------------------------------------------------------------------------------------------


def test_a_second_query_asks_neither_model_nor_store(cache: Cache) -> None:
    store = InMemoryVectorStore(Letters())
    store.add_documents([Document(page_content=text, metadata={"n": [1]}, id=text) for text in "abc"])
    behind = store.as_retriever(search_kwargs={"k": 2})
    retriever = CachedRetriever(behind, cache, index_version="v1")
    first = retriever.invoke("a")
    assert first == behind.invoke("a")
    RAN.clear()
    assert retriever.invoke("a") == first == asyncio.run(retriever.ainvoke("a"))
    assert retriever.batch(["a", "a"]) == [first, first]
    assert (retriever | RunnableLambda(len)).invoke("a") == 2
    assert RAN == []
    first[0].metadata["n"].append(2)
    assert retriever.invoke("a")[0].metadata == {"n": [1]}


def test_everything_that_may_change_a_result_is_another_key(cache: Cache) -> None:
    def ask(query: str = "a", version: str = "v1", model: str = "letters-1", **settings: Any) -> int:
        store = InMemoryVectorStore(Letters(model=model))
        store.add_documents([Document(page_content=text, id=text) for text in "abc"])
        RAN.clear()
        behind = store.as_retriever(**({"search_kwargs": {"k": 2}} | settings))
        CachedRetriever(behind, cache, index_version=version).invoke(query)
        return len(RAN)

    changes: list[dict[str, Any]] = [
        {}, {"query": "A"}, {"version": "v2"}, {"model": "letters-2"}, {"search_kwargs": {"k": 1}},
        {"search_type": "mmr"}, {"search_kwargs": {"k": 2, "filter": _first}},
        {"search_kwargs": {"k": 2, "filter": _second}},
    ]  # fmt: skip
    assert [ask(**change) for change in changes] == [1] * len(changes)
    assert [ask(**change) for change in changes] == [0] * len(changes)


def _first(document: Document) -> bool:
    return bool(document.page_content < "b")


def _second(document: Document) -> bool:
    return bool(document.page_content > "b")


def test_arguments_of_a_call_count(cache: Cache) -> None:
    retriever = CachedRetriever(Fixed(), cache, index_version="v1")
    for style in ("x", "y", "x"):
        retriever.invoke("q", style=style)
    assert RAN == [("q", "x"), ("q", "y")]
    for _ in range(2):
        retriever.invoke("q", style=object())
    assert len(RAN) == 4


def test_what_changed_meanwhile_or_would_come_back_otherwise_is_not_kept(cache: Cache) -> None:
    class Own(Document):  # type: ignore[misc]
        pass

    for found in ([Own(page_content="x")], [Document(page_content="x", metadata={"t": (1, 2)})]):
        RAN.clear()
        retriever = CachedRetriever(Fixed(found=found), cache, index_version=f"{found[0].metadata}")
        for _ in range(2):
            assert type(retriever.invoke("q")[0]) is type(found[0])
        assert len(RAN) == 2
    version = iter(["v1", "v2", "v2", "v2", "v2", "v2"])
    moving = CachedRetriever(Fixed(), cache, index_version=lambda: next(version))
    RAN.clear()
    for _ in range(3):
        moving.invoke("q")
    assert len(RAN) == 2


def test_tenants_come_from_the_configuration_and_forget_erases(cache: Cache) -> None:
    retriever = CachedRetriever(Fixed(), cache, index_version="v1", tenant=from_config())

    def ask(who: str | None) -> int:
        before = len(RAN)
        config: Any = {"configurable": {"tenant": who}} if who else None
        retriever.invoke("q", config)
        asyncio.run(retriever.ainvoke("q", config))
        return len(RAN) - before

    assert [ask("a"), ask("a"), ask("b"), ask("b"), ask(None)] == [1, 0, 1, 0, 2]
    assert retriever.forget() == 0  # nobody asks for it
    plain = CachedRetriever(Fixed(), cache, index_version="v1")
    plain.invoke("q")
    assert plain.forget() == 1


def test_errors_pass_and_wrong_things_are_refused(cache: Cache) -> None:
    class Broken(Fixed):
        def _get_relevant_documents(self, query: str, *, run_manager: Any, style: str = "") -> list[Document]:
            raise MMCacheError("its own")

    with pytest.raises(MMCacheError, match="its own"):
        CachedRetriever(Broken(), cache, index_version="v1").invoke("q")
    wrongs: list[dict[str, Any]] = [{"index_version": ""}, {"index_version": "v1", "signature": ""}]
    for wrong in wrongs:
        with pytest.raises(SettingsError):
            CachedRetriever(Fixed(), cache, **wrong)
    with pytest.raises(SettingsError):
        CachedRetriever(object(), cache, index_version="v1")
    CachedRetriever(Fixed(), cache, index_version="v1", signature="fixed 1").invoke("q")


def search(picture: list[float] | None, text: list[float] | None, k: int) -> list[Document]:
    RAN.append("searched")
    return [Document(page_content=f"{picture is not None} {text} {n}", id=str(n)) for n in range(k)]


def test_the_joint_retriever_asks_nobody_twice_and_says_where_a_lookup_died(cache: Cache, tmp_path: Path) -> None:
    path = str(tmp_path / "one.png")
    Image.effect_noise((20, 10), 50).save(path)
    retriever = JointRetriever(Eyes(), search, cache, index_version="v1", k=2)
    query = {"text": "which dialog?", "image": path}
    first = retriever.invoke(query)
    assert len(first) == 2
    assert len(RAN) == 3
    assert retriever.invoke(query) == first == asyncio.run(retriever.ainvoke(query))
    assert len(RAN) == 3
    located = retriever.locate({"text": "which button?", "image": path})
    assert located.died is not None
    assert located.died.value == "text"
    assert retriever.locate(query).died is None
    assert retriever.locator.lookups == 5
    assert len(retriever.invoke("words alone")) == len(retriever.invoke({"image": path})) == 2
    other = JointRetriever(Eyes(), search, cache, index_version="v2", k=2)
    RAN.clear()
    other.invoke(query)
    assert RAN == ["searched"]  # embeddings do not depend on the version
    for wrong in ({}, {"words": "x"}, 3):
        with pytest.raises(InvalidInputError):
            retriever.invoke(wrong)
    with pytest.raises(SettingsError):
        JointRetriever(Letters(), search, cache, index_version="v1")


def test_the_joint_retriever_keeps_tenants_apart(cache: Cache) -> None:
    retriever = JointRetriever(Eyes(), search, cache, index_version="v1", tenant=from_config())

    def ask(who: str) -> int:
        RAN.clear()
        retriever.invoke("words", config={"configurable": {"tenant": who}})
        return RAN.count("searched")

    assert [ask("a"), ask("a"), ask("b"), ask("b")] == [1, 0, 1, 0]
    assert [ask(""), ask("")] == [1, 1]  # nobody can say: nothing is looked up or stored
