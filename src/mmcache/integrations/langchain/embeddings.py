"""`cached_embeddings`: an `Embeddings` in front of another one. Only what is missing reaches the model, queries too."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings

from mmcache.cache import Cache
from mmcache.integrations.framework.realm import Realm, TenantOption
from mmcache.integrations.framework.signing import check_alone, signature_of
from mmcache.integrations.framework.steady import Steady
from mmcache.integrations.framework.vectors import Vectors
from mmcache.model.errors import MMCacheError, SettingsError
from mmcache.model.signature import Signature

Vector = list[float]

_ROLES = {"document": "text", "query": "text", "image": "image"}


def cached_embeddings(
    embeddings: Embeddings,
    cache: Cache,
    *,
    signature: Signature | str | None = None,
    tenant: TenantOption = None,
    namespace: str | None = None,
    ttl: float | None = None,
) -> CachedEmbeddings:
    """`embeddings`, with a cache in front.

    >>> embeddings = cached_embeddings(OpenAIEmbeddings(), Cache("~/.cache/mmcache"))

    Documents, queries and pictures (where the model has `embed_image`) are different keys; the model's settings are in
    them. signature: which model this is, in which version, where it does not name one itself. tenant: a name, or a
    function that tells it at each call. Raises `UnversionedModelError`, `SettingsError`.
    """
    kind = CachedImageEmbeddings if callable(getattr(embeddings, "embed_image", None)) else CachedEmbeddings
    return kind(embeddings, Realm(cache, tenant, namespace), signature, ttl)


class CachedEmbeddings(Embeddings):  # type: ignore[misc]
    """Made by `cached_embeddings`."""

    def __init__(
        self, embeddings: Embeddings, realm: Realm, signature: Signature | str | None, ttl: float | None
    ) -> None:
        if not isinstance(embeddings, Embeddings):
            raise SettingsError(f"embeddings are LangChain's Embeddings, not {type(embeddings).__name__}")
        self.embeddings, self._realm, self._given, self._ttl = embeddings, realm, signature, ttl
        self._vectors = Steady(embeddings, self._sign)
        _ = self._vectors.value()

    def _sign(self) -> dict[str, Vectors]:
        model = self.embeddings
        check_alone(model)
        return {
            role: Vectors(self._realm, signature_of(model, self._given, f"langchain {role}"), modality, self._ttl)
            for role, modality in _ROLES.items()
        }

    def facts_for_keys(self) -> str:
        """What the keys of other caches need to know of it: the model's signature."""
        return self._vectors.value()["document"].digest

    def _many(self, role: str, sources: list[Any], compute: Callable[[list[Any]], list[Any]]) -> list[Vector]:
        try:
            vectors = self._vectors.value()[role]
        except MMCacheError as error:  # reconfigured, and now nothing says which model it is
            self._realm.failed(f"went on without the cache: {type(error).__name__}")
            return compute(sources)
        return vectors.many(sources, compute)[0]

    async def _amany(self, role: str, sources: list[Any], compute: Callable[[list[Any]], Any]) -> list[Vector]:
        try:
            vectors = self._vectors.value()[role]
        except MMCacheError as error:
            self._realm.failed(f"went on without the cache: {type(error).__name__}")
            return list(await compute(sources))
        return (await vectors.amany(sources, compute))[0]

    def embed_documents(self, texts: list[str]) -> list[Vector]:
        """Of documents, in their order."""
        return self._many("document", texts, self.embeddings.embed_documents)

    def embed_query(self, text: str) -> Vector:
        """Of a query."""
        model = self.embeddings
        return self._many("query", [text], lambda missing: [model.embed_query(one) for one in missing])[0]

    async def aembed_documents(self, texts: list[str]) -> list[Vector]:
        """Of documents, in their order."""
        return await self._amany("document", texts, self.embeddings.aembed_documents)

    async def aembed_query(self, text: str) -> Vector:
        """Of a query."""
        model = self.embeddings

        async def compute(missing: list[str]) -> list[Vector]:
            return [await model.aembed_query(one) for one in missing]

        return (await self._amany("query", [text], compute))[0]


class CachedImageEmbeddings(CachedEmbeddings):
    """Of a model that also embeds pictures. They count by their pixels; the model is given files of these, as PNG."""

    def embed_image(self, uris: list[str], **options: Any) -> list[Vector]:
        """Of pictures (paths), in their order; addresses are not looked up. With options, all are computed."""
        if options:
            return list(self.embeddings.embed_image(uris, **options))
        return self._many("image", uris, self._see)

    def _see(self, pictures: list[Any]) -> list[Vector]:
        with tempfile.TemporaryDirectory() as folder:
            return list(self.embeddings.embed_image([_path(p, Path(folder, str(n))) for n, p in enumerate(pictures)]))


def _path(picture: Any, place: Path) -> str:
    """A path stays; a picture's file is written."""
    if not hasattr(picture, "getvalue"):
        return str(picture)
    file = place.with_suffix(".png")
    file.write_bytes(picture.getvalue())
    return str(file)
