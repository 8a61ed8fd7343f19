"""Other people's answer caches, as they are: GPTCache's recipes for questions about pictures, LiteLLM, LangChain.

Each runs its own code with our embeddings where it takes any. They are imported here only (`mmcache[semantic-peers]`).
Run with `LITELLM_LOCAL_MODEL_COST_MAP=True`: LiteLLM else asks the network for prices when it is imported, and for 20 s
where there is none.
"""

from __future__ import annotations

import atexit
import base64
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np

from mmcache.lab.semantic_contender import Contender, PictureVector, TextVector
from mmcache.lab.semantic_stream import Request, picture
from mmcache.model.errors import AssetError

INSTALL = "python -m pip install 'mmcache[semantic-peers]'"
MOST_STORED = 1 << 20
"""GPTCache keeps 1 000 answers by default."""
LITELLM_THRESHOLD = 0.8
"""`similarity_threshold` of the example in LiteLLM's documentation."""


def need(*modules: str) -> None:
    """Raises `AssetError` where one is not installed. GPTCache would else install it by itself."""
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise AssetError(f"not installed: {', '.join(missing)}; run `{INSTALL}`")


class _GPTCache:
    """GPTCache 0.1 with sqlite and faiss, through its own `adapt`: what its adapters for models call."""

    def __init__(
        self, name: str, pre: Callable[..., Any], embed: Callable[..., Any], evaluation: Any, dimension: int, deps: bool
    ) -> None:
        from gptcache import Cache
        from gptcache.manager import CacheBase, VectorBase, get_data_manager

        self.name = name
        folder = tempfile.TemporaryDirectory(prefix="mmcache-peer-")
        atexit.register(folder.cleanup)  # before GPTCache registers that it writes its index at exit, so after that
        self._deps = deps
        self.cache = Cache()
        place = folder.name
        manager = get_data_manager(
            CacheBase("sqlite", sql_url=f"sqlite:///{place}/sqlite.db"),
            VectorBase("faiss", dimension=dimension, index_path=f"{place}/faiss.index"),
            max_size=MOST_STORED,
        )
        self._manager = manager
        self.cache.init(
            pre_embedding_func=pre, embedding_func=embed, data_manager=manager, similarity_evaluation=evaluation
        )

    def ask(self, request: Request, compute: Callable[[], str]) -> str:
        """As GPTCache's adapters do: the picture and the question go along as `deps` where the recipe has them."""
        from gptcache.adapter.adapter import adapt
        from gptcache.manager.scalar_data.base import DataType, Question

        deps = [
            {"name": "text", "data": request.text, "dep_type": DataType.STR},
            {"name": "image", "data": request.name, "dep_type": DataType.STR},
        ]

        def store(reply: str, update: Callable[..., Any], *_: Any, **__: Any) -> str:
            update(reply, question=Question.from_dict({"content": "", "deps": deps})) if self._deps else update(reply)
            return reply

        reply: str = adapt(
            lambda *_, **__: compute(),
            str,
            store,
            text=request.text,
            image=request.name,
            cache_obj=self.cache,
            cache_context={"deps": deps} if self._deps else {},
        )
        return reply

    def close(self) -> None:
        """Close its files, which are removed at exit."""
        self._manager.close()


def gptcache_vqa(text: TextVector, image: PictureVector) -> Contender:
    """Its example `integrate/replicate/vqa.py`: nearest picture, whatever its distance; then its question by cosine."""
    need("gptcache", "faiss", "sqlalchemy")
    from gptcache.similarity_evaluation.np import NumpyNormEvaluation

    return _GPTCache(
        "gptcache/vqa",
        pre=lambda data, **_: data["image"],
        embed=lambda name, **_: image(name),
        evaluation=NumpyNormEvaluation(enable_normal=True, question_embedding_function=text),
        dimension=384,
        deps=True,
    )


def gptcache_demo(image: PictureVector) -> Contender:
    """Its example `vqa_demo.py --no-map`: nearest picture within a distance; the question is not looked at."""
    need("gptcache", "faiss", "sqlalchemy")
    from gptcache.similarity_evaluation.distance import SearchDistanceEvaluation

    return _GPTCache(
        "gptcache/vqa-demo",
        pre=lambda data, **_: data["image"],
        embed=lambda name, **_: image(name),
        evaluation=SearchDistanceEvaluation(),
        dimension=384,
        deps=True,
    )


def gptcache_text(text: TextVector) -> Contender:
    """Its `init_similar_cache` as shipped: the last words of the user, by distance. Pictures are not looked at."""
    need("gptcache", "faiss", "sqlalchemy")
    from gptcache.similarity_evaluation.distance import SearchDistanceEvaluation

    return _GPTCache(
        "gptcache/text",
        pre=lambda data, **_: data["text"],
        embed=lambda words, **_: text(words),
        evaluation=SearchDistanceEvaluation(),
        dimension=384,
        deps=False,
    )


