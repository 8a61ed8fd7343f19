"""What the model is taught: a picture, what is asked (nothing: describe it), and the right words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mmcache.lab.data.concepts import Concept
from mmcache.lab.data.emoji import emoji
from mmcache.lab.data.picture_questions import SHAPES, Asked, named
from mmcache.lab.models.vlm.words import ANSWER, DESCRIBE, END, WEIGH, Words, split

NAMING = "what is this?"
KIND = "what kind of thing is this?"
TAUGHT_STYLES = ("noto", "fluent")
UNTAUGHT_STYLE = "twemoji"
"""Its drawings are never seen in training."""
TAUGHT, TESTED = 200, 80
"""Concepts, a fixed random choice: encoding all 1 562 thrice would take ten minutes more."""
HELD_SHARE = 0.15
"""Of the roots (see `Concept.root`), whose concepts are never taught."""


@dataclass(frozen=True, slots=True)
class Example:
    """One exercise."""

    question: str
    """Empty: describe the picture."""
    answer: str
    weighed: str = ""
    """What the picture has of the kind that a yes-or-no question names: said to itself before it answers.

    Without, a decoder this small long answers by the question alone: that is right five times in six.
    """

    def pieces(self, words: Words) -> tuple[list[int], int]:
        """All pieces, and the place of the one after which the answer begins."""
        asked = [*words.encode(self.question)[0], ANSWER] if self.question else [DESCRIBE]
        weighed = [WEIGH, *words.encode(self.weighed)[0], ANSWER] if self.weighed else []
        return [*asked, *weighed, *words.encode(self.answer)[0], END], len(asked) - 1


def of_shapes(questions: Sequence[Asked], facts: Mapping[int, tuple[str, str]]) -> list[list[Example]]:
    """easy-VQA's questions, and a description made from their answers, by picture.

    Yes-or-no questions about pictures of which `facts` knows nothing are left out.
    """
    found: list[list[Example]] = [[] for _ in range(max(one.picture for one in questions) + 1)]
    for one in questions:
        if one.answer not in ("yes", "no"):
            found[one.picture].append(Example(one.question, one.answer))
        elif one.picture in facts:
            colour, shape = facts[one.picture]
            weighed = shape if named(one.question) in SHAPES else colour
            found[one.picture].append(Example(one.question, one.answer, weighed))
    for picture, (colour, shape) in facts.items():
        found[picture].append(Example("", f"a {colour} {shape}"))
    return found


def of_concept(concept: Concept) -> list[Example]:
    """Three exercises: its name unasked, its name, and its kind (Unicode's subgroup)."""
    name = plain(concept.name)
    return [Example("", name), Example(NAMING, name), Example(KIND, plain(concept.category))]


def plain(name: str) -> str:
    """As the model writes it: lower-case words."""
    return " ".join(split(name))


def split_concepts(seed: int = 0) -> tuple[list[Concept], list[Concept], list[Concept]]:
    """Emoji that the model is taught, those of them whose new drawing is tested, and those that it never sees.

    Split by `Concept.root`: no two drawings of one thing on both sides. Raises `AssetError`.
    """
    # A name without a Latin letter or digit could not be taught.
    usable = [one for one in emoji() if split(one.name)]
    roots = sorted({one.root for one in usable})
    random = np.random.default_rng(seed)
    held = {roots[place] for place in random.permutation(len(roots))[: round(HELD_SHARE * len(roots))]}
    known, new = [one for one in usable if one.root not in held], [one for one in usable if one.root in held]
    taught = [known[place] for place in random.permutation(len(known))[:TAUGHT]]
    return taught, taught[:TESTED], [new[place] for place in random.permutation(len(new))[:TESTED]]
