"""The door of LangChain: answers of models, embeddings, stores and retrievers with a cache, by its own base classes.

`llm_cache.py` is what `set_llm_cache` takes (`asked.py` says what may be looked up, `answers.py` what may be kept),
`embeddings.py` wraps an `Embeddings`, `store.py` is for `CacheBackedEmbeddings`, `retriever.py` and `joint.py` answer
queries; `tenants.py` finds the tenant in a `RunnableConfig`.
"""

# ruff: noqa: E402 - first, what is missing is said
from mmcache.integrations.framework.extra import require

require("langchain_core", "langchain")

from mmcache.integrations.langchain.embeddings import CachedEmbeddings, cached_embeddings
from mmcache.integrations.langchain.joint import JointRetriever
from mmcache.integrations.langchain.llm_cache import MMCache
from mmcache.integrations.langchain.retriever import CachedRetriever
from mmcache.integrations.langchain.store import MMCacheStore
from mmcache.integrations.langchain.tenants import from_config

__all__ = [
    "CachedEmbeddings",
    "CachedRetriever",
    "JointRetriever",
    "MMCache",
    "MMCacheStore",
    "cached_embeddings",
    "from_config",
]
