"""Made-up request streams, the same for a seed: patterns that break policies, and an access log to try things on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np

from mmcache.lab.traces.encoder_costs import costed
from mmcache.lab.traces.trace import Integers, Trace

UNIT_BYTES = 4096


def _ranks(random: np.random.Generator, count: int, blocks: int, exponent: float) -> Integers:
    """int64 [count]: ranks 0…blocks, Zipf-distributed."""
    weights = np.arange(1, blocks + 1, dtype=np.float64) ** -exponent
    return np.searchsorted(np.cumsum(weights / weights.sum()), random.random(count)).astype(np.int64)


def _popular(random: np.random.Generator, count: int) -> Integers:
    return _ranks(random, count, max(8, count // 10), 0.8)


def _scan(random: np.random.Generator, count: int) -> Integers:
    """Popular blocks; in the middle, all of an archive is read once."""
    keys = _popular(random, count)
    keys[count // 3 : count // 2] = 10**6 + np.arange(count // 2 - count // 3)
    return keys


def _loop(random: np.random.Generator, count: int) -> Integers:
    """The same blocks over and over in one order, among popular ones."""
    keys = _popular(random, count)
    looping = random.random(count) < 0.5
    keys[looping] = 10**6 + np.arange(int(looping.sum())) % max(4, count // 20)
    return keys


def _flash(random: np.random.Generator, count: int) -> Integers:
    """A crowd comes for a few new blocks, and goes for good; then for others."""
    keys = _popular(random, count)
    for start in range(count // 5, count, count // 4):
        crowd = slice(start, min(count, start + count // 12))
        keys[crowd] = 10**6 * (1 + start) + _ranks(random, crowd.stop - crowd.start, 40, 0.5)
    return keys


def _one_hit(random: np.random.Generator, count: int) -> Integers:
    """Half of the requests are for blocks that nobody asks for again."""
    keys = _popular(random, count)
    once = random.random(count) < 0.5
    keys[once] = 10**6 + np.arange(int(once.sum()))
    return keys


def _drift(random: np.random.Generator, count: int) -> Integers:
    """What is popular changes slowly."""
    return _popular(random, count) + np.arange(count) // max(1, count // 200)


PATTERNS: dict[str, Callable[[np.random.Generator, int], Integers]] = {
    "popular": _popular, "scan": _scan, "loop": _loop, "flash": _flash, "one-hit": _one_hit, "drift": _drift,
}  # fmt: skip


def pattern(name: str, count: int = 20_000, seed: int = 0) -> Trace:
    """`count` requests of a pattern in `PATTERNS`; cost 1 and 4096 B a block."""
    random = np.random.default_rng([seed, sorted(PATTERNS).index(name)])
    return Trace.of(name, PATTERNS[name](random, count), None, UNIT_BYTES, notes=("made up",))


def log_lines(count: int = 20_000, seed: int = 0, days: float = 2.0) -> Iterator[str]:
    """JSON lines of an access log: a shop whose pictures are asked for often, and an export that reads much once.

    Popularity follows Zipf's law, load follows the time of day, bytes and costs follow the measured encoders.
    """
    random = np.random.default_rng([seed, 77])
    batch = random.random(count) < 0.25
    keys = _popular(random, count)
    keys[batch] = 10**6 + np.arange(int(batch.sum())) % max(1, int(batch.sum() * 0.8))
    moments = np.linspace(0, days, count, endpoint=False)
    times = 86_400 * (moments + 0.1 * np.sin(2 * np.pi * moments) / (2 * np.pi))
    trace = costed(Trace.of("log", keys, times, UNIT_BYTES), seed)
    owners = np.where(batch, "export", "shop")
    for place, block in enumerate(trace.ids.tolist()):
        yield json.dumps(
            {
                "time": round(1_780_000_000 + float(trace.times[place]), 3),
                "key": f"{owners[place]}/{int(keys[place]):x}",
                "bytes": int(trace.sizes[block]),
                "cost": round(float(trace.costs[block]), 4),
                "tenant": str(owners[place]),
                "modality": trace.modalities[int(trace.kinds[block])],
            }
        )
