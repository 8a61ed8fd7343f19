"""Table `ttl`: one lifetime for all against lifetimes learned, with what each costs in freshness (C6).

Without a price for stale answers the longest lifetime wins every hit rate, so each arm's share of stale answers stands
beside its hits, and the learned lifetime is held against fixed ones chosen in hindsight: what does adapting buy at the
same staleness? Those have the same jitter, early refresh and grace; only the choice of the lifetime differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mmcache.lab.table import Better, Progress, Result, Row, Table
from mmcache.lab.traces.published import PUBLISHED as PUBLISHED_TRACES
from mmcache.lab.traces.published import read
from mmcache.lab.traces.trace import Trace
from mmcache.lab.ttl_replay import Outcome, replay
from mmcache.lab.ttl_traffic import CHANGE_SECONDS, LATENCY, SERVERS, Traffic, draw, traced
from mmcache.model.errors import AssetError
from mmcache.settings import traces_folder
from mmcache.ttl.base import Lifetime
from mmcache.ttl.fixed import FixedTTL
from mmcache.ttl.survival import SurvivalTTL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STATIC = 2.0
"""Seconds; the published baseline."""
JITTER = 0.25
BETA = 1.0
GRACE = 10.0
"""Seconds of stale-while-revalidate."""
OURS = "survival+refresh+grace"
GRID = (2.0, 3.0, 4.5, 7.0, 11.0, 20.0)
QUICK_GRID = (2.0, 6.0, 22.0)


TRACE, TRACE_SHARE = "mooncake", 0.07
"""The only published trace with keys and seconds of an inference service; the share of its blocks that is played."""
TRACE_GRID = (150.0, 300.0, 600.0, 1200.0, 2400.0)


@dataclass(frozen=True)
class Arm:
    """One way to keep."""

    words: str
    lifetime: Callable[[], Lifetime]
    beta: float = 0.0
    grace: float = 0.0


def _survival(**options: Any) -> Callable[[], Lifetime]:
    return lambda: SurvivalTTL(**options)


def _fixed(seconds: float, jitter: float = 0.0) -> Callable[[], Lifetime]:
    return lambda: FixedTTL(seconds, jitter)


ARMS: dict[str, Arm] = {
    "static": Arm("2 s", _fixed(STATIC)),
    "static-10": Arm("10 s", _fixed(10.0)),
    "static+jitter": Arm("2 s, shortened by up to a quarter", _fixed(STATIC, JITTER)),
    "survival": Arm("survival TTL", _survival()),
    "survival+refresh": Arm("survival TTL, early refresh", _survival(), BETA),
    OURS: Arm("survival TTL, early refresh, grace", _survival(), BETA, GRACE),
    f"{OURS}/modality": Arm("the same, one lifetime a modality", _survival(by_key=False), BETA, GRACE),
    f"{OURS}/0.95": Arm("the same by key with quantile 0.95", _survival(quantile=0.95), BETA, GRACE),
}

_NONE = (None, None, None)
PUBLISHED: dict[str, tuple[float | None, float | None, float | None]] = {
    "static": (68.3, 12.7, 412.0),
    OURS: (89.1, 1.4, 203.0),
}
"""Hit rate %, avalanche rate %, P99 ms."""


TRACE_ROWS = ("hits", "stale")


class TTLTable(Table):
    """Hits, avalanches, P99 and staleness."""

    name: ClassVar[str] = "ttl"
    title: ClassVar[str] = "Lifetimes: 2 s for all against learned ones, and what each costs in freshness"
    remark: ClassVar[str] = (
        "Published were figures without the traffic behind them. Ours has one free scale, set so that 2 s hits as "
        "often as published; the P99 of 2 s then comes out near the published one, and avalanches do not: after one "
        "common end, blocks are stored again whenever somebody asks, and drift apart. They are frequent where a "
        "lifetime is fixed, long and without jitter (`static-10`). The published hit rate is missed at the default "
        "quantile: 5 % of the requests are for contents that never come again, and a longer lifetime buys the rest "
        "with stale answers (the curve in the plot). Nor do the published latencies agree with each other: audio of "
        "Gamma(3.8, 82 ms) has a P99 of 797 ms, not 310; so P99 falls only as far as fewer requests compute at all. "
        "What adapting buys is in `hindsight`: against the one fixed lifetime that, chosen afterwards, is as stale. "
        "One lifetime a modality buys compute time and no hits, because it holds longer what is slow to come back, "
        "and dear; by key it buys both. On the trace, 2 s hit nothing at all, and the learned lifetime is a little "
        "worse than the best fixed one in hindsight: it begins with nothing, and blocks of conversations are no "
        "steady streams. Early refresh moves little, because concurrent callers share one computation anyway."
    )

    def __init__(self) -> None:
        self._arms: dict[str, list[Outcome]] = {}
        self._fixed: dict[float, list[Outcome]] = {}

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Play the same traffic with every arm; `seeds` alter traffic, compute times and draws."""
        seconds, grid = (200.0, QUICK_GRID) if quick else (300.0, GRID)
        names = [name for name in ARMS if not quick or not name.startswith(f"{OURS}/")]
        self._arms, self._fixed = _play([draw(seed, seconds) for seed in seeds], seeds, names, grid, progress)
        found = [*rows(self._arms, self._fixed)]
        real = list[str]()
        if not quick and (trace := _trace()) is not None:
            real.append(f"{TRACE_SHARE:.0%} of the blocks of {PUBLISHED_TRACES[TRACE].source}, all as text")
            played = _play([traced(trace)] * len(seeds), seeds, ["static", OURS], TRACE_GRID, progress)
            found += [row for row in rows(*played, prefix=f"{TRACE}/") if row.id.split("/")[-1] in TRACE_ROWS]
        servers = ", ".join(f"{count} for {name}" for name, count in SERVERS.items())
        return Result(
            self.name, quick, tuple(seeds),
            (
                "the product's Cache: lookups, deadlines, early refresh, stale-while-revalidate, what lifetimes learn",
                "compute times of the published shapes: image Gamma(5.2, 23 ms), audio Gamma(3.8, 82 ms); text "
                "Gamma(4, 21 ms) with the mean of its published 85 ms",
                *real,
            ),
            (
                "time; lookups take none of it",
                f"computing: a queue before a few servers ({servers}); concurrent callers of one key share it",
                "who asks for what and when, but for the trace; its pace lets 2 s hit about as often as published",
                f"each source changes every {CHANGE_SECONDS:.0f} s on average and tells nobody: the share of stale "
                "answers is the one to expect at their ages",
            ),
            tuple(found),
        )  # fmt: skip

    def plot(self, result: Result, figure: Figure) -> None:
        """Hit rate over staleness: the fixed lifetimes as a curve, the arms as points."""
        if not self._arms:
            super().plot(result, figure)
            return
        figure.set_size_inches(8, 4.4)
        axes = figure.subplots()
        curve = [(_middle(found, "stale"), _middle(found, "hits")) for found in self._fixed.values()]
        axes.plot(*zip(*curve, strict=True), ".-", color="#8793a6", label="fixed, with jitter, early refresh and grace")
        for place, lifetime in zip(curve, self._fixed, strict=True):
            axes.annotate(f"{lifetime:g} s", place, textcoords="offset points", xytext=(4, -11), fontsize=7)
        for (name, found), mark in zip(self._arms.items(), "s^vDoP*X", strict=False):
            colour = "#b5482f" if name.startswith("static") else "#2f7d5b"
            axes.plot(_middle(found, "stale"), _middle(found, "hits"), mark, color=colour, markersize=6, label=name)
        axes.set_xscale("log")
        axes.set_xlabel("answers from the cache whose source had changed, %")
        axes.set_ylabel("answered at once, %")
        axes.legend(frameon=False, loc="lower right", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)


