"""Haystack's door against what would be a wrong hit: two components, or inputs, that differ share nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")
pytest.importorskip("haystack")

from haystack import Document, component, default_to_dict
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.joiners import DocumentJoiner
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ByteStream
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret

from mmcache import Cache
from mmcache.integrations.haystack import (
    CacheConfig,
    CachedDocumentEmbedder,
    CachedRetriever,
    CachedTextEmbedder,
    ContentChecker,
    IndexWriter,
    JointRetriever,
)
from mmcache.model.errors import SettingsError, UnversionedModelError


@component
class Embedder:
    def __init__(self, model: str = "m", prefix: str = "", odd: Any = None, **others: Any) -> None:
        self.model, self.prefix, self.odd, self.others = model, prefix, odd, others

    @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator]
    def run(self, text: str, scale: float | None = 2.0) -> dict[str, Any]:
        return {"embedding": [float(len(self.prefix + text)), float(self.others.get("n", 0)), float(scale or 0)]}


@pytest.fixture
def cache() -> Any:
    with Cache(memory="16MiB") as made:
        yield made


def embedded(component: Any, cache: Cache, signature: str | None = None, **inputs: Any) -> Any:
    return CachedTextEmbedder(component, cache, signature=signature).run(text="text", **inputs)["embedding"]


def test_parameters_without_a_name_need_a_signature(cache: Cache) -> None:
    with pytest.raises(UnversionedModelError, match="others"):
        embedded(Embedder(n=1), cache)


def test_a_signature_replaces_only_what_cannot_be_told(cache: Cache) -> None:
    class Odd:
        pass

    one, other = Embedder(prefix="q: ", odd=Odd()), Embedder(prefix="passage: ", odd=Odd())
    assert embedded(one, cache, "v 1") != embedded(other, cache, "v 1")
    token = Secret.from_token("sk-1")  # with which no component can be serialised
    signed = [
        CachedTextEmbedder(made, cache, signature="v 1")._signed.now()
        for made in (OpenAITextEmbedder(api_key=token), OpenAITextEmbedder(api_key=token, prefix="q: "))
    ]
    assert signed[0] != signed[1]
    assert "sk-1" not in str(signed)


def test_none_is_not_a_default_that_is_something(cache: Cache) -> None:
    asked = embedded(Embedder(), cache, "v 1")
    assert embedded(Embedder(), cache, "v 1", scale=None) == [*asked[:2], 0.0] != asked


SCRIPT = """
@component
class Mine:
    def __init__(self, model="mine 1"):
        self.model = model

    @component.output_types(embedding=list[float])
    def run(self, text: str):
        return {"embedding": [%s]}
