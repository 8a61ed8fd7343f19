"""A cache in LangChain: answers, embeddings and what a retriever found survive, and nothing is shared by tenants."""

from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore

from mmcache import Cache
from mmcache.integrations.langchain import CachedRetriever, MMCache, cached_embeddings, from_config

CALLS = {"embeddings": 0, "model": 0}


class Letters(Embeddings):  # type: ignore[misc]
    """Stands for your embedding model; counts its calls."""

    model = "letters 1.0"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        CALLS["embeddings"] += len(texts)
        return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


class Model(BaseChatModel):  # type: ignore[misc]
    """Stands for your chat model."""

    @property
    def _llm_type(self) -> str:
        return "toy"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": "toy 1.0", "temperature": 0}

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        CALLS["model"] += 1
        message = AIMessage("The rotate tool.", response_metadata={"finish_reason": "stop"})
        return ChatResult(generations=[ChatGeneration(message=message)])


def answer(tenant: str) -> str:
    """Everything anew, as a process that starts: only the folder is the same."""
    with Cache("cache") as cache:
        set_llm_cache(MMCache(cache, tenant=from_config("tenant")))
        store = InMemoryVectorStore(cached_embeddings(Letters(), cache))
        store.add_documents([Document(page_content=f"The {n} tool", id=n) for n in ("scale", "rotate", "crop")])
        retriever = CachedRetriever(store.as_retriever(), cache, index_version="tools 1", tenant=from_config("tenant"))
        config: Any = {"configurable": {"tenant": tenant}}
        found = retriever.invoke("Which tool rotates?", config)
        chain = ChatPromptTemplate.from_messages([("human", "Answer from {pages}: which tool rotates?")]) | Model()
        return str(chain.invoke({"pages": [one.page_content for one in found]}, config).content)


for tenant in ("acme", "acme", "other"):
    CALLS.update(embeddings=0, model=0)
    print(f"{tenant}: {answer(tenant)} {CALLS}")
