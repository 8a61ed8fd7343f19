"""Paraphrase hits: one stream of worded requests; caches that decide by cosine, by calibration, by the product's flow.

A decider sees the nearest stored wording and its cosine, as semantic caches do; what it serves is right where both
wordings mean the same. Whatever is computed is stored, so a wording that comes again is an exact hit, for all alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from mmcache.calibration.base import Calibration, Verdict
from mmcache.calibration.bounds import clopper_pearson
from mmcache.lab.data.meanings import Asked, Household
from mmcache.lab.semantic_vectors import text_vectors
from mmcache.lab.table import Progress, silent
from mmcache.likeness.base import Likeness, WordDifference

Floats = npt.NDArray[np.float32]
Words = Callable[[int, int], WordDifference]
"""What differs between two of a corpus' texts, by place."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Who asks."""

    name: str
    kinds: int
    """Of requests."""
    each: int
    """Choices of room, device, number for each kind, at most."""
    requests: int


HOUSEHOLD = Crowd("household", 40, 10, 10_000)
"""One family: few meanings, each in dozens of wordings in the end."""
SERVICE = Crowd("service", 120, 40, 8_000)
"""Many families: thousands of meanings, most of them in a few wordings."""
EXPONENT = 0.9
"""Zipf's, of how popular a meaning is."""


@dataclass(frozen=True)
class Corpus:
    """One stream's requests, in the order in which they were drawn."""

    texts: tuple[str, ...]
    """Distinct, sorted."""
    vectors: Floats
    """float32 [texts, 384], L2-normalised."""
    meanings: tuple[int, ...]
    """Of each text."""
    stream: tuple[int, ...]
    """Places of texts."""

    @cached_property
    def cosines(self) -> Floats:
        """float32 [texts, texts]."""
        found: Floats = self.vectors @ self.vectors.T
        return found

    @cached_property
    def names(self) -> tuple[bytes, ...]:
        """16 bytes that name each text."""
        return tuple(blake3(text.encode()).digest(16) for text in self.texts)

    def order(self, seed: int) -> list[int]:
        """The stream, shuffled."""
        found = list(self.stream)
        random.Random(seed).shuffle(found)
        return found


def asked_by(crowd: Crowd, requests: int | None = None, progress: Progress = silent, seed: int = 0) -> Corpus:
    """A voice assistant's requests, embedded by multilingual-e5-small. Raises `AssetError`."""
    household = Household(crowd.kinds, crowd.each, seed)
    return corpus(list(household.stream(requests or crowd.requests, EXPONENT)), progress)


def corpus(asked: Sequence[Asked], progress: Progress = silent) -> Corpus:
    """Embeds what was asked."""
    meant = {one.text: one.meaning for one in asked}
    texts = tuple(sorted(meant))
    places = {text: place for place, text in enumerate(texts)}
    numbers = {meaning: number for number, meaning in enumerate(dict.fromkeys(meant.values()))}
    return Corpus(
        texts,
        text_vectors(texts, progress),
        tuple(numbers[meant[text]] for text in texts),
        tuple(places[one.text] for one in asked),
    )


@dataclass
class Tally:
    """What became of a stream's requests."""

    requests: int = 0
    exact: int = 0
    checked: int = 0
    near: list[bool] = field(default_factory=list)
    """Of each near hit, whether it was wrong."""
    when: list[int] = field(default_factory=list)
    """Of each near hit, which request it was."""

    @property
    def hits(self) -> int:
        """Near hits."""
        return len(self.near)

    @property
    def wrong(self) -> int:
        """Of the near hits."""
        return sum(self.near)

    @property
    def error(self) -> float:
        """Wrong ÷ near hits; 0 without any."""
        return self.wrong / self.hits if self.hits else 0.0

    def late(self) -> int:
        """Near hits in the second half."""
        return sum(place >= self.requests / 2 for place in self.when)

    def interval(self) -> tuple[float, float]:
        """Clopper–Pearson's, of the error, 95 %."""
        return clopper_pearson(self.wrong, self.hits)

    def hit(self, wrong: bool) -> None:
        """A near hit of the latest request."""
        self.near.append(wrong)
        self.when.append(self.requests - 1)


class Store:
    """Computed wordings of a corpus; the nearest of those that are looked for."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self._absent = np.full(len(corpus.texts), -2.0, np.float32)
        self._found = False
        self.known: set[int] = set()
        """Those that hit exactly."""

    def add(self, text: int, near: bool = True) -> None:
        """Store a wording with its right answer. near: it is looked for by others."""
        self.known.add(text)
        if near:
            self._absent[text] = 0.0
            self._found = True

    def nearest(self, text: int) -> tuple[int, float] | None:
        """(stored text, cosine)."""
        if not self._found:
            return None
        near = self.corpus.cosines[text] + self._absent
        place = int(near.argmax())
        return place, float(near[place])


def by_threshold(corpus: Corpus, order: Sequence[int], least: float, words: Words | None = None) -> Tally:
    """One global threshold: served from `least` on. words: and only where no word differs."""
    tally, store = Tally(), Store(corpus)
    for text in order:
        tally.requests += 1
        if text in store.known:
            tally.exact += 1
            continue
        found = store.nearest(text)
        if found is not None and found[1] >= least and (words is None or not words(text, found[0])):
            tally.hit(corpus.meanings[text] != corpus.meanings[found[0]])
        else:
            store.add(text)
    return tally


def by_calibration(
    corpus: Corpus, order: Sequence[int], rule: Calibration, seed: int, words: Words, sparse: bool = False
) -> Tally:
    """What `rule` decides about the nearest stored wording; it learns from all that is computed.

    sparse: a wording is looked for by others only where the nearest one's answer was wrong for it, as vCache stores.
    """
    tally, store, draw = Tally(), Store(corpus), random.Random(seed)
    for text in order:
        tally.requests += 1
        if text in store.known:
            tally.exact += 1
            continue
        found = store.nearest(text)
        if found is not None:
            place, cosine = found
            likeness = Likeness(corpus.names[text], corpus.names[place], cosine, words(text, place))
            decision = rule.decide(likeness, draw.random())
            right = corpus.meanings[text] == corpus.meanings[place]
            if decision.verdict is Verdict.SERVE:
                tally.hit(not right)
                continue
            tally.checked += decision.verdict is Verdict.CHECK
            rule.learn(likeness, decision, right)
            store.add(text, near=not (sparse and right))
        else:
            store.add(text)
    return tally


def thresholds(corpus: Corpus, count: int = 24) -> list[float]:
    """From where nothing is served to where nearly all is: quantiles of the cosine to the nearest other wording."""
    near = corpus.cosines - 3 * np.eye(len(corpus.texts), dtype=np.float32)
    shares = 1 - np.geomspace(0.001, 0.9, count)
    return [1.01, *(float(value) for value in np.quantile(near.max(axis=1), shares))]


def best_within(tallies: Sequence[Tally], error: float) -> Tally:
    """That with the most hits of those whose measured error is at most `error`: chosen in hindsight."""
    return max((tally for tally in tallies if tally.error <= error), key=lambda tally: tally.hits)
