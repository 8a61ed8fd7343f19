"""Documents as values: each comes back as it was, or is not stored at all."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")  # nothing leaves this machine
pytest.importorskip("haystack")

from haystack import Document, component
from haystack.dataclasses import ByteStream, SparseEmbedding

from mmcache import Cache
from mmcache.integrations.haystack import CachedDocumentEmbedder
from mmcache.integrations.haystack.door import NotStored
from mmcache.integrations.haystack.freezing import frozen_documents, frozen_vector, thawed_documents

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), FLOATS, st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)
DOCUMENTS = st.builds(
    Document,
    content=st.one_of(st.none(), st.text(max_size=20)),
    meta=st.dictionaries(st.text("abc é", min_size=1, max_size=3), PLAIN, max_size=3),
    score=st.one_of(st.none(), FLOATS),
    blob=st.one_of(st.none(), st.builds(ByteStream, data=st.binary(max_size=20), mime_type=st.just("image/png"))),
    embedding=st.one_of(st.none(), st.lists(FLOATS, min_size=1, max_size=20)),
    sparse_embedding=st.one_of(
        st.none(), st.just(SparseEmbedding(indices=[1, 7], values=[0.1, 1e300])), st.just(SparseEmbedding([], []))
    ),
)


@given(st.lists(DOCUMENTS, max_size=3))
def test_documents_come_back_as_they_were(documents: list[Any]) -> None:
    value = frozen_documents({"documents": documents})
    if isinstance(value, NotStored):
        assert value.value == {"documents": documents}
        return
    with Cache(memory="4MiB") as cache:
        key = cache.key("x", modality="text", signature="test 1")
        found = thawed_documents(cache.get_or_compute(key, lambda: value))["documents"]
        again = thawed_documents(cache.get_or_compute(key, lambda: value))["documents"]
    assert found == again == documents
    assert [one.id for one in again] == [one.id for one in documents]
    assert [repr(one.to_dict()) for one in again] == [repr(one.to_dict()) for one in documents]  # types, and -0.0


@given(st.lists(st.one_of(FLOATS, st.floats(width=32, allow_nan=False)), min_size=1))
def test_vectors_come_back_to_the_last_bit(vector: list[float]) -> None:
    kept = frozen_vector(vector)
    if kept is not None:
        assert list(map(repr, kept.tolist())) == list(map(repr, vector))


@pytest.mark.parametrize("vector", [None, [], [1], [1.0, True], [float("nan")], [float("inf")], (1.0,), ["a"]], ids=str)
def test_what_is_no_embedding_is_not_kept(vector: Any) -> None:
    assert frozen_vector(vector) is None


def test_a_picture_that_changes_while_it_is_embedded_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"before")

    @component
    class Slow:
        def __init__(self, model: str = "slow 1", file_path_meta_field: str = "file_path") -> None:
            self.model, self.file_path_meta_field = model, file_path_meta_field

        @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
        def run(self, documents: list[Document]) -> dict[str, Any]:
            file.write_bytes(b"after")
            return {"documents": [replace(one, embedding=[float(len(file.read_bytes()))]) for one in documents]}

    with Cache(memory="4MiB") as cache:
        embedder = CachedDocumentEmbedder(Slow(), cache)
        asked = [Document(meta={"file_path": str(file)})]
        assert embedder.run(documents=asked)["documents"][0].embedding == [5.0]
        file.write_bytes(b"before")
        misses = cache.stats().hits
        embedder.run(documents=asked)
        assert cache.stats().hits == misses


def test_threads_with_the_same_documents_embed_them_once() -> None:
    seen: list[str] = []
    both = threading.Barrier(2)

    @component
    class Counting:
        def __init__(self, model: str = "counting 1", meta_fields_to_embed: list[str] | None = None) -> None:
            self.model, self.meta_fields_to_embed = model, meta_fields_to_embed

        @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
        def run(self, documents: list[Document]) -> dict[str, Any]:
            seen.extend(str(one.content) for one in documents)
            return {"documents": [replace(one, embedding=[float(len(str(one.content)))]) for one in documents]}

    with Cache(memory="4MiB") as cache:
        embedder = CachedDocumentEmbedder(Counting(), cache)
        found: list[Any] = []

        def run(texts: list[str]) -> None:
            both.wait()
            found.extend(embedder.run(documents=[Document(content=text) for text in texts])["documents"])

        threads = [threading.Thread(target=run, args=(texts,)) for texts in (["a", "bb"], ["bb", "a"])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(seen) == ["a", "bb"]
    assert sorted((one.content, one.embedding) for one in found) == [("a", [1.0])] * 2 + [("bb", [2.0])] * 2
