"""Haystack: components that stand in front of other components. Needs `mmcache[haystack]`.

`CacheConfig` describes a cache so that a pipeline file can hold it. `CachedTextEmbedder`, `CachedDocumentEmbedder`,
`CachedRetriever` and `CachedChatGenerator` wrap what they are named after; `IndexWriter` says when an index changes;
`JointRetriever` searches by picture and words; `ContentChecker` tells what was ingested before, by its content.
"""

# ruff: noqa: E402 - first, what is missing is said
from mmcache.integrations.framework.extra import require

require("haystack", "haystack")

from mmcache.integrations.haystack.chat_generator import CachedChatGenerator
from mmcache.integrations.haystack.checker import ContentChecker
from mmcache.integrations.haystack.config import CacheConfig
from mmcache.integrations.haystack.document_embedder import CachedDocumentEmbedder
from mmcache.integrations.haystack.index import IndexWriter
from mmcache.integrations.haystack.joint import JointRetriever
from mmcache.integrations.haystack.retriever import CachedRetriever
from mmcache.integrations.haystack.text_embedder import CachedTextEmbedder

__all__ = [
    "CacheConfig",
    "CachedChatGenerator",
    "CachedDocumentEmbedder",
    "CachedRetriever",
    "CachedTextEmbedder",
    "ContentChecker",
    "IndexWriter",
    "JointRetriever",
]
