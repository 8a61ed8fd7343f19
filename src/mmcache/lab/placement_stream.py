"""What table `placement` gathers: real features of real pictures and their texts, in a synthetic stream of requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.lab.data.emoji import emoji
from mmcache.lab.models.vlm.tokens import kept
from mmcache.lab.pairs import Pairs, pairs
from mmcache.lab.table import Progress
from mmcache.placement.alignment import JointSpace
from mmcache.placement.cosine import nearest

Floats = npt.NDArray[np.float32]
Block = tuple[str, int]
"""`picture`, or the language of a text; and its concept."""

LANGUAGES = ("en", "fr")
"""Asked for in the first half of a stream, and in the second."""
STYLE = "noto"
TEXTS = 6
"""Nearest texts that are gathered with a picture."""
PAGE = (64, 384)
"""Tokens and channels of a page: 48 KiB in FP16. A picture's 256 patch tokens take four, a text's vector one."""
SKEW = 0.9


@dataclass(frozen=True)
class Corpus:
    """Blocks, and vectors to compare them by."""

    pictures: Floats
    """float32 [n, 768]: DINOv2's class token beside its mean patch token."""
    texts: dict[str, Floats]
    """Language → float32 [n, 384], e5."""
    blocks: dict[Block, npt.NDArray[np.float16]]
    """What is stored: patch tokens [256, 384]; a text's vector [1, 384]."""

    def __len__(self) -> int:
        return len(self.pictures)

    def space(self, seen: npt.NDArray[np.int64]) -> JointSpace:
        """The space that is learned from these concepts' pictures and texts."""
        space = JointSpace({"image": self.pictures.shape[1], "text": PAGE[1]}, anchor="text")
        for vectors in self.texts.values():
            space.learn("image", self.pictures[seen], vectors[seen])
        return space

    def near(self, space: JointSpace, language: str) -> npt.NDArray[np.int64]:
        """int64 [n, TEXTS]: which texts lie nearest to each picture."""
        return nearest(space.place("image", self.pictures), space.place("text", self.texts[language]), TEXTS)[0]


def corpus(count: int, whole: bool, progress: Progress) -> Corpus:
    """`count` concepts, a fixed random choice. whole: of all features, which are kept; else only so many are computed.
    Raises `AssetError`."""
    concepts = emoji()
    chosen = sorted(np.random.default_rng(0).permutation(len(concepts))[:count].tolist())
    found: Pairs = pairs("emoji", progress, None if whole else count)
    rows = chosen if whole else list(range(count))
    images, texts = found.modalities["image"], found.modalities["text"]

    def of(features: Floats, sources: tuple[str, ...], numbers: npt.NDArray[np.int64], source: str) -> Floats:
        mask = np.array([one == source for one in sources])
        by_concept = dict(zip(numbers[mask].tolist(), np.flatnonzero(mask).tolist(), strict=True))
        return np.asarray(features[[by_concept[row] for row in rows]], np.float32)

    pictures = of(images.rows, images.source, images.concept, STYLE)
    words = {language: of(texts.rows, texts.source, texts.concept, language) for language in LANGUAGES}
    drawings = {f"{STYLE} {concepts[i].name}": concepts[i].pictures[STYLE] for i in chosen}
    tokens = kept("placement", drawings, progress)
    blocks: dict[Block, npt.NDArray[np.float16]] = {}
    for n in range(count):
        blocks["picture", n] = np.ascontiguousarray(tokens[n, 1:])
        for language in LANGUAGES:
            blocks[language, n] = words[language][n : n + 1].astype(np.float16)
    return Corpus(pictures, words, blocks)


@dataclass(frozen=True)
class Request:
    """Blocks in the order in which they are gathered."""

    blocks: tuple[Block, ...]


def stream(corpus: Corpus, count: int, seed: int) -> Iterator[Request]:
    """Pictures by Zipf's law, each with its nearest texts and followed by the picture that it is shown with.

    Halfway, another language is asked for, other pictures become popular, and pictures are shown with others.
    """
    random, n = np.random.default_rng(seed), len(corpus)
    truth = corpus.space(np.arange(n))
    near = {language: corpus.near(truth, language) for language in LANGUAGES}
    weights = 1.0 / np.arange(1, n + 1) ** SKEW
    for language in LANGUAGES:
        popular, partner = random.permutation(n), random.permutation(n)
        for rank in random.choice(n, count // 2, p=weights / weights.sum()).tolist():
            first = int(popular[rank])
            shown = (first, int(partner[first]))
            yield Request(
                tuple(
                    block
                    for picture in shown
                    for block in (("picture", picture), *((language, int(text)) for text in near[language][picture]))
                )
            )
