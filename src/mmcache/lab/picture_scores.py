"""How right the small vision-language model is, and whether it looks where the answer is: figures of table `vqa`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from mmcache.fused import triples
from mmcache.keys.recipe import Box
from mmcache.lab.data.picture_questions import Asked, kind
from mmcache.lab.models.vlm.words import split

Mask = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.float64]

Answer = Callable[[int, Sequence[str | None]], list[str]]
"""The number of a picture, questions about it → answers."""
Look = Callable[[int], tuple[npt.NDArray[np.float32], Sequence[str], int]]
"""The number of a picture → cross-attention [words, h, w], the words, how many of them were asked."""

BACKGROUND, LIGHT = 60, 200
"""A pixel is the shape's where its channels differ from the background's by more than 60 in sum (of 765); backgrounds
have 200 or more in each.
"""


@dataclass(frozen=True)
class Marked:
    """Right or wrong, question by question."""

    picture: npt.NDArray[np.int64]
    kind: tuple[str, ...]
    right: Scores
    """1 or 0."""

    def of(self, kind: str) -> Marked:
        """Of one type of question only."""
        kept = np.array([one == kind for one in self.kind])
        return Marked(self.picture[kept], (kind,) * int(kept.sum()), self.right[kept])

    def by_picture(self, draws: int = 500) -> list[float]:
        """Per cent right of `draws` bootstrap samples of pictures: questions about one stand and fall together."""
        pictures, number = np.unique(self.picture, return_inverse=True)
        right, asked = np.bincount(number, self.right), np.bincount(number)
        drawn = np.random.default_rng(0).integers(0, len(pictures), (draws, len(pictures)))
        return list(100 * right[drawn].sum(axis=1) / asked[drawn].sum(axis=1))


def mark(questions: Sequence[Asked], answer: Answer, shown: Mapping[int, int] | None = None) -> Marked:
    """Ask everything. `shown`: another picture's number in the place of the one that was asked about (a control)."""
    by_picture: dict[int, list[Asked]] = {}
    for one in questions:
        by_picture.setdefault(one.picture, []).append(one)
    pictures, kinds, right = list[int](), list[str](), list[float]()
    for picture, of in by_picture.items():
        answers = answer(shown[picture] if shown else picture, [one.question for one in of])
        for one, said in zip(of, answers, strict=True):
            pictures.append(picture)
            kinds.append(kind(one.question))
            right.append(float(said == one.answer))
    return Marked(np.array(pictures), tuple(kinds), np.array(right))


def blind(taught: Sequence[Asked]) -> Answer:
    """The question-only baseline: for each question, the answer that was right most often in training."""
    counts: dict[str, Counter[str]] = {}
    for one in taught:
        counts.setdefault(one.question, Counter())[one.answer] += 1
    most = {question: min(of, key=lambda word: (-of[word], word)) for question, of in counts.items()}
    return lambda picture, questions: [most.get(question or "", "") for question in questions]


def overlap(said: str, wanted: str) -> float:
    """F1 of the words."""
    one, other = Counter(split(said)), Counter(split(wanted))
    shared = sum((one & other).values())
    return 2 * shared / (sum(one.values()) + sum(other.values())) if shared else 0.0


# Where it looks -----------------------------------------------------------------------------------------------------


def shape_mask(path: Path) -> Mask:
    """bool [64, 64]: the pixels of the one shape."""
    pixels = _pixels(path)
    mask: Mask = np.asarray(np.abs(pixels - _background(pixels)).sum(axis=2) > BACKGROUND)
    return mask


def _pixels(path: Path) -> npt.NDArray[np.int64]:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"), np.int64)


def _background(pixels: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Its colour. Backgrounds are pastel and shapes are not, so it is the commonest light one."""
    colours, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_counts=True)
    light = colours.min(axis=1) >= LIGHT
    found: npt.NDArray[np.int64] = colours[light][counts[light].argmax()]
    return found


def cells_of(mask: Mask, side: int = 16) -> Mask:
    """bool [side, side]: the cells that hold a pixel of the shape."""
    step = mask.shape[0] // side
    found: Mask = np.asarray(mask.reshape(side, step, side, step).any(axis=(1, 3)))
    return found


@dataclass(frozen=True)
class Found:
    """One picture."""

    hit: float
    """Whether the cell with most of the answer's attention holds a pixel of the shape (the pointing game)."""
    chance: float
    """The share of all cells that do."""
    inside: float
    """The share of the answer's attention on them."""
    overlap: float
    """Intersection over union of the best triple's box and the shape's, 0 where there is no triple."""
    elsewhere: float
    """The same with the shape of another picture (a control)."""
    box: Box
    """Of the best triple."""


def point(pictures: Sequence[int], look: Look, masks: Mapping[int, Mask]) -> list[Found]:
    """The pointing game (Zhang et al., 2018) and the cut of each picture's attention (see `fused.triples`)."""
    found = []
    for place, picture in enumerate(pictures):
        attention, words, asked = look(picture)
        cells, other = cells_of(masks[picture]), masks[pictures[place - 1]]
        of_answer = attention[asked:].mean(axis=0)
        best = triples(attention, words, masks[picture].shape[::-1])[0].region.box
        found.append(
            Found(
                float(cells.flat[of_answer.argmax()]),
                float(cells.mean()),
                float(of_answer[cells].sum()),
                intersection_over_union(best, box_of(masks[picture])),
                intersection_over_union(best, box_of(other)),
                best,
            )
        )
    return found


def box_of(mask: Mask) -> Box:
    """left, upper, right, lower of the smallest rectangle that holds the mask."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def intersection_over_union(one: Box, other: Box) -> float:
    """Of two rectangles."""
    across = max(0, min(one[2], other[2]) - max(one[0], other[0]))
    down = max(0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return across * down / (areas - across * down)


def painted_over(path: Path, box: Box) -> Image.Image:
    """The picture with `box` in its background's colour."""
    pixels = _pixels(path)
    left, upper, right, lower = box
    pixels[upper:lower, left:right] = _background(pixels)
    return Image.fromarray(pixels.astype(np.uint8))
