"""LiteLLM and GPTCache, each used as its documentation shows for chat. They are imported here only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mmcache.lab.gateways.answering import KEYS, texts
from mmcache.lab.gateways.doors import Http
from mmcache.lab.gateways.peers_redisvl import NAMED, index_name, module
from mmcache.lab.gateways.said import Said, joined, whole
from mmcache.lab.peers_semantic import LITELLM_THRESHOLD, need
from mmcache.model.errors import AssetError


class LiteLLM:
    """`litellm.completion` with `litellm.cache`: `local` in memory, `redis` in a server; `tenants` names each tenant;
    `semantic` goes by the embedding of the messages' text.

    A hit of LiteLLM 1.110 imports parts of its proxy, so `fastapi` and `opentelemetry-sdk` must be there: the plain
    package raises `ModuleNotFoundError` in place of the answer.
    """

    def __init__(self, upstream: str, kind: str, server: str, folder: Path) -> None:
        need("litellm", "fastapi", "opentelemetry")
        import litellm
        from litellm.caching.caching import Cache

        litellm.suppress_debug_info = True
        if kind == "redis":
            host, _, port = server.partition(":")
            litellm.cache = Cache(type="redis", host=host, port=port, namespace=str(folder))
        elif kind == "semantic":
            if module() is None:
                raise AssetError(NAMED)
            need("redisvl", "redis")
            litellm.api_base, litellm.api_key = f"{upstream}/v1", KEYS[0]  # whom it asks for embeddings
            litellm.cache = Cache(
                type="redis-semantic", redis_url=f"redis://{server}", similarity_threshold=LITELLM_THRESHOLD,
                redis_semantic_cache_embedding_model="openai/e5", redis_semantic_cache_index_name=index_name(folder),
            )  # fmt: skip
        else:
            litellm.cache = Cache(type="local")
        self._litellm, self._address, self._tenants = litellm, f"{upstream}/v1", kind == "tenants"

    def ask(self, body: dict[str, Any], key: str, *, cached: bool) -> Said:
        """Through its OpenAI-compatible provider."""
        call = body | {"model": f"openai/{body['model']}", "api_base": self._address, "api_key": key}
        if not cached:  # `caching=False` stores the answer nevertheless
            call["cache"] = {"no-cache": True, "no-store": True}
        elif self._tenants:
            call["cache"] = {"namespace": key}
        found = self._litellm.completion(**call, caching=True, num_retries=0)
        if not body.get("stream"):
            return whole(found.model_dump())
        return joined([chunk.model_dump() for chunk in found])

    def close(self) -> None:
        """Nothing to close."""


class GPTCache:
    """`gptcache.adapter.api`: `get`, and on a miss ask and `put`. An answer is stored with all that it says.

    `text`: the prompt is the last message's text, compared exactly; `content`: that whole message with its pictures, as
    JSON; `similar`: the text's embedding, as `init_similar_cache` sets it up.
    """

    def __init__(self, upstream: str, kind: str, folder: Path) -> None:
        need("gptcache", "faiss", "sqlalchemy")
        from gptcache import Cache
        from gptcache.adapter.api import get, put
        from gptcache.manager import CacheBase, VectorBase, get_data_manager, manager_factory
        from gptcache.processor.pre import get_prompt
        from gptcache.similarity_evaluation.distance import SearchDistanceEvaluation

        self._get, self._put, self._content = get, put, kind == "content"
        self._plain, self.cache = Http(upstream, upstream), Cache()
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "similar":
            from mmcache.lab.models import TextEncoder

            encoder = TextEncoder()
            manager = get_data_manager(
                CacheBase("sqlite", sql_url=f"sqlite:///{folder}/sqlite.db"),
                VectorBase("faiss", dimension=384, index_path=f"{folder}/faiss.index"),
                max_size=1 << 20,
            )
            self.cache.init(
                pre_embedding_func=get_prompt,
                embedding_func=lambda words, **_: encoder.encode(words),
                data_manager=manager,
                similarity_evaluation=SearchDistanceEvaluation(),
            )
        else:
            manager = manager_factory("map", data_dir=str(folder))
            self.cache.init(pre_embedding_func=get_prompt, data_manager=manager)
        self._manager = manager

    def ask(self, body: dict[str, Any], key: str, *, cached: bool) -> Said:
        """As its example in the quick start does."""
        last = body["messages"][-1]
        prompt = json.dumps(last) if self._content else " ".join(texts(last))
        found = self._get(prompt, cache_obj=self.cache) if cached else None
        if found is not None:
            stored = Said.from_json(json.loads(found))
            return Said(stored.choices, bool(body.get("stream")), stored.number)  # an application streams it itself
        said = self._plain.ask(body, key, cached=False)
        if cached:
            self._put(prompt, json.dumps(said.as_json()), cache_obj=self.cache)
        return said

    def close(self) -> None:
        """Write its files."""
        self._manager.close()
        self._plain.close()
