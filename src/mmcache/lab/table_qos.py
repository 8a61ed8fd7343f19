"""Table `qos`: payment lookups against a report export on one cache, with QoS and without (C9).

Five arms run in turn, round by round, on the same requests: the critical tenant alone, beside a batch tenant at full
blast with QoS, with QoS but no `batch_nice`, and without QoS; and the control, alone in its cache beside the export's
model in another process. Intervals are bootstrapped over rounds, and over requests within them.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from mmcache.admission.qos import HEAVIEST, QoS
from mmcache.cache import Cache
from mmcache.lab import data
from mmcache.lab.models import ImageEncoder, TextEncoder
from mmcache.lab.qos_apart import encoding_apart
from mmcache.lab.qos_load import (
    BATCH,
    CRITICAL,
    EXPORT_THREADS,
    MEMORY_BYTES,
    RATE,
    SLOTS,
    TENANTS,
    Models,
    Round,
    above_quota,
    draw,
    overtaken,
    pressure,
    run,
    warmed,
)
from mmcache.lab.table import Progress, Result, Row, Table, percentile
from mmcache.model.clock import Clock
from mmcache.model.errors import SettingsError
from mmcache.niceness import check_nice
from mmcache.settings import Settings, SlotSettings, Tenant
from mmcache.slots import Slots
from mmcache.testing import FakeClock

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARMS = ("alone", "apart", "qos", "not-nice", "open")
WORDS = {
    "alone": "alone",
    "apart": "beside the export's model in another process",
    "qos": "beside the export, QoS",
    "not-nice": "beside the export, QoS without batch_nice",
    "open": "beside the export, no QoS",
}
BESIDE = ARMS[2:]
NICE = 10
PAGES_A_SECOND = 12.0
"""Of rows `memory`: what two free cores export."""
PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
QUOTA = 1 << 20
BOOTSTRAP = 2000
_PUBLISHED = {"critical/qos/p99": 12.4, "critical/qos/hit": 89.7, "batch/qos/p99": 328.0, "batch/qos/hit": 33.5}
SWITCH_SECONDS = 0.0005
"""How long one thread may keep the interpreter from another, in every arm; Python's own is ten times that."""

Rounds = Mapping[str, Sequence[Round]]
Latencies = Sequence[npt.NDArray[np.float64]]
"""Seconds, an array a round."""


