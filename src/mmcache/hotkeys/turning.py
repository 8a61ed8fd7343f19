"""What it means that a key is hot, or turns hot; in counts of uses by window of time. Pure."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError

Bools = npt.NDArray[np.bool_]

SHARE = 0.1
"""Of the known keys, the most used, that are called hot."""


def hot(uses: npt.ArrayLike, share: float = SHARE) -> Bools:
    """bool [n]: which keys are among the `share` (over 0, at most 1) most used in a window; who ties with the last is.

    uses: [n], 0 or more. A key that was not used is not hot. Raises `InvalidInputError`.
    """
    counts = np.asarray(uses, np.float64)
    if counts.ndim != 1 or not np.isfinite(counts).all() or (counts < 0).any() or not 0 < share <= 1:
        raise InvalidInputError("needs a row of finite uses, 0 or more, and a share over 0, at most 1")
    if not counts.size:
        return np.zeros(0, np.bool_)
    place = math.ceil(share * counts.size)
    least = np.partition(counts, counts.size - place)[counts.size - place]
    found: Bools = (counts >= least) & (counts > 0)
    return found


def turns_hot(now: npt.ArrayLike, then: npt.ArrayLike, share: float = SHARE) -> Bools:
    """bool [n]: hot in the window `then`, not yet in the one before it, `now`."""
    found: Bools = hot(then, share) & ~hot(now, share)
    return found


def f1(predicted: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """Harmonic mean of precision and recall, 0…1; 0 where nothing was found or nothing was to be found."""
    said, is_so = np.asarray(predicted, np.bool_), np.asarray(true, np.bool_)
    both = float((said & is_so).sum())
    return 2 * both / float(said.sum() + is_so.sum()) if both else 0.0


def best_threshold(scores: npt.ArrayLike, true: npt.ArrayLike) -> float:
    """The least score to be called hot, with which F1 is largest; infinite where nothing is true."""
    values, is_so = np.asarray(scores, np.float64), np.asarray(true, np.bool_)
    if not is_so.any():
        return math.inf
    order = np.argsort(-values, kind="stable")
    ranked, right = values[order], np.cumsum(is_so[order])
    ends = np.append(ranked[1:] != ranked[:-1], True)
    found = np.where(ends, 2 * right / (np.arange(1, len(values) + 1) + is_so.sum()), -1.0)
    return float(ranked[int(found.argmax())])
