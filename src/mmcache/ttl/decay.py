"""The decay law: how the rate of reuse falls with age, as exponential or power law; or neither, and it says so.

    exponential   rate(a) = A·exp(−a/τ)      half-life τ·ln 2
    power         rate(a) = A·a^(−α)         no half-life of its own; see `DecayFit.half_life_seconds`

Fitted to log rates in bins of equal width in log age, by weighted least squares; a bin's variance is that of its count
(1/n) plus what the law leaves unexplained (as in a random-effects meta-analysis), so that neither the many uses at
young ages nor the few at old ones rule alone. Both laws have two parameters and see the same bins: smaller AIC wins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError
from mmcache.ttl.ages import Ages
from mmcache.ttl.gamma import Floats

Law = Literal["exponential", "power", "neither"]

LEAST_USES = 100
"""Fewer give no fit."""
LEAST_BINS = 6
LEAST_COUNT = 10
"""Uses that a bin needs to count."""
LEAST_R2 = 0.8
"""Neither law fits below it."""
MOST_CURVATURE = 0.03
"""Nor where a parabola explains so much more of the variance: the misfit has a shape, so it is no noise."""
GROUPS = 256
"""Blocks are resampled in so many random groups."""


@dataclass(frozen=True)
class LawFit:
    """One law fitted."""

    rate: float
    """log A: logarithm of uses per block-second at age 0 (exponential) or 1 s (power)."""
    slope: float
    """1/τ per second, or α."""
    r2: float
    """Share of the variance of log rates that it explains; can be negative."""
    aic: float
    curvature: float
    """By how much a parabola instead of a line would raise `r2`."""
    ci: tuple[float, float] = (math.nan, math.nan)
    """Of `slope`."""

    @property
    def fits(self) -> bool:
        """Decays, explains enough, and leaves no curve behind."""
        return self.slope > 0.0 and self.r2 >= LEAST_R2 and self.curvature <= MOST_CURVATURE


@dataclass(frozen=True)
class DecayFit:
    """The verdict."""

    law: Law
    half_life_seconds: float | None
    """Exponential: the age at which the rate has halved, τ·ln 2. Power: the age by which half of the uses between
    `youngest` and `oldest` have come, for blocks watched all that time; it grows with `oldest`. Neither: None."""
    ci: tuple[float, float] | None
    """Of `half_life_seconds`: bootstrap percentiles, blocks resampled."""
    r2: float
    """Of the law that won, even if it does not fit."""
    exponential: LawFit
    power: LawFit
    support: float
    """Share of bootstrap replicates with the same verdict."""
    uses: int
    youngest: float
    oldest: float
    """Ages that the fit covers, seconds."""
    ages: Floats
    """Middles of the bins that counted, seconds."""
    rates: Floats
    """Uses per block-second in them."""

    @property
    def tau(self) -> float | None:
        """τ for `exp(−Δt/τ)`, the freshness of policy C3: exact for exponential, by equal half-life for power."""
        return None if self.half_life_seconds is None else self.half_life_seconds / math.log(2.0)

    def rate(self, law: LawFit, age: npt.ArrayLike) -> Floats:
        """Uses per block-second at `age` seconds as `law` has them."""
        place = np.asarray(age, np.float64) if law is self.exponential else np.log(np.asarray(age, np.float64))
        return np.asarray(np.exp(law.rate - law.slope * place), np.float64)


def fit_decay(
    ages: npt.ArrayLike | Ages, *, bins: int = 24, replicates: int = 200, level: float = 0.95, seed: int = 0
) -> DecayFit:
    """Fit both laws.

    ages: `Ages.of(times, keys)`; or bare ages in seconds, each then taken as an independent use, watched up to the
    oldest. level: of the intervals. Raises `InvalidInputError` for ages that are too few, negative or not finite, or
    all in one place.
    """
    seen = ages if isinstance(ages, Ages) else _bare(ages)
    if bins < LEAST_BINS or replicates < 0 or not 0.0 < level < 1.0:
        raise InvalidInputError(
            f"bins >= {LEAST_BINS}, replicates >= 0, 0 < level < 1; not {bins}, {replicates}, {level}"
        )
    if seen.used.size < LEAST_USES:
        raise InvalidInputError(
            f"{seen.used.size} reuses are too few for a decay law; give a log with {LEAST_USES} or more"
        )
    if not np.isfinite(seen.used).all() or seen.used.min() < 0.0:
        raise InvalidInputError(
            "ages are finite and not negative: subtract the first (or last) use's time from each use's"
        )
    counts, exposure, edges = _binned(seen, bins, np.random.default_rng(seed))
    total = counts.sum(0)
    kept = total >= LEAST_COUNT
    if kept.sum() < LEAST_BINS:
        raise InvalidInputError(
            f"ages fill only {int(kept.sum())} of {bins} bins with {LEAST_COUNT} uses; a law needs {LEAST_BINS}: "
            "give a longer log, or fewer bins"
        )
    counts, exposure = counts[:, kept], exposure[:, kept]
    inside = _inside(seen, edges[:-1][kept], edges[1:][kept])
    span = (float(edges[:-1][kept][0]), float(edges[1:][kept][-1]))
    fits = _both(counts.sum(0), exposure.sum(0), inside)
    law = _verdict(*fits)
    random = np.random.default_rng(seed + 1)
    drawn: list[tuple[LawFit, LawFit]] = []
    for _ in range(replicates):
        weights = np.bincount(random.integers(0, len(counts), len(counts)), minlength=len(counts))
        sample = weights @ counts
        if (sample > 0).all():
            drawn.append(_both(sample, weights @ exposure, inside))
    tails = [50.0 * (1.0 - level), 50.0 * (1.0 + level)]
    exponential, power = (_with_interval(fit, [pair[i].slope for pair in drawn], tails) for i, fit in enumerate(fits))
    half = _half_life(law, exponential if law == "exponential" else power, span)
    halves = [_half_life(law, pair[law == "power"], span) for pair in drawn]
    some = [value for value in halves if value is not None and math.isfinite(value)]
    ends = np.percentile(some, tails) if some and half is not None else None
    return DecayFit(
        law=law,
        half_life_seconds=half,
        ci=None if ends is None else (float(ends[0]), float(ends[1])),
        r2=min(fits, key=lambda fit: fit.aic).r2,
        exponential=exponential,
        power=power,
        support=sum(_verdict(*pair) == law for pair in drawn) / len(drawn) if drawn else math.nan,
        uses=int(seen.used.size),
        youngest=span[0],
        oldest=span[1],
        ages=np.sqrt(edges[:-1] * edges[1:])[kept],
        rates=counts.sum(0) / exposure.sum(0),
    )


def _bare(ages: npt.ArrayLike) -> Ages:
    used = np.asarray(ages, np.float64)
    if used.ndim != 1:
        raise InvalidInputError(f"ages are one list of seconds, not an array of shape {used.shape}")
    each = np.arange(used.size, dtype=np.int64)
    return Ages(used, each, np.full(used.size, used.max() if used.size else 0.0), each)


def _binned(seen: Ages, bins: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Counts and watched block-seconds, a row a group of blocks, a column a bin; and the bins' edges."""
    positive = seen.used[seen.used > 0.0]
    if positive.size < LEAST_USES:
        raise InvalidInputError(
            f"{seen.used.size - positive.size} of {seen.used.size} ages are 0: the log's times are too coarse for a law"
        )
    low, high = float(np.quantile(positive, 0.001)), float(positive.max()) * (1.0 + 1e-9)
    if high <= 2.0 * low:
        raise InvalidInputError("all ages lie within a factor of two; a decay needs a wider range")
    edges = np.geomspace(low, high, bins + 1)
    owners = int(max(seen.owner.max(initial=0), seen.watch_owner.max(initial=0))) + 1
    group = random.permutation(owners) % min(owners, GROUPS)
    groups = min(owners, GROUPS)
    place = np.searchsorted(edges, seen.used, "right") - 1
    inside = (place >= 0) & (place < bins)
    counts = np.bincount(group[seen.owner[inside]] * bins + place[inside], minlength=groups * bins)
    exposure = np.empty((groups, bins))
    mine = group[seen.watch_owner]
    for column in range(bins):
        spent = np.clip(seen.watched - edges[column], 0.0, edges[column + 1] - edges[column])
        exposure[:, column] = np.bincount(mine, spent, groups)
    return counts.reshape(groups, bins).astype(np.float64), exposure, edges