def _messages(request: Request) -> list[dict[str, Any]]:
    """As in OpenAI's interface."""
    data = base64.b64encode(picture(request.picture, request.variant)).decode()
    kind = "jpeg" if request.variant == "jpeg" else "png"
    image = {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}
    return [{"role": "user", "content": [{"type": "text", "text": request.text}, image]}]


class LiteLLM:
    """LiteLLM's `Cache(type="local")`: a hash of all that is sent."""

    name = "litellm/key"

    def __init__(self) -> None:
        need("litellm")
        from litellm.caching.caching import Cache

        self.cache = Cache(type="local")

    def ask(self, request: Request, compute: Callable[[], str]) -> str:
        """By its own key, in its own store."""
        call = {"model": "oracle", "messages": _messages(request)}
        found = self.cache.get_cache(**call)
        if found is not None:
            return str(found["reply"])
        reply = compute()
        self.cache.add_cache(msgspec.json.encode({"reply": reply}).decode(), **call)  # it reads JSON
        return reply

    def close(self) -> None:
        """Nothing to close."""


class LiteLLMSemantic:
    """LiteLLM's semantic cache: its own text of a request; its vector search (a server) is imitated by an exact one."""

    name = "litellm/semantic"

    def __init__(self, text: TextVector) -> None:
        need("litellm")
        self._text = text
        self._vectors: list[Any] = []
        self._replies: list[str] = []

    def ask(self, request: Request, compute: Callable[[], str]) -> str:
        """The nearest text's answer where the cosine reaches the documented threshold."""
        from litellm.litellm_core_utils.prompt_templates.common_utils import get_semantic_cache_prompt_from_messages

        vector = self._text(get_semantic_cache_prompt_from_messages(_messages(request)))
        if self._vectors:
            near = np.asarray(self._vectors) @ vector
            if near.max() >= LITELLM_THRESHOLD:
                return self._replies[int(near.argmax())]
        reply = compute()
        self._vectors.append(vector)
        self._replies.append(reply)
        return reply

    def close(self) -> None:
        """Nothing to close."""


class LangChain:
    """langchain-core: a chat model with `InMemoryCache`, keyed by its own serialised messages."""

    name = "langchain/key"

    def __init__(self) -> None:
        need("langchain_core")
        from langchain_core.caches import InMemoryCache
        from langchain_core.language_models.chat_models import SimpleChatModel

        class Oracle(SimpleChatModel):  # type: ignore[misc]
            """Answers with what it is handed."""

            compute: Any = None

            @property
            def _llm_type(self) -> str:
                return "oracle"

            def _get_llm_string(self, stop: Any = None, **_: Any) -> str:
                return "oracle"  # by default it would name `compute`, another one each time

            def _call(self, *_: Any, **__: Any) -> str:
                return str(self.compute())

        self._model = Oracle(cache=InMemoryCache())

    def ask(self, request: Request, compute: Callable[[], str]) -> str:
        """Through the model's own `invoke`."""
        from langchain_core.messages import HumanMessage

        self._model.compute = compute
        return str(self._model.invoke([HumanMessage(content=_messages(request)[0]["content"])]).content)

    def close(self) -> None:
        """Nothing to close."""


def makers(text: TextVector, image: PictureVector) -> Mapping[str, Callable[[], Contender]]:
    """All of them by name; each raises `AssetError` where its package is not installed."""
    return {
        "gptcache/vqa": lambda: gptcache_vqa(text, image),
        "gptcache/vqa-demo": lambda: gptcache_demo(image),
        "gptcache/text": lambda: gptcache_text(text),
        "litellm/semantic": lambda: LiteLLMSemantic(text),
        "litellm/key": LiteLLM,
        "langchain/key": LangChain,
    }


def gptcache_filled(texts: Sequence[str], text: TextVector) -> Callable[[str], object]:
    """GPTCache with sqlite and faiss, holding answers to `texts`; a lookup in it. Its embeddings are known already."""
    need("gptcache", "faiss", "sqlalchemy")
    from gptcache.adapter.api import get
    from gptcache.processor.pre import get_prompt
    from gptcache.similarity_evaluation.distance import SearchDistanceEvaluation

    peer = _GPTCache(
        "gptcache", get_prompt, lambda words, **_: text(words), SearchDistanceEvaluation(), dimension=384, deps=False
    )
    peer.cache.import_data(questions=list(texts), answers=[f"answer {place}" for place in range(len(texts))])
    return lambda words: get(words, cache_obj=peer.cache)
