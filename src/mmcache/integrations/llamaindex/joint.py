"""`JointRetriever`: retrieval by a picture and words, with the joint key and the locator of `mmcache.retrieval`."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.embeddings.multi_modal_base import MultiModalEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.integrations.framework.described import described
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.results import State
from mmcache.integrations.framework.signing import signature_of
from mmcache.integrations.llamaindex.nodes import scored_of, scored_text
from mmcache.keys.signing.functions import function_identity
from mmcache.model.errors import RetrievalError, SettingsError
from mmcache.model.signature import Signature
from mmcache.retrieval import Located, Locator, Retrieval

Search = Callable[[list[float] | None, list[float] | None, int], list[NodeWithScore]]
"""`search(picture_vector, text_vector, k)`: asks your stores; None where none was given. Best first.

Known by its name, defaults and what it closes over; which stores these are, `index_version` says."""
MOST_TENANTS = 256


class JointRetriever(BaseRetriever):  # type: ignore[misc]
    """Retrieves by a query's picture (`QueryBundle(…, image_path=…)`) and its words: a lookup that was made before asks
    neither models nor stores.

    >>> retriever = JointRetriever(clip, search, Cache("cache"), index_version="manual 2026-11", similarity_top_k=5)
    >>> print(retriever.locate(QueryBundle("which dialog is this?", image_path="photo.png")))

    embed_model embeds both; `text_embed_model` the words, where that is another one. options: those of
    `mmcache.retrieval.Retrieval`, such as `near=` and `alignment=`. Raises `UnversionedModelError`, `SettingsError`.
    """

    def __init__(
        self,
        embed_model: MultiModalEmbedding,
        search: Search,
        cache: Cache,
        *,
        index_version: State,
        similarity_top_k: int = 10,
        text_embed_model: Any = None,
        signature: Signature | str | None = None,
        tenant: TenantOption = None,
        namespace: str | None = None,
        locator: Locator | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(embed_model, MultiModalEmbedding):
            raise SettingsError(f"embed_model is a multi-modal embedding model, not {type(embed_model).__name__}")
        super().__init__(callback_manager=embed_model.callback_manager)
        self._pictures, self._texts = embed_model, text_embed_model or embed_model
        self._search, self._version, self._options = search, index_version, options
        self._realm = Realm(cache, tenant, namespace)
        self.similarity_top_k = similarity_top_k
        self.locator = locator or Locator()
        self._picture = cache.wrap(
            self._see, modality="image", guard=False,
            signature=signature_of(self._pictures, signature, "llamaindex joint picture"),
        )  # fmt: skip
        self._text = cache.wrap(
            self._read, modality="text", guard=False,
            signature=signature_of(self._texts, signature, "llamaindex joint text"),
        )  # fmt: skip
        self._sought = function_identity(search)
        self._retrievals: dict[str, Retrieval] = {}

    def facts_for_keys(self) -> str:
        """What the keys of other caches need to know of it."""
        models = self._picture.signature.digest + self._text.signature.digest
        return f"{models.hex()} {self.similarity_top_k} {described(self._options)} {self._corpus()}"

    def locate(self, query: QueryBundle | str) -> Located:
        """A lookup with a record of its hops: at which one it died, and how long each took. See `located.value`."""
        bundle = QueryBundle(query) if isinstance(query, str) else query
        located = self._retrieval().locate(bundle.image_path, bundle.query_str or None, self.similarity_top_k)
        return Located(self._found(located.value), located.hops, located.died, located.error)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        located = self.locate(query_bundle)
        if located.error is not None:
            raise _cause(located.error)
        found: list[NodeWithScore] = located.value
        return found

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await in_thread(lambda: self._retrieve(query_bundle))

    def _see(self, picture: Any) -> Any:
        file = BytesIO()
        picture.save(file, "PNG")
        file.seek(0)
        return np.asarray(self._pictures.get_image_embedding(file), np.float32)

    def _read(self, text: str) -> Any:
        return np.asarray(self._texts.get_query_embedding(text), np.float32)

    def _ask(self, picture: Any, text: Any, k: int) -> dict[str, Any]:
        vectors = [None if one is None else one.tolist() for one in (picture, text)]
        found = self._search(vectors[0], vectors[1], k)
        return {"ids": [one.node.node_id for one in found], "nodes": scored_text(found)}

    def _corpus(self) -> str:
        state = self._version() if callable(self._version) else self._version
        return f"{state} {self._sought}" if isinstance(state, str) and state else ""

    def _retrieval(self) -> Retrieval:
        """Of the tenant who asks: what is remembered for near hits is his alone."""
        tenant = self._realm.tenant()
        if tenant is None:
            raise SettingsError("nobody can say whose this lookup is, so its results may not be kept or looked up")
        if tenant not in self._retrievals:
            if len(self._retrievals) >= MOST_TENANTS:
                self._retrievals.pop(next(iter(self._retrievals)), None)
            self._retrievals[tenant] = Retrieval(
                self._realm.cache, picture=self._picture, text=self._text, search=self._ask, corpus=self._corpus,
                documents=_names, locator=self.locator, tenant=tenant, namespace=self._realm.namespace, **self._options,
            )  # fmt: skip
        return self._retrievals[tenant]

    @staticmethod
    def _found(value: Any) -> list[NodeWithScore] | None:
        return None if value is None else scored_of(value["nodes"])


def _names(value: dict[str, Any]) -> list[str]:
    return list(value["ids"])


def _cause(error: RetrievalError) -> Exception:
    cause = error.__cause__
    return cause if isinstance(cause, Exception) else error