@dataclass(frozen=True)
class _Inside:
    """Ages within each bin and how much of the watching was done at them: a bin is too wide for its middle to do."""

    ages: Floats
    """[bins, 8]: Gauss–Legendre nodes."""
    weights: Floats
    """[bins, 8], of sum 1 a bin."""


def _inside(seen: Ages, low: Floats, high: Floats) -> _Inside:
    nodes, weights = np.polynomial.legendre.leggauss(8)
    ages = 0.5 * ((high + low)[:, None] + (high - low)[:, None] * nodes)
    watching = seen.watched.size - np.searchsorted(np.sort(seen.watched), ages)
    shares = weights * np.maximum(watching, 1e-9)
    return _Inside(ages, np.asarray(shares / shares.sum(1, keepdims=True), np.float64))


def _both(counts: Floats, exposure: Floats, inside: _Inside) -> tuple[LawFit, LawFit]:
    rates = np.log(counts / np.maximum(exposure, 1e-300))
    return _law(inside.ages, inside.weights, rates, counts), _law(np.log(inside.ages), inside.weights, rates, counts)


def _law(u: Floats, weights: Floats, y: Floats, counts: Floats) -> LawFit:
    """log rate = rate − slope·u, where a bin's rate is the mean over its ages u. A law of slope s has that mean at
    x = −log(Σ w·exp(−s·u))/s, so place and slope are found in turns."""
    slope = 0.0
    for _ in range(4):
        first = u.min(1, keepdims=True)
        if abs(slope) * float((u.max(1) - u.min(1)).max()) < 1e-6:
            x = (weights * u).sum(1)
        else:
            x = first[:, 0] - np.log((weights * np.exp(-slope * (u - first))).sum(1)) / slope
        fit = _line(np.asarray(x, np.float64), y, counts)
        slope = fit.slope
    return fit


