"""Made-up weeks of uses: topics that trend, seasons, and one day on which what people ask about changes at once.

Every number here is chosen by us and none is fitted to a log; nothing was tuned after results were seen but the sizes,
for time. Text embeddings and image hashes are noisy pictures of a key's topic, missing for some.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mmcache.learn.lifetime_history import Uses
from mmcache.lifespan.inputs import signs, unit

HOUR, DAY = 3600.0, 86_400.0
START = 1_772_409_600.0
"""A Monday, 00:00 UTC."""
WIDTH = 32
NEWS, EVERGREEN, DAILY = range(3)
HALF_LIFE_DAYS = {NEWS: (0.4, 2.0), EVERGREEN: (20.0, 90.0), DAILY: (6.0, 30.0)}
NO_TEXT, NO_IMAGE = 0.2, 0.3
"""Shares of keys."""
FADED = 0.08
"""What is left of the old topics' traffic a day after the change."""


@dataclass(frozen=True)
class Days:
    """What was made."""

    uses: Uses
    days: int
    change: int
    """The day on which topics changed."""


def generate(seed: int, *, keys: int = 3000, days: int = 42, change: int = 31, per_day: float = 5000.0) -> Days:
    """`days` days of about `per_day` uses a day of `keys` keys."""
    draw = np.random.default_rng([seed, 31])
    old, new = 20, 8
    topics = old + new
    kind = draw.choice([NEWS, EVERGREEN, DAILY], topics, p=[0.4, 0.35, 0.25])
    kind[old:] = draw.choice([NEWS, EVERGREEN, DAILY], new, p=[0.7, 0.15, 0.15])
    centre = unit(draw.standard_normal((topics, WIDTH)))
    hours = days * 24
    hour = np.arange(hours)
    popular = draw.lognormal(0.0, 0.8, topics)
    flow = popular[:, None] * np.exp(_wander(draw, topics, hours)) * _surges(draw, topics, days, hours)
    flow *= _season(draw, kind, hour)
    after = np.maximum(0.0, (hour - change * 24) / 24.0)
    flow[:old] *= np.maximum(FADED, 0.1**after)
    flow[old:] *= (hour >= change * 24) * 2.0

    topic = draw.choice(topics, keys, p=np.r_[np.full(old, 0.8 / old), np.full(new, 0.2 / new)])
    low, high = np.array([HALF_LIFE_DAYS[one] for one in kind[topic]]).T
    half = np.exp(draw.uniform(np.log(low), np.log(high)))
    born = draw.uniform(-10.0, days, keys)
    fresh = topic >= old
    born[fresh] = draw.uniform(change, days, int(fresh.sum()))
    born[(kind[topic] != NEWS) & ~fresh & (draw.random(keys) < 0.6)] = -5.0  # most of what stays was there before
    size = draw.lognormal(0.0, 1.3, keys)
    age = hour[None, :] / 24.0 - born[:, None]
    rate = np.where(age >= 0, 0.5 ** (np.maximum(age, 0) / half[:, None]), 0.0) * size[:, None] * flow[topic]
    rate *= per_day * days / rate.sum()
    count = draw.poisson(rate)
    key, at = np.nonzero(count)
    times = np.repeat(at, count[key, at])
    which = np.repeat(key, count[key, at])
    seconds = START + (times + draw.random(len(times))) * HOUR

    about = centre[topic]
    text = unit(about + draw.standard_normal((keys, WIDTH)).astype(np.float32) * 0.12)
    seen = unit(about + draw.standard_normal((keys, WIDTH)).astype(np.float32) * 0.2)
    bits = (seen @ draw.standard_normal((WIDTH, 64)).astype(np.float32)) > 0
    image = signs(np.packbits(bits, axis=1, bitorder="little").view("<u8")[:, 0])
    text[draw.random(keys) < NO_TEXT] = 0.0
    image[draw.random(keys) < NO_IMAGE] = 0.0
    order = np.argsort(seconds, kind="stable")
    return Days(Uses(which[order].astype(np.int64), seconds[order], text, image), days, change)


def _wander(draw: np.random.Generator, topics: int, hours: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Logarithm of slow trends: a walk that is pulled back within about four days."""
    out = np.zeros((topics, hours))
    keep = np.exp(-1.0 / 96.0)
    steps = draw.standard_normal((topics, hours)) * 0.7 * np.sqrt(1 - keep**2)
    for at in range(1, hours):
        out[:, at] = keep * out[:, at - 1] + steps[:, at]
    return out


def _surges(
    draw: np.random.Generator, topics: int, days: int, hours: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """A topic surges about every twelve days, five times as much for one to three days."""
    out = np.ones((topics, hours))
    for topic in range(topics):
        for begun in draw.uniform(0, days, draw.poisson(days / 12)):
            out[topic, int(begun * 24) : int((begun + draw.uniform(1, 3)) * 24)] *= 5.0
    return out


def _season(
    draw: np.random.Generator, kind: np.ndarray[tuple[int, ...], np.dtype[np.int64]], hour: object
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Day and night for all; topics of the kind DAILY live by hours of their own, and half of them by weekends."""
    at = np.asarray(hour)[None, :]
    phase = np.where(kind == DAILY, draw.uniform(0, 24, len(kind)), 15.0)[:, None]
    depth = np.where(kind == DAILY, 0.9, 0.5)[:, None]
    daily = 1 + depth * np.cos(2 * np.pi * (at - phase) / 24)
    weekend = (at // 24) % 7 >= 5
    leaning = np.where((kind == DAILY) & (draw.random(len(kind)) < 0.5), 6.0, 0.8)[:, None]
    return np.asarray(daily * np.where(weekend, leaning, 1.0), np.float64)
