"""`JointRetriever`: documents for a picture and words, with a joint key, and a record of where a lookup died."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import Any

from haystack import Document, component, default_from_dict
from haystack.core.serialization import component_to_dict

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.integrations.haystack.config import CacheConfig
from mmcache.integrations.haystack.door import TENANT, Door, aside
from mmcache.integrations.haystack.freezing import frozen_documents, thawed_documents
from mmcache.integrations.haystack.index import VERSION, check_index, index_state
from mmcache.integrations.haystack.pictures import as_source, embedded_picture
from mmcache.integrations.haystack.signing import Signed
from mmcache.keys.arguments import canonical_arguments
from mmcache.model.errors import InvalidInputError, MMCacheError, SettingsError
from mmcache.retrieval import Located, Locator, Retrieval, Tolerance

_STORES = "picture_retriever", "text_retriever", "joiner"
_TENANTS = 64
"""Of so many tenants, queries are remembered."""


@component
class JointRetriever(Door):
    """Embeds a picture and words (either may be missing), searches by both, and joins what is found.

    picture_embedder: a document embedder that reads a picture's file (`file_path_meta_field`) or blob.
    text_embedder: a text embedder. picture_retriever, text_retriever: retrievers by `query_embedding`.
    joiner: joins two lists of documents, e.g. `DocumentJoiner(join_mode="reciprocal_rank_fusion")`.
    index_version, index: as for `CachedRetriever`. picture_signature, text_signature: as `signature` of the embedders.
    near_picture, near_text: least cosines at which another query's results may be served, see `Tolerance`; None = only
    exact repetitions are. Other arguments as for `CachedTextEmbedder`.

    A repeated lookup runs none of the five. Output `located` says what each hop did, how long it took, and at which the
    lookup died: `{"died": "picture" | "text" | "joint" | "store" | None, "hops": […]}`.
    """

    def __init__(
        self,
        picture_embedder: Any,
        text_embedder: Any,
        picture_retriever: Any,
        text_retriever: Any,
        joiner: Any,
        cache: CacheConfig | Cache,
        index_version: str | None = None,
        index: str | None = None,
        picture_signature: str | None = None,
        text_signature: str | None = None,
        near_picture: float | None = None,
        near_text: float | None = None,
        top_k: int = 10,
        tenant: str | None = None,
        per_tenant: bool = False,
        ttl: float | None = None,
    ) -> None:
        self._parts = {
            "picture_embedder": picture_embedder, "text_embedder": text_embedder,
            "picture_retriever": picture_retriever, "text_retriever": text_retriever, "joiner": joiner,
        }  # fmt: skip
        self._set_up(list(self._parts.values()), cache, tenant, per_tenant, ttl)
        check_index(index, index_version)
        self._own: dict[str, Any] = {
            "index_version": index_version, "index": index, "picture_signature": picture_signature,
            "text_signature": text_signature, "near_picture": near_picture, "near_text": near_text, "top_k": top_k,
            "ttl": ttl,
        }  # fmt: skip
        if (near_picture is None) != (near_text is None):
            raise SettingsError("near_picture and near_text go together: each modality is compared by itself")
        self._near = None
        if near_picture is not None and near_text is not None:
            self._near = Tolerance(picture=near_picture, text=near_text)
        self._signed = {name: Signed(self._parts[name], None, modality="retrieval", versioned=True) for name in _STORES}
        self._signed["picture_embedder"] = Signed(picture_embedder, picture_signature, modality="image")
        self._signed["text_embedder"] = Signed(text_embedder, text_signature, modality="text")
        self.locator = Locator()
        """Sums over all lookups."""
        self._retrievals: OrderedDict[object, Retrieval] = OrderedDict()
        for name in "picture", "words", "filters", VERSION:
            component.set_input_type(self, name, Any if name == "picture" else _TYPES[name], None)
        component.set_input_type(self, "top_k", int | None, None)
        component.set_output_types(self, documents=list[Document], located=dict[str, Any])
        self._take_tenant()

    def to_dict(self) -> dict[str, Any]:
        """For pipeline files. Raises `SerializationError` for a `Cache` that is no `CacheConfig`."""
        return self._to_dict(**{name: component_to_dict(part, name) for name, part in self._parts.items()}, **self._own)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> JointRetriever:
        """Opens nothing: `warm_up` does."""
        made: JointRetriever = default_from_dict(cls, data)
        return made

    def _release(self) -> None:
        self._retrievals.clear()
        Door._release(self)  # not super(): `@component` makes another class of this one

    def run(self, **inputs: Any) -> dict[str, Any]:
        """picture: a path, byte stream, or PIL picture. words, filters, top_k, index_version, cache_tenant.

        What a component raises is raised; a failure of the cache is not.
        """
        self.warm_up()
        return self._flow(inputs)

    async def run_async(self, **inputs: Any) -> dict[str, Any]:
        """The async twin: runs in a thread."""
        await self.warm_up_async()
        return await in_thread(partial(self._flow, inputs))

    def _flow(self, inputs: dict[str, Any]) -> dict[str, Any]:
        picture, words, filters = as_source(inputs.get("picture")), inputs.get("words"), inputs.get("filters")
        k = self._own["top_k"] if inputs.get("top_k") is None else inputs["top_k"]
        if picture is None and words is None:
            raise ValueError("a JointRetriever needs a picture, words, or both")
        cache = self._open()
        plain = partial(self._plain, picture, words, filters, k)
        if cache is None:
            return plain()
        version = inputs.get(VERSION)
        version = self._own["index_version"] if version is None else version
        try:
            retrieve = self._retrieval(cache, inputs.get(TENANT), version)
            located = retrieve.locate(picture, words, k, filters=filters)
        except _UnkeptError as error:
            return {"documents": [replace(one) for one in error.documents], "located": {}}
        except MMCacheError as error:
            return aside(cache, error, plain)
        if located.error is not None:
            raise located.error.__cause__ or located.error
        return thawed_documents(located.value) | {"located": told(located)}

    def _retrieval(self, cache: Cache, tenant: Any, version: Any) -> Retrieval:
        """Raises `InvalidInputError`, `TierError`."""
        scope = self._scope(cache, self._signed["text_embedder"].now(), tenant)
        signatures = {name: signed.sealed(scope.salt) for name, signed in self._signed.items()}
        realm = self.cache.tenant, self.cache.namespace

        def corpus(version: Any = version) -> str:
            state = index_state(cache, self._own["index"], version, *realm)
            rest = [signatures[name].digest for name in _STORES]
            return canonical_arguments([state, *rest]).hex()

        corpus()
        place = (scope.tenant, version, tuple(signatures.values()))
        with self._lock:
            found = self._retrievals.get(place)
        if found is None:
            found = Retrieval(
                cache,
                picture=cache.wrap(self._see, modality="image", signature=signatures["picture_embedder"], guard=False),
                text=cache.wrap(self._read, modality="text", signature=signatures["text_embedder"], guard=False),
                search=self._search, corpus=corpus, near=self._near, documents=_names, locator=self.locator,
                ttl=self.ttl, tenant=scope.tenant, namespace=self.cache.namespace,
                remember=10_000 if self._near is not None else 0,
            )  # fmt: skip
            with self._lock:
                self._retrievals[place] = found
                if len(self._retrievals) > _TENANTS:
                    self._retrievals.popitem(last=False)
        return found

    # The components -------------------------------------------------------------------------------------------------

    def _see(self, picture: Any) -> Any:
        field = self._signed["picture_embedder"].parameters.get("file_path_meta_field")
        return embedded_picture(self._parts["picture_embedder"], picture, field if isinstance(field, str) else None)

    def _read(self, words: str) -> Any:
        return self._parts["text_embedder"].run(text=words)["embedding"]

    def _search(self, picture: Any, words: Any, k: int, filters: Any = None) -> dict[str, Any]:
        found = self._found(picture, words, k, filters)
        frozen = frozen_documents({"documents": found})
        if not isinstance(frozen, dict):
            raise _UnkeptError(found)
        return frozen

    def _found(self, picture: Any, words: Any, k: int, filters: Any) -> Any:
        found = []
        for name, vector in (("picture_retriever", picture), ("text_retriever", words)):
            if vector is not None:
                asked = {"query_embedding": [float(one) for one in vector], "top_k": k}
                outputs = self._parts[name].run(**asked, **({} if filters is None else {"filters": filters}))
                found.append(outputs["documents"])
        return found[0] if len(found) == 1 else self._parts["joiner"].run(documents=found, top_k=k)["documents"]

    def _plain(self, picture: Any, words: Any, filters: Any, k: int) -> dict[str, Any]:
        vectors = None if picture is None else self._see(picture), None if words is None else self._read(words)
        return {"documents": self._found(*vectors, k, filters), "located": {}}


class _UnkeptError(InvalidInputError):
    """Carries documents past the cache."""

    def __init__(self, documents: list[Any]) -> None:
        super().__init__("what the retrievers found cannot be kept")
        self.documents = documents


_TYPES = {"words": str | None, "filters": dict[str, Any] | None, VERSION: str | None}


def _names(result: dict[str, Any]) -> list[str]:
    return [document["id"] for document in result["documents"]]


def told(located: Located) -> dict[str, Any]:
    """The record of a lookup as plain data."""
    hops = [
        {"name": hop.name.value, "outcome": hop.outcome, "seconds": hop.seconds, "detail": hop.detail}
        for hop in located.hops
    ]
    return {"died": None if located.died is None else located.died.value, "seconds": located.seconds, "hops": hops}
