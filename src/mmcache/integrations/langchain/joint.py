"""`JointRetriever`: retrieval by a picture and words, with the joint key and the locator of `mmcache.retrieval`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables.config import ensure_config
from pydantic import PrivateAttr

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.integrations.framework.described import described
from mmcache.integrations.framework.joint import Joint, Models, kept, sought_by
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.results import State
from mmcache.integrations.framework.signing import signature_of
from mmcache.integrations.framework.steady import Steady
from mmcache.integrations.langchain.documents import documents_of, documents_text
from mmcache.integrations.langchain.tenants import asked_with
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.model.signature import Signature
from mmcache.retrieval import Located, Locator, Retrieval

Search = Callable[[list[float] | None, list[float] | None, int], list[Document]]
"""`search(picture_vector, text_vector, k)`: asks your stores; None where none was given. Best first.

Known by its name, code, defaults and what it closes over; which stores these are, `index_version` says."""


class JointRetriever(BaseRetriever):  # type: ignore[misc]
    """Retrieves by a picture and words, `invoke({"text": …, "image": path})`, or by either: a lookup that was made
    before asks neither models nor stores.

    >>> retriever = JointRetriever(open_clip, search, Cache("cache"), index_version="manual 2026-11", k=5)
    >>> print(retriever.locate({"text": "which dialog is this?", "image": "photo.png"}))

    embeddings: a model with `embed_image`; `text_embeddings` embeds the words, where that is another one. retrieval:
    options of `mmcache.retrieval.Retrieval`, such as `near` and `alignment`. Raises `UnversionedModelError`.
    """

    k: int = 10
    _joint: Joint = PrivateAttr()
    _locator: Locator = PrivateAttr()
    _corpus: Callable[[], str] = PrivateAttr()

    def __init__(
        self,
        embeddings: Embeddings,
        search: Search,
        cache: Cache,
        *,
        index_version: State,
        k: int = 10,
        text_embeddings: Embeddings | None = None,
        signature: Signature | str | None = None,
        tenant: TenantOption = None,
        namespace: str | None = None,
        locator: Locator | None = None,
        retrieval: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        texts = text_embeddings or embeddings
        if not callable(getattr(embeddings, "embed_image", None)):
            raise SettingsError(f"{type(embeddings).__name__} has no embed_image, so it cannot embed a picture")
        super().__init__(k=k, **options)
        realm, self._locator = Realm(cache, tenant, namespace), locator or Locator()
        sought = sought_by(search)

        def see(picture: Any) -> Any:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "picture.png")
                picture.save(path, "PNG")
                return np.asarray(embeddings.embed_image([str(path)])[0], np.float32)

        def read(text: str) -> Any:
            return np.asarray(texts.embed_query(text), np.float32)

        def ask(picture: Any, text: Any, k: int) -> dict[str, Any]:
            vectors = [None if one is None else one.tolist() for one in (picture, text)]
            found = search(vectors[0], vectors[1], k)
            return {"names": [one.id or one.page_content for one in found], "documents": kept(found, documents_text)}

        def plain(picture: Any, text: str | None, k: int) -> list[Document]:
            seen = None if picture is None else embeddings.embed_image([str(picture)])[0]
            return search(seen, None if text is None else texts.embed_query(text), k)

        def corpus() -> str:
            state = index_version() if callable(index_version) else index_version
            return f"{state} {sought}" if isinstance(state, str) and state else ""

        def make(tenant: str, models: Models) -> Retrieval:
            return Retrieval(
                cache, picture=cache.wrap(see, modality="image", guard=False, signature=models[0]),
                text=cache.wrap(read, modality="text", guard=False, signature=models[1]), search=ask, corpus=corpus,
                documents=lambda found: found["names"], locator=self._locator, tenant=tenant, namespace=realm.namespace,
                **(retrieval or {}),
            )  # fmt: skip

        models = (
            Steady(embeddings, lambda: signature_of(embeddings, signature, "langchain joint picture")),
            Steady(texts, lambda: signature_of(texts, signature, "langchain joint text")),
        )
        self._joint = Joint(realm, models, make, plain, lambda value: documents_of(value["documents"]))
        self._corpus = lambda: f"{described(retrieval)} {corpus()}"

    def facts_for_keys(self) -> str:
        """What the keys of other caches need to know of it."""
        models = " ".join(one.digest.hex() for one in self._joint.models())
        return f"{models} {self.k} {self._corpus()}"

    @property
    def locator(self) -> Locator:
        """The sums of all lookups; print it."""
        return self._locator

    def locate(self, query: Any) -> Located:
        """A lookup with a record of its hops: at which one it died, and how long each took. See `located.value`."""
        picture, text = _parts(query)
        return self._joint.locate(picture, text, self.k)

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> list[Document]:
        """Documents for a query: words, or a dict with `text`, `image` or both."""
        with asked_with(ensure_config(config)):
            found: list[Document] = super().invoke(input, config, **kwargs)
        return found

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> list[Document]:
        """Documents for a query: words, or a dict with `text`, `image` or both."""
        with asked_with(ensure_config(config)):
            found: list[Document] = await super().ainvoke(input, config, **kwargs)
        return found

    def _get_relevant_documents(self, query: Any, *, run_manager: Any) -> list[Document]:
        picture, text = _parts(query)
        return list(self._joint.found(picture, text, self.k))

    async def _aget_relevant_documents(self, query: Any, *, run_manager: Any) -> list[Document]:
        return await in_thread(lambda: self._get_relevant_documents(query, run_manager=run_manager))


def _parts(query: Any) -> tuple[Any, str | None]:
    """Picture and words."""
    if isinstance(query, str):
        return None, query
    if isinstance(query, dict) and query and query.keys() <= {"text", "image"}:
        return query.get("image"), query.get("text") or None
    raise InvalidInputError("a query is words, or a dict with `text`, `image` or both")