"""


def scripted(number: str) -> Any:
    module: dict[str, Any] = {"__name__": "__main__", "component": component}
    exec(SCRIPT % number, module)  # noqa: S102 - the source stands above
    return module["Mine"]()


def test_a_component_of_a_script_that_was_edited_is_another(cache: Cache) -> None:
    assert embedded(scripted("1.0"), cache) == [1.0]
    assert embedded(scripted("2.0"), cache) == [2.0]


def test_a_method_that_was_replaced_counts(cache: Cache) -> None:
    patched = scripted("1.0")
    patched.run = lambda text: {"embedding": [5.0]}
    assert embedded(scripted("1.0"), cache) == [1.0]
    assert embedded(patched, cache) == [5.0]


def test_the_server_that_the_environment_names_counts(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    signatures = []
    for address in "http://one/v1", "http://other/v1":
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        embedder = OpenAITextEmbedder()
        embedder.warm_up()  # as each run does, before anything is looked up
        signatures.append(CachedTextEmbedder(embedder, cache)._signed.now())
        embedder.close()
    assert signatures[0] != signatures[1]


class Store:
    def __init__(self, address: Secret, filters: dict[str, Any] | None = None) -> None:
        self.address, self.filters = address, filters

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = default_to_dict(self, address=self.address, filters=self.filters)
        return told


@component
class Retriever:
    def __init__(self, document_store: Store) -> None:
        self.document_store = document_store

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = default_to_dict(self, document_store=self.document_store)
        return told

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, query: str) -> dict[str, Any]:
        store = self.document_store
        return {"documents": [Document(content=f"{store.address.resolve_value()} {store.filters}")]}


def test_a_secret_that_names_a_store_counts_and_is_never_told(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "postgres://user:password@one")
    monkeypatch.setenv("OTHER", "postgres://user:password@other")
    found = []
    for name in "ONE", "OTHER":
        retriever = CachedRetriever(Retriever(Store(Secret.from_env_var(name))), cache, index_version="1")
        found.append([retriever.run(query="q")["documents"][0].content for _ in range(2)])
        assert "password" not in str(retriever._signed.sealed(bytes(32)))
        assert retriever._signed.sealed(bytes(32)) != retriever._signed.sealed(bytes([1]) * 32)  # keyed
    assert found[0][0] != found[1][0]
    monkeypatch.setenv("OTHER", "postgres://user:password@third")
    assert "third" in retriever.run(query="q")["documents"][0].content


def test_a_parameter_that_is_changed_in_place_is_noticed(cache: Cache) -> None:
    filters = {"field": "meta.n", "operator": "==", "value": 1}
    retriever = CachedRetriever(Retriever(Store(Secret.from_env_var("HOME"), filters)), cache, index_version="1")
    before = retriever.run(query="q")["documents"]
    filters["value"] = 2
    assert retriever.run(query="q")["documents"] != before


def test_passages_that_are_embedded_together_are_refused(cache: Cache) -> None:
    @component
    class Late:
        def __init__(self, model: str = "jina-embeddings-v3", late_chunking: bool = False) -> None:
            self.model, self.late_chunking = model, late_chunking

        @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
        def run(self, documents: list[Document]) -> dict[str, Any]:
            return {"documents": [replace(one, embedding=[float(len(documents))]) for one in documents]}

    late = Late()
    embedder = CachedDocumentEmbedder(late, cache)
    texts = [Document(content="a"), Document(content="b")]
    assert embedder.run(documents=texts[:1])["documents"][0].embedding == [1.0]
    late.late_chunking = True  # from now on, nothing is looked up
    assert [one.embedding for one in embedder.run(documents=texts)["documents"]] == [[2.0], [2.0]]
    with pytest.raises(UnversionedModelError, match="neighbours"):
        CachedDocumentEmbedder(Late(late_chunking=True), cache, signature="v 1")


def test_a_writer_reaches_readers_of_every_tenant_and_namespace(tmp_path: Path) -> None:
    store = InMemoryDocumentStore()
    root = str(tmp_path / "cache")
    writer = IndexWriter(
        DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE), index="manual", cache=CacheConfig(root=root)
    )
    realm = CacheConfig(root=root, tenant="acme", namespace="theirs")
    reader = CachedRetriever(InMemoryBM25Retriever(store), realm, index="manual")
    for text in "cat old", "cat new":
        writer.run(documents=[Document(id="1", content=text)])
        assert [reader.run(query="cat")["documents"][0].content for _ in range(2)] == [text] * 2
    reader.close()
    writer.close()


def test_one_picture_with_two_texts_is_two_contents(cache: Cache) -> None:
    checker, blob = ContentChecker(InMemoryDocumentStore(), cache), ByteStream(b"a picture")
    split = checker.run(items=[Document(content=text, blob=blob) for text in ("one", "other", "one")])
    assert (len(split["misses"]), len(split["duplicates"])) == (2, 1)


@pytest.mark.parametrize("odd", [{"embedding": [1, 2]}, {"meta": {"made": object()}}], ids=["vector", "meta"])
def test_what_cannot_be_kept_is_searched_once_and_handed_out(cache: Cache, odd: dict[str, Any]) -> None:
    searches = 0

    @component
    class Searching:
        @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
        def run(self, query_embedding: list[float], top_k: int | None = None) -> dict[str, Any]:
            nonlocal searches
            searches += 1
            return {"documents": [Document(content="x", **odd)]}

    @component
    class Seeing:
        def __init__(self, model: str = "s", file_path_meta_field: str = "file_path") -> None:
            self.model, self.file_path_meta_field = model, file_path_meta_field

        @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
        def run(self, documents: list[Document]) -> dict[str, Any]:
            return {"documents": [replace(one, embedding=[1.0]) for one in documents]}

    parts = Seeing(), Embedder(), Searching(), Searching(), DocumentJoiner()
    joint = JointRetriever(*parts, cache, index_version="1", text_signature="v 1")
    for count in 1, 2:
        assert joint.run(words="w")["documents"][0].content == "x"
        assert searches == count


@pytest.mark.parametrize("address", ["redis://u:p@h", "redis://u:p/w@h", "redis://:p@h", "redis://h?password=p"])
def test_an_address_with_a_password_has_no_place_in_a_pipeline_file(address: str) -> None:
    with pytest.raises(SettingsError, match="password"):
        CacheConfig(root="cache", shared=address)
