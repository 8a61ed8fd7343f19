"""Whether probabilities are right: F1, calibration error, reliability; and the isotonic curve that makes them so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.lifespan.inputs import Floats
from mmcache.lifespan.model import MOST_KNOTS, Calibration

Wide = npt.NDArray[np.float64]
BINS = 10
LEAST_A_KNOT = 40
"""Examples that a step of a curve rests on."""


def f1(predicted: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Harmonic mean of precision and recall, 0…1; 0 where nothing was found."""
    said, true = np.asarray(predicted, bool), np.asarray(labels, bool)
    both = int((said & true).sum())
    return 2 * both / max(1, int(said.sum()) + int(true.sum()))


def best_cut(probability: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """The probability from which on to say yes, so that F1 is highest; 0.5 where nothing is true."""
    p, y = np.asarray(probability, np.float64), np.asarray(labels, bool)
    if not y.any():
        return 0.5
    order = np.argsort(-p, kind="stable")
    hits = np.cumsum(y[order])
    scores = 2 * hits / (np.arange(1, len(p) + 1) + y.sum())
    last = np.r_[np.diff(p[order]) != 0, True]  # of equal ones, all or none
    return float(p[order][np.argmax(np.where(last, scores, -1.0))])


def best_cuts(said: Floats, labels: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """The same for both horizons, of [n, 2]."""
    return best_cut(said[:, 0], labels[:, 0]), best_cut(said[:, 1], labels[:, 1])


@dataclass(frozen=True)
class Reliability:
    """By bins of equal width of what was said."""

    said: Wide
    """[k]: mean probability of each bin that is not empty."""
    came: Wide
    """[k]: share that came true."""
    count: npt.NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error (Naeini, Cooper and Hauskrecht, AAAI 2015), 0…1."""
        return float((np.abs(self.said - self.came) * self.count).sum() / max(1, self.count.sum()))


def reliability(probability: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS) -> Reliability:
    """Of probabilities [n] and outcomes [n]."""
    p, y = np.asarray(probability, np.float64), np.asarray(labels, np.float64)
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    full = count > 0
    sums = (np.bincount(place, weights=values, minlength=bins)[full] / count[full] for values in (p, y))
    said, came = sums
    return Reliability(said, came, count[full])


def isotonic(scores: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Floats]:
    """float32 [k], [k]: knots of the rising curve from scores [n] to shares of labels [n].

    Scores are first put into runs of equal count, at least `LEAST_A_KNOT`, then pooled where shares fall (pool
    adjacent violators: Ayer et al., 1955); one half of an example of each kind is added to each run, so that nothing is
    certain.
    """
    x, y = np.asarray(scores, np.float64), np.asarray(labels, np.float64)
    order = np.argsort(x, kind="stable")
    runs = max(1, min(MOST_KNOTS, len(x) // LEAST_A_KNOT))
    blocks = [
        (float(x[part].mean()), float(y[part].sum()) + 0.5, len(part) + 1.0) for part in np.array_split(order, runs)
    ]
    pooled: list[tuple[float, float, float]] = []
    for at, hits, size in blocks:
        pooled.append((at, hits, size))
        while len(pooled) > 1 and pooled[-2][1] / pooled[-2][2] >= pooled[-1][1] / pooled[-1][2]:
            (a, b, c), (d, e, f) = pooled[-2:]
            pooled[-2:] = [((a * c + d * f) / (c + f), b + e, c + f)]
    knots = np.array([at for at, _, _ in pooled], np.float32)
    shares = np.array([hits / size for _, hits, size in pooled], np.float32)
    return np.maximum.accumulate(knots), np.maximum.accumulate(shares)


def calibrated(scores: npt.ArrayLike, labels: npt.ArrayLike) -> Calibration:
    """Of scores [n, 2] and labels [n, 2], a curve a horizon."""
    found = [isotonic(np.asarray(scores)[:, h], np.asarray(labels)[:, h]) for h in (0, 1)]
    most = max(len(knots) for knots, _ in found)
    padded = [[np.pad(part, (0, most - len(part)), mode="edge") for part in curve] for curve in found]
    return Calibration(np.stack([knots for knots, _ in padded]), np.stack([shares for _, shares in padded]))
