"""What each contender takes to install and set up: commands, lines of configuration, lines of an application."""

from __future__ import annotations

from collections.abc import Mapping

_LANGCHAIN = "pip install langchain-openai"
_SET = "from langchain_core.globals import set_llm_cache"
_LITELLM = (
    "pip install litellm fastapi opentelemetry-sdk",
    "from litellm.caching.caching import Cache",
    "litellm.cache = Cache(type='local')",
    "completion(…, caching=True)",
)
_GPTCACHE = (
    "pip install gptcache",
    "from gptcache import cache",
    "from gptcache.adapter.api import get, put",
    "from gptcache.processor.pre import get_prompt",
    "cache.init(pre_embedding_func=get_prompt)",
    "found = get(prompt)",
    "put(prompt, answer)",
)
_REDISVL = (
    "pip install redisvl",
    "a Redis server with RediSearch",
    "from redisvl.extensions.cache.llm import SemanticCache",
    "from redisvl.utils.vectorize import …",
    "cache = SemanticCache(name=…, redis_url=…, vectorizer=…)",
    "found = cache.check(prompt=prompt)",
    "cache.store(prompt=prompt, response=answer)",
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
        "from mmcache import Cache",
        "from mmcache.integrations.langchain import MMCache",
        _SET,
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
    "litellm/semantic": (
        _LITELLM[0],
        "pip install redisvl",
        "a Redis server with RediSearch",
        "a server of embeddings",
        _LITELLM[1],
        "litellm.cache = Cache(type='redis-semantic', host=…, port=…, similarity_threshold=…, …_embedding_model=…)",
        _LITELLM[3],
    ),
    "gptcache/text": _GPTCACHE,
    "gptcache/content": _GPTCACHE,
    "gptcache/similar": (*_GPTCACHE[:2], "from gptcache.adapter.api import get, init_similar_cache, put",
                         "init_similar_cache(embedding=…)", *_GPTCACHE[5:]),
    "redisvl/text": _REDISVL,
    "redisvl/tenants": (
        *_REDISVL[:5],
        "found = cache.check(prompt=prompt, filter_expression=Tag('tenant') == tenant)",
        "cache.store(prompt=prompt, response=answer, filters={'tenant': tenant})",
        "from redisvl.query.filter import Tag",
        "filterable_fields=[{'name': 'tenant', 'type': 'tag'}]",
    ),
    "langchain/memory": (_LANGCHAIN, "from langchain_core.caches import InMemoryCache", _SET,
                         "set_llm_cache(InMemoryCache())"),
    "langchain/sqlite": (
        f"{_LANGCHAIN} langchain-community",
        "from langchain_community.cache import SQLiteCache",
        _SET,
        "set_llm_cache(SQLiteCache(database_path=…))",
    ),
}  # fmt: skip
"""By contender; all that an application which asks a model by the same library already lacks."""

IN_SERVER = ("litellm/redis", "litellm/semantic", "redisvl/text", "redisvl/tenants")
"""Keep their answers in a Redis."""
OURS = ("serve", "serve/semantic", "langchain/mmcache")
QUICK = ("none", "serve", "langchain/mmcache", "litellm/local", "gptcache/text", "langchain/memory")