def _play(
    traffics: Sequence[Traffic], seeds: Sequence[int], names: Sequence[str], grid: Sequence[float], progress: Progress
) -> tuple[dict[str, list[Outcome]], dict[float, list[Outcome]]]:
    """Every arm and every fixed lifetime on every traffic."""
    arms: dict[str, list[Outcome]] = {name: [] for name in names}
    fixed: dict[float, list[Outcome]] = {lifetime: [] for lifetime in grid}
    steps, done = len(seeds) * (len(names) + len(grid)), 0
    for seed, traffic in zip(seeds, traffics, strict=True):
        for name, outcomes in arms.items():
            progress(name, done, steps)
            arm, done = ARMS[name], done + 1
            outcomes.append(replay(traffic, arm.lifetime(), seed, beta=arm.beta, grace=arm.grace))
        for lifetime, outcomes in fixed.items():
            progress(f"fixed {lifetime} s", done, steps)
            done += 1
            outcomes.append(replay(traffic, FixedTTL(lifetime, JITTER), seed, beta=BETA, grace=GRACE))
    progress("done", steps, steps)
    return arms, fixed


def _trace() -> Trace | None:
    try:
        return read(TRACE, traces_folder()).sampled(TRACE_SHARE)
    except AssetError:
        return None


def _middle(found: Sequence[Outcome], what: str) -> float:
    return 100 * float(np.median([getattr(one, what) for one in found]))


