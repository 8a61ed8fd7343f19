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
from mmcache.integrations.framework.joint import Joint, Models, kept, sought_by
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.results import State
from mmcache.integrations.framework.signing import signature_of
from mmcache.integrations.framework.steady import Steady
from mmcache.integrations.llamaindex.nodes import scored_of, scored_text
from mmcache.model.errors import SettingsError
from mmcache.model.signature import Signature
from mmcache.retrieval import Located, Locator, Retrieval

Search = Callable[[list[float] | None, list[float] | None, int], list[NodeWithScore]]
"""`search(picture_vector, text_vector, k)`: asks your stores; None where none was given. Best first.

Known by its name, code, defaults and what it closes over; which stores these are, `index_version` says."""


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
        given, pictures, texts = signature, self._pictures, self._texts
        models = (
            Steady(pictures, lambda: signature_of(pictures, given, "llamaindex joint picture")),
            Steady(texts, lambda: signature_of(texts, given, "llamaindex joint text")),
        )
        self._joint = Joint(self._realm, models, self._made, self._plain, lambda value: scored_of(value["nodes"]))
        self._sought = sought_by(search)

    def facts_for_keys(self) -> str:
        """What the keys of other caches need to know of it."""
        models = " ".join(one.digest.hex() for one in self._joint.models())
        return f"{models} {self.similarity_top_k} {described(self._options)} {self._corpus()}"

    def locate(self, query: QueryBundle | str) -> Located:
        """A lookup with a record of its hops: at which one it died, and how long each took. See `located.value`."""
        bundle = QueryBundle(query) if isinstance(query, str) else query
        return self._joint.locate(bundle.image_path, bundle.query_str or None, self.similarity_top_k)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        k = self.similarity_top_k
        return list(self._joint.found(query_bundle.image_path, query_bundle.query_str or None, k))

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
        return {"ids": [one.node.node_id for one in found], "nodes": kept(found, scored_text)}

    def _plain(self, picture: Any, text: str | None, k: int) -> list[NodeWithScore]:
        seen = None if picture is None else self._pictures.get_image_embedding(picture)
        return self._search(seen, None if text is None else self._texts.get_query_embedding(text), k)

    def _corpus(self) -> str:
        state = self._version() if callable(self._version) else self._version
        return f"{state} {self._sought}" if isinstance(state, str) and state else ""

    def _made(self, tenant: str, models: Models) -> Retrieval:
        cache = self._realm.cache
        return Retrieval(
            cache, picture=cache.wrap(self._see, modality="image", guard=False, signature=models[0]),
            text=cache.wrap(self._read, modality="text", guard=False, signature=models[1]), search=self._ask,
            corpus=self._corpus, documents=_names, locator=self.locator, tenant=tenant,
            namespace=self._realm.namespace, **self._options,
        )  # fmt: skip


def _names(value: dict[str, Any]) -> list[str]:
    return list(value["ids"])
