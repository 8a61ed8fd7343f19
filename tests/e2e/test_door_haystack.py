"""Haystack's door, end to end: pipelines in files, two processes, a real encoder, and no model call after a restart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("haystack")

from mmcache.lab.models import TextEncoder
from mmcache.model.errors import AssetError

COMPONENTS = '''
"""A user's own components: multilingual-e5-small behind Haystack's two interfaces. Calls are written down."""
from dataclasses import replace
from pathlib import Path

from haystack import Document, component
from mmcache.lab.models import TextEncoder

CALLS = Path(__file__).with_name("calls.log")


def embed(texts):
    with CALLS.open("a") as log:
        log.writelines(f"{text}\\n" for text in texts)
    return [[float(one) for one in vector] for vector in TextEncoder().encode_batch(list(texts))]


@component
class E5Documents:
    def __init__(self, model: str = "multilingual-e5-small q4", meta_fields_to_embed: list[str] | None = None):
        self.model, self.meta_fields_to_embed = model, meta_fields_to_embed or []

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]):
        fields = self.meta_fields_to_embed
        texts = ["passage: " + "; ".join([*(str(d.meta[f]) for f in fields), d.content]) for d in documents]
        return {"documents": [replace(d, embedding=v) for d, v in zip(documents, embed(texts))]}


@component
class E5Text:
    def __init__(self, model: str = "multilingual-e5-small q4"):
        self.model = model

    @component.output_types(embedding=list[float])
    def run(self, text: str):
        return {"embedding": embed(["query: " + text])[0]}
'''
FIRST = """
from pathlib import Path

from haystack import Pipeline
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy

from components import E5Documents, E5Text
from mmcache.integrations.haystack import *

config = CacheConfig(root="cache")
store = InMemoryDocumentStore(index="manual")

indexing = Pipeline()
indexing.add_component("embed", CachedDocumentEmbedder(E5Documents(meta_fields_to_embed=["title"]), config))
writer = DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE)
indexing.add_component("write", IndexWriter(writer, index="manual", cache=config))
indexing.connect("embed.documents", "write.documents")

asking = Pipeline()
asking.add_component("embed", CachedTextEmbedder(E5Text(), config))
asking.add_component("search", CachedRetriever(InMemoryEmbeddingRetriever(store, top_k=2), config, index="manual"))
asking.connect("embed.embedding", "search.query_embedding")

Path("indexing.yaml").write_text(indexing.dumps())
Path("asking.yaml").write_text(asking.dumps())
"""
SECOND = """
import json
from pathlib import Path

from haystack import Document, Pipeline

first, asked = json.loads(Path("asked.json").read_text())
indexing = Pipeline.loads(Path("indexing.yaml").read_text(), allowed_modules=["mmcache.*", "components"])
asking = Pipeline.loads(Path("asking.yaml").read_text(), allowed_modules=["mmcache.*", "components"])
documents = [
    Document(content="Press the red button to stop the engine.", meta={"title": "Safety", "page": 1}),
    Document(content="The oil is changed once a year.", meta={"title": "Care", "page": 2}),
    Document(content="Der rote Knopf hält den Motor an.", meta={"title": "Sicherheit", "page": 3}),
]


def ask():
    found = asking.run({"embed": {"text": "How do I stop it?"}})["search"]["documents"]
    return [[one.id, one.content, one.meta, one.score] for one in found]


told = {}
if first:
    told["written"] = indexing.run({"embed": {"documents": documents}})
told["found"] = ask()
if asked:
    told["written"] = indexing.run({"embed": {"documents": documents}})  # the store of this process is empty
    told["again"] = ask()
asking.close()
indexing.close()
print(json.dumps(told))
"""


def run(folder: Path, script: str, told: list[bool] | None = None) -> Any:
    (folder / "asked.json").write_text(json.dumps(told))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | {"HAYSTACK_TELEMETRY_ENABLED": "False"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if told is not None else None


@pytest.mark.slow
def test_a_pipeline_hits_after_a_restart(tmp_path: Path) -> None:
    try:
        TextEncoder().encode_batch(["x"])
    except AssetError as error:
        pytest.skip(str(error))
    (tmp_path / "components.py").write_text(COMPONENTS)
    run(tmp_path, FIRST)
    cold = run(tmp_path, SECOND, [True, False])
    assert cold["written"] == {"write": {"documents_written": 3}}
    assert [page for _, _, meta, _ in cold["found"] for page in [meta["page"]]] in ([1, 3], [3, 1])
    calls = (tmp_path / "calls.log").read_text().splitlines()
    assert len(calls) == 4
    warm = run(tmp_path, SECOND, [False, True])
    assert warm["found"] == cold["found"]  # from the cache: this process's store is empty
    assert warm["written"] == cold["written"]
    assert warm["again"] == cold["found"]  # searched anew, since the index was written to
    assert (tmp_path / "calls.log").read_text().splitlines() == calls
