"""Streams that are drawn, for the constants of a rule for bursts to be chosen on: none of them is reported.

What is reported in table `bursts` are real arrivals; to choose a constant by them would be to fit it to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp, pi

import numpy as np

from mmcache.lab.traces.arrivals import DAY_SECONDS, Arrivals
from mmcache.lab.traces.trace import Floats

Random = np.random.Generator
_PART = 60.0
"""Seconds within which a rate that changes slowly is taken as constant."""


def poisson(random: Random, seconds: float, rate: float) -> Floats:
    """Each request by itself."""
    return random.uniform(0, seconds, random.poisson(rate * seconds))


def changing(random: Random, rates: Floats) -> Floats:
    """A Poisson process; `rates`: a second, by `_PART`."""
    counts = random.poisson(rates * _PART)
    times: Floats = (np.repeat(np.arange(len(rates)), counts) + random.uniform(0, 1, counts.sum())) * _PART
    return times


def batches(random: Random, starts: Floats, sizes: Floats, spread: float) -> Floats:
    """A compound process: each start brings so many requests within about `spread` seconds."""
    many = sizes.astype(np.int64)
    times: Floats = np.repeat(starts, many) + random.exponential(spread, many.sum())
    return times


def geometric(random: Random, seconds: float, rate: float, mean: float, spread: float) -> Floats:
    """Batches of a geometric size."""
    starts = poisson(random, seconds, rate / mean)
    return batches(random, starts, random.geometric(1 / mean, len(starts)).astype(np.float64), spread)


def heavy(random: Random, seconds: float, rate: float, spread: float) -> Floats:
    """Batches whose size has a long tail: Pareto's with exponent 1.5, from 5 to 1000, whose mean is 14."""
    starts = poisson(random, seconds, rate / 14)
    return batches(random, starts, np.minimum(5 * (1 + random.pareto(1.5, len(starts))), 1000.0), spread)


def switched(random: Random, seconds: float, rates: tuple[float, float], stays: tuple[float, float]) -> Floats:
    """Markov-modulated: two rates, each for an exponential time of mean `stays`."""
    pairs = int(1.5 * seconds / sum(stays)) + 50
    lengths = random.exponential(np.array(stays), (pairs, 2))
    ends = np.cumsum(lengths.ravel())
    counts = random.poisson(lengths * np.array(rates)).ravel()
    place = np.repeat(np.arange(len(ends)), counts)
    return ends[place] - lengths.ravel()[place] * random.uniform(0, 1, len(place))


def hawkes(random: Random, seconds: float, rate: float, branching: float, delay: float) -> Floats:
    """Self-exciting (Hawkes, Biometrika 58, 1971), drawn as clusters: each request brings `branching` more, each after
    an exponential `delay`."""
    born = poisson(random, seconds, rate * (1 - branching))
    found = [born]
    while len(born):
        born = np.repeat(born, random.poisson(branching, len(born)))
        born = born + random.exponential(delay, len(born))
        found.append(born)
    return np.concatenate(found)


def renewals(random: Random, seconds: float, rate: float, shape: float) -> Floats:
    """Gaps of a Gamma distribution: below a shape of 1 they come in clusters."""
    return np.cumsum(random.gamma(shape, 1 / (rate * shape), int(1.2 * rate * seconds + 20 / shape + 200)))


def wandering(random: Random, seconds: float, sigma: float, remembers: float) -> Floats:
    """Factors by `_PART`, mean 1: the exponential of a process that returns to its mean within `remembers` seconds."""
    parts = int(seconds / _PART) + 1
    keep = exp(-_PART / remembers)
    noise = random.normal(0, sigma * (1 - keep * keep) ** 0.5, parts)
    level, found = random.normal(0, sigma), np.empty(parts)
    for part in range(parts):
        level = keep * level + noise[part]
        found[part] = level
    return np.exp(found - sigma * sigma / 2)


def daily(seconds: float, swing: float) -> Floats:
    """Factors by `_PART`: a day's cycle, from `1 - swing` at midnight to `1 + swing` at noon."""
    at = np.arange(int(seconds / _PART) + 1) * _PART
    factors: Floats = 1 - swing * np.cos(2 * pi * at / DAY_SECONDS)
    return factors


def weekly(seconds: float, swing: float, weekend: float) -> Floats:
    """Factors by `_PART`: `daily`, and times `weekend` on the last two of seven days."""
    day = np.arange(int(seconds / _PART) + 1) * _PART // DAY_SECONDS % 7
    return daily(seconds, swing) * np.where(day >= 5, weekend, 1.0)


Draw = Callable[[Random, float], Floats]

STEADY: Mapping[str, Draw] = {
    "poisson-0.3": lambda random, seconds: poisson(random, seconds, 0.3),
    "poisson-5": lambda random, seconds: poisson(random, seconds, 5.0),
    "batch-8": lambda random, seconds: geometric(random, seconds, 4.0, 8, 2.0),
    "batch-30": lambda random, seconds: geometric(random, seconds, 4.0, 30, 8.0),
    "batch-100": lambda random, seconds: geometric(random, seconds, 4.0, 100, 15.0),
    "batch-tail": lambda random, seconds: heavy(random, seconds, 4.0, 5.0),
    "switched-fast": lambda random, seconds: switched(random, seconds, (10.0, 0.2), (20.0, 40.0)),
    "switched-rare": lambda random, seconds: switched(random, seconds, (15.0, 1.0), (20.0, 120.0)),
    "hawkes-0.6": lambda random, seconds: hawkes(random, seconds, 4.0, 0.6, 10.0),
    "hawkes-0.95": lambda random, seconds: hawkes(random, seconds, 4.0, 0.95, 3.0),
    "gamma-0.2": lambda random, seconds: renewals(random, seconds, 3.0, 0.2),
    "gamma-0.02": lambda random, seconds: renewals(random, seconds, 3.0, 0.02),
}
"""Of these the rate is the same all the time: they have no bursts of their own, and each alarm is a false one."""
MOVING: Mapping[str, Draw] = {
    "wanders-0.2": lambda random, seconds: changing(random, 5.0 * wandering(random, seconds, 0.2, 1800.0)),
    "wanders-0.4": lambda random, seconds: changing(random, 5.0 * wandering(random, seconds, 0.4, 7200.0)),
    "daily": lambda random, seconds: changing(random, 5.0 * daily(seconds, 0.6)),
    "weekly": lambda random, seconds: changing(random, 5.0 * weekly(seconds, 0.6, 0.4)),
}
"""Their rate changes within half an hour, two, a day, a week."""


def drawn(name: str, seed: int, seconds: float) -> Arrivals:
    """One of `STEADY` or `MOVING`."""
    place = [*STEADY, *MOVING].index(name)
    random = np.random.default_rng([seed, place, 1977])
    times = {**STEADY, **MOVING}[name](random, seconds)
    return Arrivals(name, np.sort(times[times < seconds]), seconds)
