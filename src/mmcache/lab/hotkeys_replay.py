"""What is known of each key at each window's end, over one replay, and which keys are hot in the next window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.hotkeys.score import PUBLISHED, REVERSED, Weights, hot_score
from mmcache.hotkeys.scores import HotScores
from mmcache.lab.hotkeys_judged import Bools, Floats
from mmcache.lab.hotkeys_readings import Seen
from mmcache.lab.hotkeys_stream import Stream
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key

SHARE = 0.1
"""Of the known keys, the most used, that are called hot."""
WARM = 6
"""Windows before anything is judged."""
HALF_LIVES = (0.5, 1.0, 3.0, 10.0)
"""Windows."""
LIVE_SCORES = {"live": Weights(), "live/+": PUBLISHED, "live/-": REVERSED}
"""The product's own score: as it is by default, and with attention as published, and with the other sign."""
SPANS = (0.5, 0.65)
"""Until when rules are fitted, and until when thresholds and half-lives are chosen; the rest is the test."""
BEHAVIOUR = ("window", *(f"heat/{half:g}" for half in HALF_LIVES), "total")
ATTENTION = ("entropy", "divergence", "entropy's change", "divergence's change")
FEATURES = (*BEHAVIOUR, *ATTENTION)


def hot(uses: npt.ArrayLike, share: float = SHARE) -> Bools:
    """bool [n]: which keys are among the `share` (over 0, at most 1) most used in a window; who ties with the last is.

    uses: [n], 0 or more. A key that was not used is not hot. Raises `InvalidInputError`.
    """
    counts = np.asarray(uses, np.float64)
    if counts.ndim != 1 or not np.isfinite(counts).all() or (counts < 0).any() or not 0 < share <= 1:
        raise InvalidInputError("needs a row of finite uses, 0 or more, and a share over 0, at most 1")
    if not counts.size:
        return np.zeros(0, np.bool_)
    place = max(1, math.ceil(share * counts.size - 1e-9))  # 0.1 · 550 is a little more than 55
    least = np.partition(counts, counts.size - place)[counts.size - place]
    found: Bools = (counts >= least) & (counts > 0)
    return found


@dataclass(frozen=True)
class Cases:
    """One case a window and known key that is not hot in it (or, for `next`, each known key)."""

    features: dict[str, Floats]
    """[n] each: what is known at a window's end."""
    true: Bools
    """Hot in the next window."""
    fresh: Bools
    """Not hot in this one: the cases of `turns`; the others are those of `next` alone."""
    window: npt.NDArray[np.intp]
    windows: int
    unknown: int
    """Keys that were hot in a window though nobody had asked for them before: in no case."""

    def span(self, place: int, fresh: bool) -> npt.NDArray[np.intp]:
        """Which cases are to fit (0), to choose thresholds (1), to judge (2)."""
        low, high = (round(share * self.windows) for share in ((0.0, *SPANS, 1.0)[place : place + 2]))
        within = (self.window >= low) & (self.window < high)
        return np.flatnonzero(within & self.fresh if fresh else within)


def live(name: str, half: float) -> str:
    """The feature of the live score `name` with heat of half-life `half`."""
    return f"{name}@{half:g}"


def replay(stream: Stream, pictures: Sequence[Seen], share: float = SHARE) -> Cases:
    """What a watcher knows at each window's end; attention as `HotScores` keeps it. share: of keys that are hot."""
    scores, slow = HotScores(), HotScores(share=1e-3)
    keys = [Key.from_bytes(place.to_bytes(48, "big")) for place in range(len(pictures))]
    windows, count = stream.uses.shape
    heats = np.zeros((len(HALF_LIVES), count))
    decay = 0.5 ** (1 / np.array(HALF_LIVES))[:, None]
    total = np.zeros(count)
    found: list[tuple[Floats, Bools, Bools, npt.NDArray[np.intp]]] = []
    unknown = 0
    for window in range(windows - 1):
        for which, question in zip(*(part.tolist() for part in stream.requests[window]), strict=True):
            scores.note(keys[which], *pictures[which].readings[question].nats)
            slow.note(keys[which], *pictures[which].readings[question].nats)
        heats = decay * heats + stream.uses[window]
        total = total + stream.uses[window]
        if window < WARM:
            continue
        known = np.flatnonzero(total > 0)
        now, then = hot(stream.uses[window][known], share), hot(stream.uses[window + 1][known], share)
        unknown += int(hot(stream.uses[window + 1], share)[total == 0].sum())
        nats = np.array([scores.known(keys[key]) for key in known])
        change = nats - np.array([slow.known(keys[key]) for key in known])
        heat = [_relative(one[known], share) for one in (stream.uses[window], *heats, total)]
        entropies, divergences = nats.T
        warm = [
            hot_score(one[known], entropies, divergences, weights) for weights in LIVE_SCORES.values() for one in heats
        ]
        warm = [one - np.quantile(one, 1 - share) for one in warm]
        oracle = _relative(stream.rates[window + 1][known], share)
        found.append((np.stack([*heat, *nats.T, *change.T, *warm, oracle]), then, ~now, np.full(len(known), window)))
    features, true, fresh, window_of = (np.concatenate(part, axis=-1) for part in zip(*found, strict=True))
    warm_names = [live(name, half) for name in LIVE_SCORES for half in HALF_LIVES]
    named = dict(zip((*FEATURES, *warm_names, "oracle"), features, strict=True))
    return Cases(named, true, fresh, window_of, windows, unknown)


def _relative(values: Floats, share: float) -> Floats:
    """`values` by the value from which on keys are hot: how hot is hot changes as traffic does, for everybody alike."""
    return values / max(1e-9, float(np.quantile(values, 1 - share)))