def rows(
    arms: Mapping[str, Sequence[Outcome]], fixed: Mapping[float, Sequence[Outcome]], prefix: str = ""
) -> Iterator[Row]:
    """Four rows an arm; hits by modality; ours against fixed lifetimes chosen in hindsight."""
    for name, found in arms.items():
        words, values = ARMS[name].words, _NONE if prefix else PUBLISHED.get(name, _NONE)
        goals = values if name == OURS else _NONE
        shown: tuple[tuple[str, str, str, Better, list[float]], ...] = (
            ("hits", "answered at once", "%", "higher", [100 * one.hits for one in found]),
            ("avalanches", "ends of hot blocks in an avalanche", "%", "lower", [100 * one.avalanches for one in found]),
            ("p99", "P99 of waiting", "ms", "lower", [1e3 * one.p99 for one in found]),
            ("saved", "compute time saved", "%", "higher", [100 * one.saved for one in found]),
            ("stale", "answers from the cache whose source had changed", "%", "lower", [100 * o.stale for o in found]),
        )
        for place, (metric, what, unit, better, samples) in enumerate(shown):
            goal, published = (goals[place], values[place]) if place < 3 else (None, None)
            yield Row.of(
                f"{prefix}{name}/{metric}", f"{what}: {words}", unit, better, samples, target=goal, published=published
            )
    for name in ("static", OURS):
        for kind in LATENCY:
            samples = [100 * one.by_modality[kind] for one in arms[name]]
            yield Row.of(
                f"{prefix}{name}/hits/{kind}", f"answered at once, {kind}: {ARMS[name].words}", "%", "higher", samples
            )
    ratio = [ours.p99 / theirs.p99 for ours, theirs in zip(arms[OURS], arms["static"], strict=True)]
    yield Row.of(
        f"{prefix}p99/of-static", "P99, survival with everything ÷ static", "x", "lower", ratio,
        target=203 / 412, published=203 / 412,
    )  # fmt: skip
    for name in (name for name in arms if name.startswith(OURS)):
        words = ARMS[name].words
        for what, points in (("hits", "hits"), ("saved", "compute time saved")):
            gains = list[float]()
            for seed, ours in enumerate(arms[name]):
                stale = np.log([found[seed].stale for found in fixed.values()])  # in logs the curve is all but straight
                theirs = [getattr(found[seed], what) for found in fixed.values()]
                same = float(np.interp(np.log(ours.stale), stale, theirs))
                gains.append(100 * (getattr(ours, what) - same))
            yield Row.of(
                f"{prefix}hindsight/{name}/{what}", f"{points} above the fixed lifetime that is as stale: {words}",
                "points", "higher", gains, target=0.0 if name == OURS else None,
            )  # fmt: skip
