"""`FusedBlocks`: a stored value for each attention triple, known by its region and its words, tied to its picture."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from mmcache.fused.triples import NEAR, THRESHOLD, Triple, triples
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.keys.recipe import Size
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.policies.entropy import attention_entropy


class Keeper(Protocol):
    """What is needed of a `Cache`."""

    def key(
        self,
        source: Any,
        *,
        modality: str,
        signature: Signature | str,
        tenant: str | None = None,
        namespace: str | None = None,
    ) -> Key:
        """See `Cache.key`."""

    def put(self, key: Key, value: Any, /) -> bool:
        """See `Cache.put`."""

    def get_or_compute(self, key: Key, compute: Callable[[], Any], /) -> Any:
        """See `Cache.get_or_compute`."""

    def link(self, parent: Key, children: Iterable[Key]) -> None:
        """See `Cache.link`."""

    def attended(self, key: Key, entropy: float) -> None:
        """See `Cache.attended`."""


@dataclass(frozen=True, slots=True)
class FusedBlock:
    """A triple, its key and its value."""

    triple: Triple
    key: Key
    value: Any
    entropy: float
    """Nats: mean over the span's words of the entropy of their attention over the whole picture."""


class FusedBlocks:
    """Fused blocks of one model in one realm of a cache.

    signature: the model that fuses, and what else its values depend on besides region and span.
    tenant, namespace: as for `Cache.key`; None = the cache's own. The picture's key must be of the same realm, or it
    names another picture.

    A value must be a function of the region's pixels and the span's words alone: the rest of the question is no part of
    its key. Where it is not, put the question into the signature.
    """

    def __init__(
        self,
        cache: Keeper,
        signature: Signature | str,
        *,
        tenant: str | None = None,
        namespace: str | None = None,
    ) -> None:
        self._cache = cache
        self._signature = signature
        self._tenant, self._namespace = tenant, namespace

    def key(self, picture: Key, triple: Triple) -> Key:
        """The key of `triple` on the picture of key `picture` (the whole picture's, whatever its signature).

        Equal pictures, regions and spans have equal keys, whatever the score. Raises `InvalidInputError` for what is
        no key, and for a span that is no valid Unicode.
        """
        if not isinstance(picture, Key):
            raise InvalidInputError(f"the picture is given by its key, cache.key(…), not by {type(picture).__name__}")
        try:
            span = unicodedata.normalize("NFC", triple.span).encode()
        except UnicodeEncodeError as error:
            raise InvalidInputError("the span holds a lone surrogate; pass valid Unicode") from error
        # A tensor's scope: the value is neither picture nor text, so it is stored by neither's codec.
        words = self._cache.key(
            np.frombuffer(span, np.uint8), modality="tensor", signature=self._signature,
            tenant=self._tenant, namespace=self._namespace,
        )  # fmt: skip
        # Both digests are keyed with the realm's salt already; the domain keeps these apart from plain regions.
        named = framed("fused", picture.region, triple.region.canonical(), words.digest)
        return Key(words.scope, picture.digest, blake3(named).digest(length=DIGEST_BYTES))

    def keep(
        self,
        picture: Key,
        picture_size: Size,
        attention: npt.NDArray[np.floating],
        words: Sequence[str],
        compute: Callable[[Triple], Any],
        *,
        threshold: float = THRESHOLD,
        near: float = NEAR,
        least_score: float = 0.0,
    ) -> list[FusedBlock]:
        """Cut `attention` (see `triples`) and give each triple's value: the stored one, or `compute(triple)`'s, stored.

        Each block is linked to `picture`, so invalidating the picture drops it; the cache is told how sure the
        attention was, of each block by its own words and of the picture by all of them. The highest score first.
        """
        cut = triples(
            attention, words, picture_size, threshold=threshold, near=near, least_score=least_score
        )  # fmt: skip
        found = []
        for triple in cut:
            key = self.key(picture, triple)
            # Before it is computed: who invalidates the picture meanwhile must reach it.
            self._cache.link(key, [picture])
            value = self._cache.get_or_compute(key, partial(compute, triple))
            sure = _entropy(attention[triple.words.start : triple.words.stop])
            self._cache.attended(key, sure)
            found.append(FusedBlock(triple, key, value, sure))
        if found:
            self._cache.attended(picture, _entropy(attention))
        return found

    def put(self, picture: Key, triple: Triple, value: Any) -> Key:
        """Store a value that was computed elsewhere; its key."""
        key = self.key(picture, triple)
        self._cache.link(key, [picture])
        self._cache.put(key, value)
        return key


def _entropy(attention: npt.NDArray[np.floating]) -> float:
    """Mean over words, in nats, of the spread over the picture's cells."""
    maps = np.asarray(attention, np.float64).reshape(len(attention), -1)
    peaks = maps.max(axis=1, keepdims=True)  # sums of what is near the largest float would overflow
    return attention_entropy(np.divide(maps, peaks, out=np.zeros_like(maps), where=peaks > 0), logits=False)
