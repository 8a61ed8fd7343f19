"""easy-VQA (Zhou, 2019; MIT): drawn shapes, and questions about them with their answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import msgspec

from mmcache.lab.assets import Asset
from mmcache.lab.data.texts import QUESTIONS

Split = Literal["train", "test"]

ASKED = {
    "train": QUESTIONS,
    "test": Asset(
        "easy_vqa",
        "data/test/questions.json",
        "0d4630a51bafec65343e2f6af9cdd20cf8eae214344ef57636202eec409553f7",
    ),
}
SHAPES = ("circle", "rectangle", "triangle")
COLOURS = ("black", "blue", "brown", "gray", "green", "red", "teal", "yellow")


@dataclass(frozen=True, slots=True)
class Asked:
    """One question about one picture, and the right answer."""

    question: str
    answer: str
    picture: int
    """Its place in `shapes` of the same split."""


@cache
def asked(split: Split) -> tuple[Asked, ...]:
    """The package's own split: 38 575 questions to train on, 9 673 to test on; 107 distinct. Raises `AssetError`."""
    rows = msgspec.json.decode(ASKED[split].read(), type=list[tuple[str, str, int]])
    return tuple(Asked(*row) for row in rows)


def kind(question: str) -> str:
    """The type of a question: `colour`, `shape`, `is there` or `is there not`."""
    words = question.rstrip("?").split()
    if words[0] == "what":
        return "colour" if "color" in words else "shape"
    return "is there not" if {"not", "no"}.intersection(words) else "is there"


@cache
def facts(split: Split) -> dict[int, tuple[str, str]]:
    """(colour, shape) of each picture, as the answers to its questions give them away; others are left out."""
    found: dict[int, dict[str, str]] = {}
    for one in asked(split):
        if kind(one.question) in ("colour", "shape"):
            found.setdefault(one.picture, {})[kind(one.question)] = one.answer
        elif one.answer == ("no" if kind(one.question) == "is there not" else "yes"):
            word = named(one.question)
            found.setdefault(one.picture, {})["shape" if word in SHAPES else "colour"] = word
    return {picture: (of["colour"], of["shape"]) for picture, of in sorted(found.items()) if len(of) == 2}


def named(question: str) -> str:
    """The colour or shape that a yes-or-no question names."""
    words = question.rstrip("?").split()
    return next(word for word in (*SHAPES, *COLOURS) if word in words)