def _line(x: Floats, y: Floats, counts: Floats) -> LawFit:
    """y = rate − slope·x, weighted; the variance that is left beyond counting is estimated in a few rounds."""
    n, extra = y.size, 0.0
    at, start, left = 0.0, 0.0, y
    for _ in range(6):
        weights = 1.0 / (1.0 / counts + extra)
        mean_x, mean_y = np.average(x, weights=weights), np.average(y, weights=weights)
        spread = np.average((x - mean_x) ** 2, weights=weights)
        at = float(np.average((x - mean_x) * (y - mean_y), weights=weights) / spread)
        start = float(mean_y - at * mean_x)
        left = y - start - at * x
        extra = max(0.0, float((left**2).sum() / (n - 2) - (1.0 / counts).mean()))
    total = float(((y - y.mean()) ** 2).sum()) or 1e-300
    squares = max(float((left**2).sum()), 1e-300)
    scaled = (x - x.mean()) / x.std()
    basis = np.stack([np.ones(n), scaled, scaled**2], 1)
    bent = y - basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
    straight = y - basis[:, :2] @ np.linalg.lstsq(basis[:, :2], y, rcond=None)[0]
    curvature = float((straight**2).sum() - (bent**2).sum()) / total
    return LawFit(start, -at, 1.0 - squares / total, n * math.log(squares / n) + 4.0, curvature)


def _verdict(exponential: LawFit, power: LawFit) -> Law:
    better: Law = "exponential" if exponential.aic <= power.aic else "power"
    return better if (exponential if better == "exponential" else power).fits else "neither"


def _with_interval(fit: LawFit, slopes: list[float], tails: list[float]) -> LawFit:
    if not slopes:
        return fit
    low, high = np.percentile(slopes, tails)
    return LawFit(fit.rate, fit.slope, fit.r2, fit.aic, fit.curvature, (float(low), float(high)))


def _half_life(law: Law, fit: LawFit, span: tuple[float, float]) -> float | None:
    if law == "neither" or fit.slope <= 0.0:
        return None
    if law == "exponential":
        return math.log(2.0) / fit.slope
    low, high = span
    if abs(fit.slope - 1.0) < 1e-9:
        return math.sqrt(low * high)
    power = 1.0 - fit.slope
    return float((0.5 * (low**power + high**power)) ** (1.0 / power))
