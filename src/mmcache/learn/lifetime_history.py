"""Uses of keys as a history in intervals, and what of it may be learned from: inputs before a cut, outcomes after it.

Nothing of an input lies behind its cut: uses, the heat of what is alike, first sights; and what groups are was found
in the span that is trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.lifespan.inputs import Floats, Integers, LifeInputs, LifeScale, heat_of_alike, nearest, series
from mmcache.model.errors import InvalidInputError

Labels = npt.NDArray[np.bool_]
NEVER = 1 << 40
MOST_INTERVALS = 100_000
MOST_CELLS = 250_000_000
"""Keys times intervals: 1 GB."""


@dataclass(frozen=True)
class Uses:
    """n keys, m uses."""

    key: Integers
    """int64 [m]: 0 … n − 1."""
    at: npt.NDArray[np.float64]
    """float64 [m]: seconds."""
    text: Floats
    """float32 [n, width] of norm 1, or zeros; width at least 1."""
    image: Floats
    """float32 [n, 64], ±1 or zeros."""


@dataclass(frozen=True)
class Groups:
    """Centres of what keys are about."""

    text: Floats
    """float32 [K, width]."""
    image: Floats
    """float32 [K, 64]."""


@dataclass(frozen=True)
class Examples:
    """m keys at cuts, with what came of them."""

    inputs: LifeInputs
    labels: Labels
    """bool [m, 2]: hot at each horizon."""
    hot: Labels
    """bool [m]: hot at the cut."""
    cut: Integers
    """int64 [m]: the interval that began at the cut."""
    key: Integers

    def of(self, rows: npt.NDArray[np.intp]) -> Examples:
        """Some of them."""
        return Examples(self.inputs.of(rows), self.labels[rows], self.hot[rows], self.cut[rows], self.key[rows])


class Counted:
    """A history in intervals of `scale`; whole ones only, so what comes after the last full interval is left out."""

    def __init__(self, uses: Uses, scale: LifeScale) -> None:
        """Raises `InvalidInputError` for a history that is too short, too long, or not finite."""
        if not len(uses.at) or not np.isfinite(uses.at).all():
            raise InvalidInputError("a history has uses at finite times")
        step = scale.interval_seconds
        self.scale, self.uses = scale, uses
        self.began = float(np.floor(uses.at.min() / step) * step)
        self.length = int((uses.at.max() - self.began) // step)
        if not scale.day + scale.horizons[1] < self.length <= MOST_INTERVALS:
            raise InvalidInputError(
                f"a history of {self.length} intervals of {step:g} s is too short or too long: it needs more than "
                f"{scale.day + scale.horizons[1]}, and at most {MOST_INTERVALS}; are times in seconds?"
            )
        self.keys = len(uses.text)
        if self.keys * self.length > MOST_CELLS:
            raise InvalidInputError(
                f"{self.keys} keys in {self.length} intervals are too many: give a sample of the keys, or fewer weeks"
            )
        place = ((uses.at - self.began) // step).astype(np.int64)
        whole = place < self.length
        self.counts = np.zeros((self.keys, self.length), np.float32)
        np.add.at(self.counts, (uses.key[whole], place[whole]), 1.0)
        used = self.counts > 0
        self.first = np.where(used.any(axis=1), used.argmax(axis=1), NEVER)
        self.traffic = self.counts.sum(axis=0)

    def uses_in(self, since: int, until: int) -> Floats:
        """float32 [n]: uses of each key in the intervals since … until − 1."""
        return np.asarray(self.counts[:, max(0, since) : max(0, until)].sum(axis=1), np.float32)

    def grouped(self, groups: Groups) -> Grouped:
        """The history of groups."""
        return Grouped(self, groups)


class Grouped:
    """Uses of groups of keys in each interval."""

    def __init__(self, counted: Counted, groups: Groups) -> None:
        self.counted, self.groups = counted, groups
        uses = counted.uses
        self.of = {"text": nearest(uses.text, groups.text), "image": nearest(uses.image, groups.image)}
        self.sums: dict[str, Floats] = {}
        for name, count in (("text", len(groups.text)), ("image", len(groups.image))):
            sums = np.zeros((count, counted.length), np.float32)
            known = self.of[name] >= 0
            np.add.at(sums, self.of[name][known], counted.counts[known])
            self.sums[name] = sums

    def candidates(self, cut: int) -> npt.NDArray[np.intp]:
        """Keys that were used within the day before `cut`."""
        return np.flatnonzero(self.counted.uses_in(cut - self.counted.scale.day, cut))

    def inputs(self, cut: int, rows: npt.NDArray[np.intp], watched: int | None = None) -> LifeInputs:
        """What was known of keys at the end of interval `cut` − 1; watched: by who began so many intervals before."""
        counted, scale = self.counted, self.counted.scale
        length = scale.intervals
        watched = min(cut, length) if watched is None else min(watched, cut, length)
        own = _last(counted.counts[rows], cut, length, watched)
        heats = [
            heat_of_alike(_last(self.sums[name], cut, length, watched), own, self.of[name][rows])
            for name in ("text", "image")
        ]
        first = counted.first[rows]
        if watched < min(cut, length):
            used = own > 0
            seen = np.where(used.any(axis=1), length - used.argmax(axis=1), 0)
        else:
            seen = np.maximum(0, cut - first)
        end = counted.began + cut * scale.interval_seconds
        traffic = _last(counted.traffic[None], cut, length, watched)[0]
        made = series(scale, own, seen, watched, heats[0], heats[1], traffic, end)
        return LifeInputs(made, counted.uses.text[rows], counted.uses.image[rows])

    def labels(self, cut: int, rows: npt.NDArray[np.intp]) -> Labels:
        """bool [n, 2]: whether each was hot in the day that ended at each horizon."""
        scale = self.counted.scale
        found = [
            self.counted.uses_in(cut + ahead - scale.day, cut + ahead)[rows] >= scale.hot_uses
            for ahead in scale.horizons
        ]
        return np.stack(found, axis=1)

    def examples(self, cuts: Sequence[int], *, most: int = 1 << 30, seed: int = 0, truncated: float = 0.0) -> Examples:
        """At all cuts together at most `most`, drawn. truncated: share of the cuts that somebody sees who has begun to
        count only lately. Raises `InvalidInputError` where there is nothing."""
        draw, scale = np.random.default_rng(seed), self.counted.scale
        made: list[Examples] = []
        for cut in cuts:
            if cut + scale.horizons[1] > self.counted.length:
                continue
            rows = self.candidates(cut)
            share = max(1, most // len(cuts))
            if len(rows) > share:
                rows = np.sort(draw.choice(rows, share, replace=False))
            if not len(rows):
                continue
            watched = int(draw.integers(scale.day, scale.intervals + 1)) if draw.random() < truncated else None
            hot = self.counted.uses_in(cut - scale.day, cut)[rows] >= scale.hot_uses
            labels = self.labels(cut, rows)
            made.append(
                Examples(self.inputs(cut, rows, watched), labels, hot, np.full(len(rows), cut), rows.astype(np.int64))
            )
        if not made:
            raise InvalidInputError("no key was in use at any cut: the history is too short or has too few uses")
        inputs = LifeInputs(
            *(np.concatenate([getattr(one.inputs, part) for one in made]) for part in ("series", "text", "image"))
        )
        rest = (np.concatenate([getattr(one, part) for one in made]) for part in ("labels", "hot", "cut", "key"))
        return Examples(inputs, *rest)


def _last(rows: Floats, cut: int, length: int, watched: int) -> Floats:
    """[n, length]: the columns that end before `cut`, zeros before those that were watched."""
    out = np.zeros((len(rows), length), np.float32)
    if watched:
        out[:, length - watched :] = rows[:, cut - watched : cut]
    return out


def centres(vectors: Floats, count: int, seed: int, rounds: int = 10) -> Floats:
    """float32 [K, width] of norm 1, K at most `count`: spherical k-means (Dhillon and Modha, 2001) of those rows that
    are not nothing, begun at rows drawn far from each other (k-means++: Arthur and Vassilvitskii, 2007)."""
    known = vectors[vectors.any(axis=1)]
    if not len(known):
        return np.empty((0, vectors.shape[1]), np.float32)
    rows = known / np.linalg.norm(known, axis=1, keepdims=True)
    draw = np.random.default_rng(seed)
    chosen = [rows[draw.integers(len(rows))]]
    for _ in range(min(count, len(rows)) - 1):
        far = np.maximum(0.0, 1.0 - (rows @ np.stack(chosen).T).max(axis=1)).astype(np.float64)
        if far.sum() <= 1e-9:
            break
        chosen.append(rows[draw.choice(len(rows), p=far / far.sum())])
    found = np.stack(chosen)
    for _ in range(rounds):
        of = nearest(rows, found)
        sums = np.zeros_like(found)
        np.add.at(sums, of, rows)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        found = np.where(norms > 0, sums / np.where(norms > 0, norms, 1.0), found).astype(np.float32)
    return np.asarray(found, np.float32)
