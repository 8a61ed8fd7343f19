"""What the model is taught: a picture, what is asked (nothing: describe it), and the right words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mmcache.lab.data.concepts import Concept
from mmcache.lab.data.emoji import emoji
from mmcache.lab.data.picture_questions import Asked
from mmcache.lab.models.vlm.words import ANSWER, DESCRIBE, END, Words, split

NAMING = "what is this?"
KIND = "what kind of thing is this?"
TAUGHT_STYLES = ("noto", "fluent")
"""Twemoji's drawings are never seen in training."""
HELD_SHARE = 0.15
"""Of the concepts."""


@dataclass(frozen=True, slots=True)
class Example:
    """One exercise."""

    question: str
    """Empty: describe the picture."""
    answer: str

    def pieces(self, words: Words) -> tuple[list[int], int]:
        """All pieces, and the place of the one after which the answer begins."""
        asked = [*words.encode(self.question)[0], ANSWER] if self.question else [DESCRIBE]
        return [*asked, *words.encode(self.answer)[0], END], len(asked) - 1


def of_shapes(questions: Sequence[Asked], facts: Mapping[int, tuple[str, str]], pictures: int) -> list[list[Example]]:
    """easy-VQA's questions, and a description made from their answers, by picture."""
    found: list[list[Example]] = [[] for _ in range(pictures)]
    for one in questions:
        found[one.picture].append(Example(one.question, one.answer))
    for picture, (colour, shape) in facts.items():
        found[picture].append(Example("", f"a {colour} {shape}"))
    return found


def of_concepts(concepts: Sequence[Concept]) -> list[list[Example]]:
    """Three exercises a concept: its name unasked, its name, and its kind (Unicode's subgroup)."""
    return [
        [Example("", plain(one.name)), Example(NAMING, plain(one.name)), Example(KIND, plain(one.category))]
        for one in concepts
    ]


def plain(name: str) -> str:
    """As the model writes it: lower-case words."""
    return " ".join(split(name))


def split_concepts(seed: int = 0) -> tuple[list[Concept], list[Concept]]:
    """(known, new): emoji that the model is taught, and those that it never sees.

    Split by `Concept.root`: no two drawings of one thing on both sides. Raises `AssetError`.
    """
    # A name without a Latin letter or digit could not be taught.
    usable = [one for one in emoji() if split(one.name)]
    roots = sorted({one.root for one in usable})
    drawn = np.random.default_rng(seed).permutation(len(roots))[: round(HELD_SHARE * len(roots))]
    held = {roots[place] for place in drawn}
    return [one for one in usable if one.root not in held], [one for one in usable if one.root in held]