@contextmanager
def _switching(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class QoSTable(Table):
    """Latency, hit rate and admission per class."""

    name: ClassVar[str] = "qos"
    title: ClassVar[str] = "QoS: what a report export at full blast costs payment lookups, with classes and without"
    remark: ClassVar[str] = (
        "The control (`apart`) says whose a rise is: there the export's model runs in another process, which shares "
        "nothing with the cache but the machine's cores. What P99 rises there, no slots, classes or interpreter cause; "
        "it is what the second busy core costs the first. Here, now and then the same encoding takes twice its usual "
        "time *on the core* (52 ms and not 20–27, counted by `thread_time`) while both cores multiply matrices, as two "
        "threads of one physical core do. `rise-over-apart` is what one cache for both adds to that; "
        "P99 rests on about twenty such encodings, so where its interval holds both 0 and the target, the run does not "
        "say whether anything is added. Trial runs with Python's own switch interval, and "
        "with critical payments that never wait for a slot of the export's, did not change it. "
        "`batch_nice` is for cores that other programs want as well: "
        "without it (`not-nice`), Linux gives the export as much of the process's share as the lookups, which slots "
        "cannot change. `late` is how late lookups' threads woke: where that of the tenant alone is above a "
        "millisecond, the machine was busy with other things, and all latencies are theirs as well. Half of the slots "
        "(one of two) stay closed to batch, so the export is slower with QoS than without on free cores (`pages`). "
        "It also stores little while memory is full of payments (`memory/batch`): it may turn its own space, about a "
        "twentieth, over once in ten seconds, and that is what the lookups' hits cost."
    )
    default_seeds: ClassVar[tuple[int, ...]] = tuple(range(6))

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """A round a seed. Raises `AssetError`."""
        seeds = seeds[:2] if quick else seeds
        models = _models()
        rounds: dict[str, list[Round]] = {arm: [] for arm in ARMS}
        with _switching(SWITCH_SECONDS):
            for number, seed in enumerate(seeds):
                load = draw(seed, 2.0 if quick else 8.0)
                for place in range(len(ARMS)):
                    arm = ARMS[(place + number) % len(ARMS)]
                    with _beside(arm), closing(open_cache(arm)) as pool:
                        rounds[arm].append(run(warmed(pool), load, models, exporting=arm in BESIDE))
                    progress(arm, number * len(ARMS) + place + 1, len(seeds) * len(ARMS))
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                f"one cache of {MEMORY_BYTES >> 20} MiB with {SLOTS} compute slots and batch_nice {nice()}; "
                f"{RATE:.0f} lookups a second arrive open-loop, latency counts from arrival; "
                f"sys.setswitchinterval({SWITCH_SECONDS}) in every arm",
                f"{EXPORT_THREADS} export threads at full blast; multilingual-e5-small encodes payments, DINOv2 "
                "ViT-S/14 encodes pages, one thread each",
                f"{sum(len(one.critical.seconds) for one in rounds['qos'])} lookups an arm, the same in each arm; "
                "arms take turns",
            ),
            (
                "payments are made-up texts, pages are video frames; popularity is Zipf 0.9, a tenth of the lookups "
                "is for payments never seen",
                "vectors of earlier payments are random ones, put there before a round",
                f"rows `memory`: time and models ({PAGES_A_SECOND:.0f} pages a second, as on two free cores)",
            ),
            (*rows(rounds), *under_pressure(30.0 if quick else 120.0, seeds[:3]), *_bounds(quick, models)),
        )

    def plot(self, result: Result, figure: Figure) -> None:
        """Latency by percentile, and shares by class."""
        found = {row.id: row.ours for row in result.rows}
        figure.set_size_inches(8, 3.4)
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        colours = {"alone": "#8793a6", "apart": "#4a6fa5", "qos": "#2f7d5b", "not-nice": "#c9a227", "open": "#b5482f"}
        for arm in ARMS:
            curve = [found.get(f"critical/{arm}/{_label(share)}") for share in PERCENTILES]
            if None not in curve:
                left.plot(range(len(curve)), curve, marker="o", color=colours[arm], label=WORDS[arm])
        left.set_xticks(range(len(PERCENTILES)), [_label(share) for share in PERCENTILES])
        left.set_yscale("log")
        left.set_ylabel("ms from arrival, critical")
        left.legend(frameon=False, fontsize=8)
        shown = [f"{who}/{arm}/hit" for who in ("critical", "batch") for arm in ARMS if f"{who}/{arm}/hit" in found]
        right.barh(shown, [found[id] or 0.0 for id in shown], color=[colours[id.split("/")[1]] for id in shown])
        right.invert_yaxis()
        right.set_xlabel("% hits")
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        figure.suptitle(f"{result.name}{' (quick)' if result.quick else ''}")


def open_cache(arm: str, clock: Clock | None = None) -> Cache:
    """A cache for both tenants, as `arm` has it."""
    if arm == "open":
        return Cache(memory=MEMORY_BYTES, policy="lru", clock=clock)
    slots = SlotSettings(SLOTS, batch_nice=0 if arm == "not-nice" else nice())
    return Cache(
        memory=MEMORY_BYTES, policy="lru", tenants=TENANTS, settings=Settings(compute_slots=slots), clock=clock
    )


def _beside(arm: str) -> AbstractContextManager[None]:
    """What runs outside the cache meanwhile."""
    return encoding_apart(nice()) if arm == "apart" else nullcontext()


@cache
def nice() -> int:
    """The `batch_nice` that this process may use: `NICE` or 0."""
    try:
        check_nice(NICE)
    except SettingsError:
        return 0
    return NICE


def _models() -> Models:
    text, image = TextEncoder(), ImageEncoder(threads=1)
    pictures = list(data.frames("bikes", 0, 64, 2))
    text.load()
    image.load()
    return Models(text.encode, lambda page: image.encode(pictures[page % len(pictures)]))


def _label(share: float) -> str:
    return f"p{100 * share:g}"


