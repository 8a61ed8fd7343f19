"""The door of LlamaIndex: embeddings, ingestion, retrievers and query engines with a cache, by its own base classes.

`embedding.py` wraps a `BaseEmbedding`, `ingestion.py` the transformations of a pipeline, `retriever.py` and
`query_engine.py` what answers queries, `joint.py` is retrieval by picture and words; `events.py` is what the
instrumentation's handlers are told.
"""

# ruff: noqa: E402 - first, what is missing is said
from mmcache.integrations.framework.extra import require

require("llama_index.core", "llamaindex")

from mmcache.integrations.llamaindex.embedding import CachedEmbedding, CachedMultiModalEmbedding
from mmcache.integrations.llamaindex.events import CacheHitEvent, CacheMissEvent
from mmcache.integrations.llamaindex.index_state import index_state
from mmcache.integrations.llamaindex.ingestion import CachedTransform, cached_ingestion
from mmcache.integrations.llamaindex.joint import JointRetriever
from mmcache.integrations.llamaindex.kvstore import MMCacheKVStore
from mmcache.integrations.llamaindex.query_engine import CachedQueryEngine
from mmcache.integrations.llamaindex.retriever import CachedRetriever

__all__ = [
    "CacheHitEvent",
    "CacheMissEvent",
    "CachedEmbedding",
    "CachedMultiModalEmbedding",
    "CachedQueryEngine",
    "CachedRetriever",
    "CachedTransform",
    "JointRetriever",
    "MMCacheKVStore",
    "cached_ingestion",
    "index_state",
]
