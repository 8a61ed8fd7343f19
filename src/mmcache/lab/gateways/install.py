"""What each contender takes to install and set up: commands, lines of configuration, lines of an application."""

from __future__ import annotations

from collections.abc import Mapping

_LANGCHAIN = "pip install langchain-openai"
_LITELLM = (
    "pip install 'litellm[proxy]'",
    "from litellm.caching.caching import Cache",
    "litellm.cache = Cache(type='local')",
    "completion(…, caching=True)",
)
_GPTCACHE = (
    "pip install gptcache",
    "from gptcache import cache",
    "from gptcache.adapter.api import get, put",
    "cache.init(pre_embedding_func=get_prompt)",
    "found = get(prompt)",
    "put(prompt, answer)",
)

STEPS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "serve": (
        "pip install 'mmcache[server]'",
        "mmcache serve --upstream http://localhost:8000",
        "export OPENAI_BASE_URL=http://127.0.0.1:8090/v1",
    ),
    "serve/semantic": (
        "pip install 'mmcache[server]'",
        '[routes."/v1/chat/completions"]',
        "semantic_max_error = 0.01",
        "mmcache serve --upstream http://localhost:8000 --config mmcache.toml",
        "export OPENAI_BASE_URL=http://127.0.0.1:8090/v1",
    ),
    "langchain/mmcache": (
        "pip install 'mmcache[langchain]'",
        "from mmcache.integrations.langchain import MMCache",
        "set_llm_cache(MMCache(Cache(folder), tenant=who))",
    ),
    "litellm/local": _LITELLM,
    "litellm/tenants": (*_LITELLM[:3], "completion(…, caching=True, cache={'namespace': tenant})"),
    "litellm/redis": (
        *_LITELLM[:2],
        "a Redis server",
        "litellm.cache = Cache(type='redis', host=…, port=…)",
        _LITELLM[3],
    ),
    "gptcache/text": _GPTCACHE,
    "gptcache/content": _GPTCACHE,
    "gptcache/similar": (*_GPTCACHE[:2], "from gptcache.adapter.api import get, init_similar_cache, put",
                         "init_similar_cache(embedding=…)", *_GPTCACHE[4:]),
    "langchain/memory": (_LANGCHAIN, "from langchain_core.caches import InMemoryCache",
                         "set_llm_cache(InMemoryCache())"),
    "langchain/sqlite": (
        f"{_LANGCHAIN} langchain-community",
        "from langchain_community.cache import SQLiteCache",
        "set_llm_cache(SQLiteCache(database_path=…))",
    ),
}  # fmt: skip
"""By contender; all that an application which asks a model by the same library already lacks."""

NOT_RUN: Mapping[str, str] = {
    "redisvl": "RedisVL's SemanticCache needs a Redis with the search module (RediSearch), which no package brings",
    "litellm/redis-semantic": "LiteLLM's semantic caches need a server with vector search (RediSearch, Qdrant)",
}
"""Contenders that cannot be run here, and why."""
OURS = ("serve", "serve/semantic", "langchain/mmcache")
QUICK = ("none", "serve", "langchain/mmcache", "litellm/local", "gptcache/text", "langchain/memory")
