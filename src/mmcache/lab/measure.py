"""Timing that can be believed: interleaved, repeated, as medians with spread, peers in the same run.

Rounds alternate the order of the callables, so that a noisy second hurts all of them alike; ratios are taken round
by round before the median, which cancels the noise that they share.
"""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter

import numpy as np

from mmcache.lab.table import Progress, Spread, percentile, silent
from mmcache.settings import accelerated


@dataclass(frozen=True)
class Timing:
    """Seconds a call took, one sample a round."""

    name: str
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds."""
        return percentile(self.samples, 0.5)

    @property
    def spread(self) -> Spread:
        """10th and 90th percentile, seconds."""
        return percentile(self.samples, 0.1), percentile(self.samples, 0.9)

    def scaled(self, factor: float) -> list[float]:
        """The samples times `factor`, e.g. 1e9 for ns: what `Row.of` takes."""
        return [sample * factor for sample in self.samples]

    def over(self, other: Timing) -> list[float]:
        """Ratios self ÷ other, round by round."""
        return [mine / theirs for mine, theirs in zip(self.samples, other.samples, strict=True)]


def interleave(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    per: int = 1,
    least_seconds: float = 0.01,
    once: bool = False,
    progress: Progress = silent,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, Timing]:
    """Time all `calls` side by side.

    Each call is first run once to warm up, then repeated within a round until the round's sample lasts about
    `least_seconds` (`once=True`: exactly once a round, for calls that change what they measure). A call that does
    `per` operations counts as `per`. The collector of cyclic garbage is off meanwhile. clock: `time.thread_time` for
    calls that neither wait nor use other threads, which leaves out what other programs take.
    """
    repeats = {name: 1 if once else _repeats(call, least_seconds) for name, call in calls.items()}
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    with uncollected():
        for done in range(rounds):
            for name in order if done % 2 else reversed(order):
                call, times = calls[name], range(repeats[name])
                start = clock()
                for _ in times:
                    call()
                samples[name].append((clock() - start) / (len(times) * per))
            progress(", ".join(order), done + 1, rounds)
    return {name: Timing(name, tuple(seconds)) for name, seconds in samples.items()}


def _repeats(call: Callable[[], object], least_seconds: float) -> int:
    call()
    times = 1
    while True:
        start = perf_counter()
        for _ in range(times):
            call()
        seconds = perf_counter() - start
        if seconds >= least_seconds / 4:
            return max(1, round(times * least_seconds / seconds))
        times *= 4


@contextmanager
def uncollected() -> Iterator[None]:
    """Inside, the garbage collector does not run."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def memcpy(nbytes: int) -> Callable[[], object]:
    """A callable that copies `nbytes` from one warm buffer to another: the floor of every bandwidth row."""
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    return lambda: np.copyto(target, source)


COMPILED = ("mmcache.codecs._kernels", "mmcache.near._near", "mmcache.tiers._hit_index", "mmcache.policies._auto")


def machine() -> str:
    """One line on what the figures were measured on."""
    compiled = accelerated() and all(
        map(
            find_spec,
            ("mmcache.codecs._kernels", "mmcache.near._near", "mmcache.tiers._hit_index", "mmcache.policies._auto"),
        )
    )
    return (
        f"{os.cpu_count()} cores {platform.machine()}, {platform.system()}, "
        f"{platform.python_implementation()} {platform.python_version()}, numpy {np.__version__}, "
        f"{'compiled' if compiled else 'plain Python'} kernels"
    )


def busy() -> list[str]:
    """A line of warning when other programs are using the machine now: times, even ratios of them, then mislead."""
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    return [f"on a busy machine (load {load:.1f} before it began), so times are pessimistic"] if load > cores else []
