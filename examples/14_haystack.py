"""Haystack: pipelines whose embedders and retriever have a cache in front, to YAML and back."""

import tempfile

from haystack import Document, Pipeline
from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.components.writers import DocumentWriter
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy

from mmcache.integrations.haystack import (
    CacheConfig,
    CachedDocumentEmbedder,
    CachedRetriever,
    CachedTextEmbedder,
    IndexWriter,
)

with tempfile.TemporaryDirectory() as folder:
    cache = CacheConfig(root=folder, memory="64MiB")
    store = InMemoryDocumentStore(index="manual")

    indexing = Pipeline()
    indexing.add_component("embed", CachedDocumentEmbedder(MockDocumentEmbedder(), cache))
    writer = DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE)
    indexing.add_component("write", IndexWriter(writer, index="manual", cache=cache))
    indexing.connect("embed.documents", "write.documents")

    asking = Pipeline()
    asking.add_component("embed", CachedTextEmbedder(MockTextEmbedder(), cache))
    asking.add_component("search", CachedRetriever(InMemoryEmbeddingRetriever(store), cache, index="manual"))
    asking.connect("embed.embedding", "search.query_embedding")

    pages = [Document(content=f"page {number} of the manual") for number in range(20)]
    for _ in range(2):
        told = indexing.run({"embed": {"documents": pages}}, include_outputs_from={"embed"})
        print("embedding 20 pages:", told["embed"]["meta"]["mmcache"])

    question = {"embed": {"text": "what is on page 7?"}}
    loaded = Pipeline.loads(asking.dumps(), allowed_modules=["mmcache.integrations.haystack.*"])
    for pipeline in asking, loaded:
        told = pipeline.run(question, include_outputs_from={"embed"})
        print("asking:", told["embed"]["meta"]["mmcache"], len(told["search"]["documents"]), "documents")

    for pipeline in indexing, asking, loaded:
        pipeline.close()