def rows(rounds: Rounds) -> list[Row]:
    """What the arms' rounds show."""
    found: list[Row] = []
    late = {arm: [np.array(one.critical.seconds) for one in rounds[arm]] for arm in ARMS}
    for arm in ARMS:
        for share in PERCENTILES:
            each = [1e3 * percentile(one.critical.seconds, share) for one in rounds[arm]]
            pooled = 1e3 * percentile(np.concatenate(late[arm]).tolist(), share)
            id = f"critical/{arm}/{_label(share)}"
            found.append(
                _row(id, f"lookup latency, {WORDS[arm]}", "ms", "lower", pooled, each, published=_PUBLISHED.get(id))
            )
        slept = [1e3 * percentile(one.critical.late, 0.99) for one in rounds[arm] if one.critical.late]
        if slept:
            words = f"before a lookup's thread ran, P99, {WORDS[arm]}"
            found.append(Row.of(f"critical/{arm}/late", words, "ms", "lower", slept))
    for arm, target, published in (
        ("apart", None, None),
        ("qos", 10.0, None),
        ("not-nice", None, None),
        ("open", None, 300.0),
    ):
        found += _rise(
            f"critical/{arm}/rise", WORDS[arm], "the tenant alone", late["alone"], late[arm], target, published
        )
    found += _rise("critical/qos/rise-over-apart", WORDS["qos"], WORDS["apart"], late["apart"], late["qos"], 10.0, None)
    hits = {arm: [100 * float(np.mean(one.critical.hits)) for one in rounds[arm]] for arm in ARMS}
    for arm in ARMS:
        id = f"critical/{arm}/hit"
        found.append(Row.of(id, f"lookups hit, {WORDS[arm]}", "%", "higher", hits[arm], published=_PUBLISHED.get(id)))
    for arm, target in (("apart", None), ("qos", 1.0), ("not-nice", None), ("open", None)):
        lost = [alone - beside for alone, beside in zip(hits["alone"], hits[arm], strict=True)]
        mean = float(np.mean(lost))
        found.append(
            _row(f"critical/{arm}/hit-lost", f"critical hits lost, {WORDS[arm]}", "points", "lower", mean, lost, target)
        )
    for arm in BESIDE:
        found += _batch(arm, rounds[arm])
    for who, tenant, published in (("critical", CRITICAL, 98.2), ("batch", BATCH, 41.6)):
        taken, refused = (sum(one.stored[tenant][part] for one in rounds["qos"]) for part in (0, 1))
        share = 100 * taken / max(1, taken + refused)
        found.append(
            Row.of(f"{who}/qos/admitted", "computed blocks that were stored", "%", "higher", share, published=published)
        )
    return found


def _batch(arm: str, rounds: Sequence[Round]) -> list[Row]:
    seconds = [second for one in rounds for second in one.batch.seconds]
    if not seconds:
        return []
    hits = [100 * float(np.mean(one.batch.hits)) for one in rounds if one.batch.hits]
    speed = [len(one.batch.seconds) / one.seconds for one in rounds]
    each = [1e3 * percentile(one.batch.seconds, 0.99) for one in rounds if one.batch.seconds]
    p99, hit = f"batch/{arm}/p99", f"batch/{arm}/hit"
    return [
        _row(p99, f"page latency, {WORDS[arm]}", "ms", "lower", 1e3 * percentile(seconds, 0.99), each,
             published=_PUBLISHED.get(p99)),
        Row.of(hit, f"pages hit, {WORDS[arm]}", "%", "higher", hits, published=_PUBLISHED.get(hit)),
        Row.of(f"batch/{arm}/pages", f"pages exported, {WORDS[arm]}", "1/s", "higher", speed),
    ]  # fmt: skip


def _row(
    id: str, words: str, unit: str, better: Any, ours: float, each: Sequence[float], target: float | None = None,
    published: float | None = None,
) -> Row:  # fmt: skip
    """A row of a pooled figure, whose spread is that of the rounds."""
    return Row(id, words, unit, better, ours, (percentile(each, 0.1), percentile(each, 0.9)), target, published)


def _rise(
    id: str, words: str, reference: str, alone: Latencies, beside: Latencies, target: float | None,
    published: float | None,
) -> list[Row]:  # fmt: skip
    """How much higher the P99 of `beside` is, with the ends of its interval: what is claimed must hold there, too."""
    drawn = _rises(alone, beside)
    whole = 100 * (_p99(beside) / _p99(alone) - 1)
    spread = (float(np.percentile(drawn, 10)), float(np.percentile(drawn, 90)))
    words = f"rise of the critical P99 over that of {reference}, {words} (spread: bootstrap)"
    ends = [
        Row.of(f"{id}-95-{side}", "end of its 95 % interval", "%", "lower", float(np.percentile(drawn, place)),
               target=target if side == "high" else None)
        for side, place in (("low", 2.5), ("high", 97.5))
    ]  # fmt: skip
    return [Row(id, words, "%", "lower", whole, spread, target, published), *ends]


