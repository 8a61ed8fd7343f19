"""`CachedEmbedding`: a `BaseEmbedding` in front of another one. Only what is missing reaches the model.

LlamaIndex's events and callbacks of an embedding are those of the model behind, so they tell (and token counters count)
what was computed; a hit is a `CacheHitEvent`. Queries, passages and pictures are different keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.embeddings.multi_modal_base import MultiModalEmbedding
from llama_index.core.instrumentation import get_dispatcher

from mmcache.cache import Cache
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.signing import check_alone, signature_of
from mmcache.integrations.framework.steady import Steady
from mmcache.integrations.framework.vectors import Vectors
from mmcache.integrations.llamaindex.events import tell_embedded
from mmcache.model.errors import MMCacheError, SettingsError
from mmcache.model.signature import Signature

dispatcher = get_dispatcher(__name__)
Embedding = list[float]

_DELIVERY = ("callback_manager", "num_workers", "embed_batch_size", "rate_limiter")
_ROLES = {"query": "text", "text": "text", "image": "image"}


class CachedEmbedding(BaseEmbedding):  # type: ignore[misc]
    """`embed_model`, with a cache in front.

    >>> Settings.embed_model = CachedEmbedding(OpenAIEmbedding(), Cache("~/.cache/mmcache"))

    signature: which model this is, in which version, where it does not name one itself. tenant: a name, or a function
    that tells it at each call. ttl: in seconds. For a multi-modal model this makes a `CachedMultiModalEmbedding`.
    Raises `UnversionedModelError`, `SettingsError`.
    """

    embed_model: Any = Field(exclude=True, description="The model behind.")
    _given: Signature | str | None = PrivateAttr(default=None)
    _realm: Realm = PrivateAttr()
    _ttl: float | None = PrivateAttr(default=None)
    _vectors: Any = PrivateAttr()

    def __new__(cls, embed_model: Any = None, *arguments: Any, **options: Any) -> Any:
        if cls is CachedEmbedding and isinstance(embed_model, MultiModalEmbedding):
            return super().__new__(CachedMultiModalEmbedding)
        return super().__new__(cls)

    def __init__(
        self,
        embed_model: BaseEmbedding,
        cache: Cache | Realm,
        *,
        signature: Signature | str | None = None,
        tenant: TenantOption = None,
        namespace: str | None = None,
        ttl: float | None = None,
    ) -> None:
        if not isinstance(embed_model, BaseEmbedding):
            raise SettingsError(f"embed_model is a LlamaIndex embedding model, not {type(embed_model).__name__}")
        if embed_model.embeddings_cache is not None:
            raise SettingsError(
                "the model has an embeddings_cache of its own, whose keys say neither which model it is nor whether a "
                "text is a query: set it to None"
            )
        super().__init__(
            embed_model=embed_model, model_name=embed_model.model_name, embed_batch_size=embed_model.embed_batch_size,
            num_workers=embed_model.num_workers, callback_manager=embed_model.callback_manager,
        )  # fmt: skip
        self._given, self._ttl = signature, ttl
        self._realm = cache if isinstance(cache, Realm) else Realm(cache, tenant, namespace)
        self._vectors = Steady(embed_model, self._sign)
        _ = self._vectors.value()

    @classmethod
    def class_name(cls) -> str:
        """As LlamaIndex names components."""
        return "CachedEmbedding"

    def _sign(self) -> dict[str, Vectors]:
        model = self.embed_model
        check_alone(model)
        return {
            role: Vectors(self._realm, signature_of(model, self._given, f"llamaindex {role}"), modality, self._ttl)
            for role, modality in _ROLES.items()
        }

    def facts_for_keys(self) -> str:
        """What the keys of other caches need to know of it: the model's signature."""
        return str(self._vectors.value()["text"].digest)

    def to_dict(self, **options: Any) -> dict[str, Any]:
        """Its configuration, without any secret of the model behind."""
        return {**super().to_dict(**options), "signature": self.facts_for_keys()}

    def to_payload(self) -> dict[str, Any]:
        """What instrumentation is told: the model behind."""
        return dict(self.embed_model.to_payload())

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "embeddings_cache" and value is not None:
            raise SettingsError("a CachedEmbedding has a cache already")
        super().__setattr__(name, value)
        if name in _DELIVERY:
            setattr(self.embed_model, name, value)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _again, (type(self), self.embed_model, self._realm, self._given, self._ttl)

    def _many(self, role: str, sources: list[Any], compute: Callable[[list[Any]], list[Any]]) -> list[Embedding]:
        try:
            vectors = self._vectors.value()[role]
        except MMCacheError as error:  # reconfigured, and now nothing says which model it is
            self._realm.failed(f"went on without the cache: {type(error).__name__}")
            return compute(sources)
        found, tallied = vectors.many(sources, compute)
        tell_embedded(role, tallied)
        return list(found)

    async def _amany(self, role: str, sources: list[Any], compute: Callable[[list[Any]], Any]) -> list[Embedding]:
        try:
            vectors = self._vectors.value()[role]
        except MMCacheError as error:
            self._realm.failed(f"went on without the cache: {type(error).__name__}")
            return list(await compute(sources))
        found, tallied = await vectors.amany(sources, compute)
        tell_embedded(role, tallied)
        return list(found)

    # What BaseEmbedding promises ------------------------------------------------------------------------------------

    def _get_query_embedding(self, query: str) -> Embedding:
        model = self.embed_model
        return self._many("query", [query], lambda missing: [model.get_query_embedding(q) for q in missing])[0]

    async def _aget_query_embedding(self, query: str) -> Embedding:
        model = self.embed_model

        async def compute(missing: list[str]) -> list[Embedding]:
            return [await model.aget_query_embedding(q) for q in missing]

        return (await self._amany("query", [query], compute))[0]

    def _get_text_embedding(self, text: str) -> Embedding:
        model = self.embed_model
        return self._many("text", [text], lambda missing: [model.get_text_embedding(t) for t in missing])[0]

    async def _aget_text_embedding(self, text: str) -> Embedding:
        model = self.embed_model

        async def compute(missing: list[str]) -> list[Embedding]:
            return [await model.aget_text_embedding(t) for t in missing]

        return (await self._amany("text", [text], compute))[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return self._many("text", texts, self.embed_model.get_text_embedding_batch)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[Embedding]:
        return await self._amany("text", texts, self.embed_model.aget_text_embedding_batch)

    @dispatcher.span  # type: ignore[untyped-decorator]
    def get_query_embedding(self, query: str) -> Embedding:
        """Of a query."""
        return self._get_query_embedding(query)

    @dispatcher.span  # type: ignore[untyped-decorator]
    async def aget_query_embedding(self, query: str) -> Embedding:
        """Of a query."""
        return await self._aget_query_embedding(query)

    @dispatcher.span  # type: ignore[untyped-decorator]
    def get_text_embedding(self, text: str) -> Embedding:
        """Of a passage."""
        return self._get_text_embedding(text)

    @dispatcher.span  # type: ignore[untyped-decorator]
    async def aget_text_embedding(self, text: str) -> Embedding:
        """Of a passage."""
        return await self._aget_text_embedding(text)

    @dispatcher.span  # type: ignore[untyped-decorator]
    def get_text_embedding_batch(
        self, texts: list[str], show_progress: bool = False, **options: Any
    ) -> list[Embedding]:
        """Of passages. With further options, which a model may heed, all of them are computed."""
        if options:
            return list(self.embed_model.get_text_embedding_batch(texts, show_progress=show_progress, **options))
        batch = self.embed_model.get_text_embedding_batch
        return self._many("text", texts, lambda missing: batch(missing, show_progress=show_progress))

    @dispatcher.span  # type: ignore[untyped-decorator]
    async def aget_text_embedding_batch(
        self, texts: list[str], show_progress: bool = False, **options: Any
    ) -> list[Embedding]:
        """Of passages. With further options, which a model may heed, all of them are computed."""
        batch = self.embed_model.aget_text_embedding_batch
        if options:
            return list(await batch(texts, show_progress=show_progress, **options))
        return await self._amany("text", texts, lambda missing: batch(missing, show_progress=show_progress))


class CachedMultiModalEmbedding(CachedEmbedding, MultiModalEmbedding):  # type: ignore[misc]
    """A multi-modal model with a cache in front. Pictures count by their pixels, wherever they come from.

    The model is given the upright pixels as PNG. A picture that is an address is not looked up.
    """

    @classmethod
    def class_name(cls) -> str:
        """As LlamaIndex names components."""
        return "CachedMultiModalEmbedding"

    def _get_image_embedding(self, img_file_path: Any) -> Embedding:
        model = self.embed_model
        return self._many("image", [img_file_path], lambda missing: [model.get_image_embedding(p) for p in missing])[0]

    async def _aget_image_embedding(self, img_file_path: Any) -> Embedding:
        model = self.embed_model

        async def compute(missing: list[Any]) -> list[Embedding]:
            return [await model.aget_image_embedding(picture) for picture in missing]

        return (await self._amany("image", [img_file_path], compute))[0]

    def get_image_embedding(self, img_file_path: Any) -> Embedding:
        """Of a picture: a path or a `BytesIO`."""
        return self._get_image_embedding(img_file_path)

    async def aget_image_embedding(self, img_file_path: Any) -> Embedding:
        """Of a picture: a path or a `BytesIO`."""
        return await self._aget_image_embedding(img_file_path)

    def get_image_embedding_batch(self, img_file_paths: list[Any], show_progress: bool = False) -> list[Embedding]:
        """Of pictures."""
        batch = self.embed_model.get_image_embedding_batch
        return self._many("image", img_file_paths, lambda missing: batch(missing, show_progress=show_progress))

    async def aget_image_embedding_batch(
        self, img_file_paths: list[Any], show_progress: bool = False
    ) -> list[Embedding]:
        """Of pictures."""
        batch = self.embed_model.aget_image_embedding_batch
        return await self._amany("image", img_file_paths, lambda missing: batch(missing, show_progress=show_progress))


def _again(kind: type[CachedEmbedding], model: Any, realm: Realm, given: Any, ttl: float | None) -> CachedEmbedding:
    return kind(model, realm, signature=given, ttl=ttl)
