"""Access logs whose decay law is known, because it was drawn: exponential, power, or none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mmcache.ttl.ages import Ages
from mmcache.ttl.gamma import Floats

HALF_LIFE = 3.7 * 3600
"""Seconds; the published one."""
EXPONENT = 0.8
LOG_SECONDS = 48 * 3600.0
YOUNGEST = 1.0
"""Seconds; a power law has to begin somewhere."""
USES = 8.0
"""Mean uses a block after its first. Drawn exponentially, block by block: popularity differs, so uses of one block are
not independent, which intervals must survive."""


def _exponential(random: np.random.Generator, count: int) -> Floats:
    return random.exponential(HALF_LIFE / np.log(2.0), count)


def _power(random: np.random.Generator, count: int) -> Floats:
    rest = 1.0 - EXPONENT
    low, high = YOUNGEST**rest, LOG_SECONDS**rest
    return np.asarray((low + random.random(count) * (high - low)) ** (1.0 / rest), np.float64)


def _steady(random: np.random.Generator, count: int) -> Floats:
    return random.uniform(0.0, LOG_SECONDS, count)


def _daily(random: np.random.Generator, count: int) -> Floats:
    """Comes back about a day later."""
    return np.abs(random.normal(24 * 3600.0, 6 * 3600.0, count))


AGES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "exponential": _exponential, "power": _power, "steady": _steady, "daily": _daily,
}  # fmt: skip


def true_half_life(law: str, youngest: float, oldest: float) -> float:
    """Seconds, as `DecayFit.half_life_seconds` defines it for ages between the two."""
    if law == "exponential":
        return HALF_LIFE
    rest = 1.0 - EXPONENT
    return float((0.5 * (youngest**rest + oldest**rest)) ** (1.0 / rest))


def draw(law: str, seed: int, blocks: int) -> Ages:
    """A log of two days: `blocks` first used at any time in it, and again at ages that follow `law`."""
    random = np.random.default_rng(seed)
    births = random.uniform(0.0, LOG_SECONDS, blocks)
    owner: npt.NDArray[np.int64] = np.repeat(np.arange(blocks), random.poisson(random.exponential(USES, blocks)))
    times = births[owner] + AGES[law](random, owner.size)
    seen = times < LOG_SECONDS
    return Ages.of(np.append(births, times[seen]), np.append(np.arange(blocks), owner[seen]))