def _p99(rounds: Latencies) -> float:
    return float(np.percentile(np.concatenate(rounds), 99))


def _rises(alone: Latencies, beside: Latencies) -> npt.NDArray[np.float64]:
    """Bootstrapped rises of the P99 in per cent: rounds drawn for both arms alike, then requests in each."""
    rng = np.random.default_rng(0)
    found = np.empty(BOOTSTRAP)
    for n in range(BOOTSTRAP):
        drawn = rng.integers(len(alone), size=len(alone))
        one, other = ([rng.choice(arm[at], len(arm[at])) for at in drawn] for arm in (alone, beside))
        found[n] = 100 * (_p99(other) / _p99(one) - 1)
    return found


def under_pressure(seconds: float, seeds: Sequence[int]) -> list[Row]:
    """Hits and admission of minutes of the same load in virtual time, where the export fills memory many times over."""
    found: dict[str, list[Round]] = {arm: [] for arm in ("alone", "qos", "open")}
    for seed in seeds:
        load = draw(seed, seconds)
        for arm, rounds in found.items():
            clock = FakeClock()
            with closing(open_cache(arm, clock)) as pool:
                rounds.append(pressure(warmed(pool), load, clock.advance, 0.0 if arm == "alone" else PAGES_A_SECOND))
    hits = {arm: [100 * float(np.mean(one.critical.hits)) for one in rounds] for arm, rounds in found.items()}
    rows = [
        Row.of(f"memory/critical/{arm}/hit", f"lookups hit, {WORDS[arm]}, in virtual time", "%", "higher", hits[arm])
        for arm in found
    ]
    for arm, target in (("qos", 1.0), ("open", None)):
        lost = [alone - beside for alone, beside in zip(hits["alone"], hits[arm], strict=True)]
        words = f"critical hits lost, {WORDS[arm]}, in virtual time"
        rows.append(Row.of(f"memory/critical/{arm}/hit-lost", words, "points", "lower", lost, target=target))
    for arm in ("qos", "open"):
        each = [100 * float(np.mean(one.batch.hits)) for one in found[arm]]
        rows.append(Row.of(f"memory/batch/{arm}/hit", f"pages hit, {WORDS[arm]}, in virtual time", "%", "higher", each))
    for who, tenant in (("critical", CRITICAL), ("batch", BATCH)):
        each = [
            100 * taken / max(1, taken + refused) for taken, refused in (one.stored[tenant] for one in found["qos"])
        ]
        words = "computed blocks that were stored, in virtual time"
        rows.append(Row.of(f"memory/{who}/qos/admitted", words, "%", "higher", each))
    return rows


def _bounds(quick: bool, models: Models) -> list[Row]:
    """What is promised whatever the load: starvation, and quotas to the byte."""
    slots = Slots(SLOTS, QoS(TENANTS), tenants=TENANTS)
    texts = itertools.count()
    found, share = overtaken(slots.taken, lambda: models.text(f"{next(texts)}"), 2.0 if quick else 15.0)
    promised = 2 * max(HEAVIEST, sum(tenant.weight for tenant in TENANTS.values())) / TENANTS[BATCH].weight + 4
    with Cache(memory=2 * QUOTA, policy="lru", tenants={"small": Tenant("normal", quota=QUOTA)}) as cache:
        above, used = above_quota(cache, QUOTA, "small", 300 if quick else 2000, 0)
    return [
        Row.of("starvation/overtaken", "computations that went before a waiting batch one, all slots wanted by the "
               "critical tenant: the most", "count", "lower", float(max(found, default=0)), target=promised),
        Row.of("starvation/share", "of the computations were batch's", "%", "higher", 100 * share,
               target=100 / (1 + promised)),
        Row.of("quota/above", "most that a tenant ever held above its quota", "bytes", "lower", float(max(0, above)),
               target=0.0),
        Row.of("quota/used", "of the quota in use at the end", "%", "higher", 100 * used),
    ]  # fmt: skip
