"""Where the small vision-language model looks: each picture's questions, and each picture unasked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mmcache.hotkeys.score import Attended, attended
from mmcache.lab.data.picture_questions import COLOURS, Asked, asked, facts, kind, named
from mmcache.lab.models.vlm import VisionLanguage, tokens
from mmcache.lab.models.vlm.examples import KIND, NAMING
from mmcache.lab.table import Progress, silent

QUESTIONS = 8
"""A picture at most."""


@dataclass(frozen=True)
class Reading:
    """One question about one picture."""

    about: str
    """The topic that it asks about; empty: none that trends."""
    nats: Attended


@dataclass(frozen=True)
class Seen:
    """One picture."""

    topics: tuple[str, ...]
    """That it belongs to."""
    readings: tuple[Reading, ...]


def catalogue(shapes: int, emoji: int, progress: Progress = silent) -> tuple[list[Seen], int]:
    """`shapes` drawn shapes of easy-VQA's test split and `emoji` of those the model was taught, and how many maps.

    Topics are what the pictures show by their labels: a colour and a shape; an emoji's subgroup. The text attention of
    a question is that of all its words and its answer's; the image attention is that of the description, which nothing
    is asked for. Raises `AssetError`.
    """
    model = VisionLanguage()
    model.load()
    known, by_picture = facts("test"), defaultdict[int, list[Asked]](list)
    for one in asked("test"):
        by_picture[one.picture].append(one)
    eyes, found = tokens.of_shapes_test(progress), list[Seen]()
    for done, picture in enumerate(list(known)[:shapes]):
        progress("cross-attention of shapes", done, shapes)
        questions = by_picture[picture][:QUESTIONS]
        about = [_about(one, known[picture]) for one in questions]
        found.append(_seen(model, eyes[picture], known[picture], [one.question for one in questions], about))
    if emoji:
        concepts, drawn = tokens.of_emoji(progress)["taught"]
        for done in range(emoji):
            progress("cross-attention of emoji", done, emoji)
            subgroup = concepts[2 * done].category  # each concept is there in two drawings
            found.append(_seen(model, drawn[2 * done], (subgroup,), (NAMING, KIND), ("", subgroup)))
    return found, sum(1 + len(one.readings) for one in found)


def _about(one: Asked, fact: tuple[str, str]) -> str:
    """The one of a picture's two topics that a question is about."""
    of = kind(one.question)
    if of in ("colour", "shape"):
        return fact[0] if of == "colour" else fact[1]
    return fact[0] if named(one.question) in COLOURS else fact[1]


def _seen(
    model: VisionLanguage,
    eyes: np.ndarray[tuple[int, ...], np.dtype[np.float16]],
    topics: tuple[str, ...],
    questions: Sequence[str],
    about: Sequence[str],
) -> Seen:
    patches = np.asarray(eyes, np.float32)
    unasked = _flat(model.attention(patches))
    return Seen(
        topics,
        tuple(
            Reading(topic, attended(_flat(model.attention(patches, question)), unasked))
            for question, topic in zip(questions, about, strict=True)
        ),
    )


def _flat(maps: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """[words, 16, 16] → [words that were seen, 256]: a word without a piece of its own has no map."""
    flat = maps.reshape(len(maps), -1)
    seen: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = flat[flat.sum(axis=1) > 0.5]
    return seen


def topics(pictures: Sequence[Seen], least: int = 4) -> dict[str, list[int]]:
    """Topic → the pictures that belong to it, of topics that have `least`."""
    counts = Counter(topic for one in pictures for topic in one.topics)
    return {
        topic: [place for place, one in enumerate(pictures) if topic in one.topics]
        for topic, count in sorted(counts.items())
        if count >= least
    }
