"""The corpus of table `joint`: a manual's figures in a real vector store, and embeddings that are computed once.

Documents are vectors of both modalities side by side, each brought to norm 1 by frozen statistics of the corpus; the
store (usearch, HNSW) finds the nearest by cosine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from mmcache.cache import Cache
from mmcache.keys.joint import Alignment, Floats
from mmcache.lab.data.gimp_help import Figure
from mmcache.lab.fetch import HOME
from mmcache.lab.models import ImageEncoder, TextEncoder
from mmcache.lab.table import Progress, percentile
from mmcache.model.errors import AssetError

FEATURES = HOME / "features-joint"
"""Where embeddings are kept between runs: the product's own cache."""


class Embeddings:
    """Real models behind a cache on disk, so that no run computes an embedding again; and what one costs."""

    def __init__(self) -> None:
        self.image, self.text = ImageEncoder(), TextEncoder()
        self._cache = Cache(FEATURES, memory="256MiB", disk="2GiB")
        self._pictures = self._cache.wrap(
            lambda picture: np.ascontiguousarray(self.image.encode(picture)[0]),
            modality="image", signature=self.image.signature, guard=False,
        )  # fmt: skip
        self._texts = self._cache.wrap(
            lambda words: self.text.encode(words), modality="text", signature=self.text.signature, guard=False
        )

    def picture(self, picture: Any) -> Floats:
        """DINOv2's class token, float32 [384]."""
        return np.asarray(self._pictures(picture), np.float32)

    def words(self, text: str) -> Floats:
        """e5's vector, float32 [384]."""
        return np.asarray(self._texts(text), np.float32)

    def costs(self, figures: Sequence[Figure]) -> tuple[float, float]:
        """Median CPU seconds of one real encoding of a picture and of a question, one thread."""
        pictures, texts, alone = list[float](), list[float](), ImageEncoder(threads=1)
        for number, figure in enumerate(figures):
            picture = Image.open(figure.picture).convert("RGB")
            start = time.process_time()
            alone.encode(picture)
            middle = time.process_time()
            self.text.encode(f"What does “{figure.caption}” show?")
            if number:  # the first loads the models
                pictures.append(middle - start)
                texts.append(time.process_time() - middle)
        return percentile(pictures, 0.5), percentile(texts, 0.5)

    def close(self) -> None:
        """Keep what was computed."""
        self._cache.close()


@dataclass
class Store:
    """usearch over one version of the corpus. `search` is what a `Retrieval` calls."""

    alignment: Alignment
    pictures: Floats
    texts: Floats
    """Of all documents, float32 [n, d] each."""
    gone: frozenset[int] = frozenset()
    """Documents that this version lacks."""
    searches: int = field(default=0, init=False)

    @cached_property
    def _index(self) -> Any:
        try:
            from usearch.index import Index
        except ImportError as error:
            raise AssetError("usearch is not installed; run `python -m pip install 'mmcache[peers]'`") from error
        kept = np.array([number for number in range(len(self.pictures)) if number not in self.gone], np.int64)
        vectors = self._joined(self.pictures[kept], self.texts[kept])
        index = Index(ndim=vectors.shape[1], metric="cos", dtype="f32", expansion_search=128)
        index.add(kept, vectors, threads=1)
        return index

    def _joined(self, pictures: Floats, texts: Floats) -> Floats:
        sides = self.alignment.picture.aligned(pictures), self.alignment.text.aligned(texts)
        return np.ascontiguousarray(np.concatenate(sides, axis=-1))

    def search(self, picture: Floats, text: Floats, k: int) -> list[int]:
        """Numbers of the nearest documents, best first."""
        self.searches += 1
        return [int(number) for number in self._index.search(self._joined(picture, text), k, threads=1).keys]


def corpus(figures: Sequence[Figure], embeddings: Embeddings, progress: Progress) -> Store:
    """All figures, embedded and indexed."""
    pictures, texts = [], []
    for number, figure in enumerate(figures):
        pictures.append(embeddings.picture(figure.picture))
        texts.append(embeddings.words(figure.text))
        if number % 20 == 0:
            progress("embedding the corpus", number, len(figures))
    alignment = Alignment.fit(pictures, texts)
    return Store(alignment, np.stack(pictures), np.stack(texts))
