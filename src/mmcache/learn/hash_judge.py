"""Train on some concepts, judge on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Literal

import numpy as np

from mmcache.keys.ushash import BITS, USHash
from mmcache.learn.hash_chance import by_chance
from mmcache.learn.hash_pairs import kept_back
from mmcache.learn.hash_scores import average_precision, balance, correlation, hamming
from mmcache.learn.hash_train import UNKNOWN, Paired, Progress, Recipe, train

FEW = 32
"""Directions where the weaker ones are left out."""
CANDIDATES = (
    *(Recipe(steps=0, labels=labels, directions=count) for labels in (0.5, 1.0) for count in (BITS, FEW)),
    Recipe(directions=FEW),
)
"""The closed form, with categories counting less or more and bits of more directions or fewer, and a training from it.
Which is best depends on how many pairs there are: from a thousand, gradients learn little that is true of other
concepts."""
FOLDS = 3
"""Times that a recipe is judged before it is chosen."""
MOST_ASKED = 2000
"""Rows of a modality that are judged by: a random choice of more."""
MOST_CHANCE = 0.01
"""A hash that random pairings match more often than this has learned nothing that can be shown."""


@dataclass(frozen=True)
class Score:
    """One direction of retrieval: mAP@10 of 64-bit codes, 0 to 1, of an untrained hash and of the trained one."""

    asked: str
    known: str
    relevance: Literal["concept", "category"]
    before: float
    after: float


@dataclass(frozen=True)
class Judged:
    """What was learned, on concepts that were kept back."""

    scores: tuple[Score, ...]
    bits: Mapping[str, tuple[float, float, float]]
    """Modality → share of bits set; how far the worst bit's share lies from one half; mean |correlation| of bits."""
    trained: int
    """Concepts."""
    kept_back: int
    chance: float
    """Share of random pairings of what was kept back that score as well; see `by_chance`."""

    @property
    def learned(self) -> bool:
        """Whether the directions became better on average, and by more than chance: half of all noise gets better."""
        gains = [score.after - score.before for score in self.scores]
        return bool(gains) and float(np.mean(gains)) > 0.0 and self.chance <= MOST_CHANCE

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "concepts": self.trained,
            "kept_back": self.kept_back,
            "chance": self.chance,
            "scores": [vars(score) for score in self.scores],
            "bits": {
                modality: {"set": mean, "furthest_from_half": worst, "correlation": alike}
                for modality, (mean, worst, alike) in self.bits.items()
            },
        }


def choose(
    pairs: Paired, candidates: Sequence[Recipe] = CANDIDATES, *, seed: int = 0, progress: Progress | None = None
) -> Recipe:
    """The candidate whose hash scores best on fifths of the concepts of `pairs` that it was not trained on.

    `pairs` are those that may be trained on: what a result is judged by must not be among them. The mean of three
    random fifths: one of a few hundred concepts decides by luck. Raises as `train`.
    """
    if len(candidates) == 1:
        return candidates[0]
    means = np.zeros(len(candidates))
    for fold in range(FOLDS):
        kept = kept_back(pairs, 0.2, seed + 1 + fold)
        training, unseen = pairs.of(~kept), pairs.of(kept)
        for at, recipe in enumerate(candidates):
            hashed = train(training, recipe, seed=seed)
            means[at] += np.mean([score.after for score in _scores(unseen, hashed, hashed, seed)])
            if progress is not None:
                progress("choosing a recipe", fold * len(candidates) + at + 1, FOLDS * len(candidates))
    return candidates[int(np.argmax(means))]


def learn(
    pairs: Paired,
    candidates: Sequence[Recipe] = CANDIDATES,
    *,
    held_out: float = 0.2,
    seed: int = 0,
    encoders: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> tuple[USHash, Judged]:
    """A hash trained on all but `held_out` of the concepts, and its scores on those. Raises as `train`.

    Which of the candidates it is trained by is chosen within those that it is trained on.
    """
    test = kept_back(pairs, held_out, seed)
    training, unseen = pairs.of(~test), pairs.of(test)
    recipe = choose(training, candidates, seed=seed, progress=progress)
    after = train(training, recipe, seed=seed, encoders=encoders, progress=progress)
    before = train(training, replace(recipe, start="random", steps=0), seed=seed)
    scores = tuple(_scores(unseen, before, after, seed))
    bits = {}
    for modality, rows in unseen.rows.items():
        codes = after.code(modality, rows)
        if len(codes):
            shares = balance(codes)
            bits[modality] = (float(shares.mean()), float(abs(shares - 0.5).max()), correlation(codes))
    judged = Judged(scores, bits, int((~test).sum()), int(test.sum()), by_chance(unseen, after, seed))
    notes = {f"mAP@10 {one.asked} to {one.known} by {one.relevance}": f"{one.after:.4f}" for one in scores}
    return replace(after, notes={**notes, "concepts": str(judged.trained), "kept back": str(judged.kept_back)}), judged


def _scores(pairs: Paired, before: USHash, after: USHash, seed: int) -> list[Score]:
    found = []
    draw = np.random.default_rng(seed)
    chosen = {m: draw.permutation(len(rows))[:MOST_ASKED] for m, rows in pairs.rows.items() if len(rows)}
    codes = {m: [hashed.code(m, pairs.rows[m][at]) for hashed in (before, after)] for m, at in chosen.items()}
    for asked, known in permutations(chosen, 2):
        mine, theirs = (pairs.concept[m][chosen[m]] for m in (asked, known))
        kinds = (pairs.category[mine], pairs.category[theirs])
        alike = {
            "concept": mine[:, None] == theirs[None, :],
            "category": (kinds[0][:, None] == kinds[1][None, :]) & (kinds[0] != UNKNOWN)[:, None],
        }
        for relevance in ("concept", "category"):
            if alike[relevance].any():
                precisions = [
                    float(average_precision(hamming(a, b), alike[relevance], seed).mean())
                    for a, b in zip(codes[asked], codes[known], strict=True)
                ]
                found.append(Score(asked, known, relevance, *precisions))
    return found
