"""A cache in LlamaIndex: a second run of the whole pipeline calls neither the embedding model nor the LLM."""

from typing import Any

from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter

from mmcache import Cache
from mmcache.integrations.llamaindex import CachedEmbedding, CachedQueryEngine, cached_ingestion, index_state

CALLS = {"embedding": 0, "llm": 0}


class Embedding(MockEmbedding):  # type: ignore[misc]
    """Stands for your embedding model; counts its calls."""

    def _get_text_embedding(self, text: str) -> list[float]:
        CALLS["embedding"] += 1
        return [float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


class Model(MockLLM):  # type: ignore[misc]
    """Stands for your language model."""

    def complete(self, *arguments: Any, **options: Any) -> Any:
        CALLS["llm"] += 1
        return super().complete(*arguments, **options)


def answer(question: str) -> str:
    """Everything anew, as a process that starts: only the folder is the same."""
    with Cache("cache") as cache:
        embed = CachedEmbedding(Embedding(embed_dim=26, model_name="letters 1.0"), cache)
        names = ("scale", "rotate", "crop")
        documents = [Document(text=f"The {name} tool changes layers. " * 9, id_=name) for name in names]
        splitter = SentenceSplitter(chunk_size=64, chunk_overlap=0)
        pipeline = cached_ingestion(IngestionPipeline(transformations=[splitter, embed]), cache)
        index = VectorStoreIndex(pipeline.run(documents=documents), embed_model=embed)
        engine = index.as_query_engine(llm=Model())
        cached = CachedQueryEngine(engine, cache, index_version=index_state(index, "tools"))
        cached.query(question)
        return str(cached.query(question))


first = answer("Which tool rotates?")
print("a first run calls", CALLS)
CALLS.update(embedding=0, llm=0)
answer("Which tool rotates?")
print("a second run calls", CALLS)
assert CALLS == {"embedding": 0, "llm": 0}
