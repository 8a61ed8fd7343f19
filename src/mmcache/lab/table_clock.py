"""Table `clock`: what skewed and stepping server clocks do to keys, with and without our way of keeping deadlines (C7).

The measured hours are those of `lab.clock_night`: real servers with clocks of their own, real seconds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mmcache.lab.clock_night import NODES, RECOMPUTE, STEP, WAYS, Life, Night, redis_client, spend
from mmcache.lab.measure import interleave
from mmcache.lab.servers import server
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.valkey import ValkeyTier

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATEST = 1.0
"""Seconds that a key may live past its deadline."""
AVALANCHE = 20.0
"""Per cent of the keys that may vanish within one recompute time."""
KINDS = {"skewed": ("skew-1", "skew-2"), "back": ("back",), "forward": ("forward",)}
Lives = Sequence[Life]
_COLOURS = {"px": "#8793a6", "pxat": "#b5482f", "ours": "#2f7d5b"}


class ClockTable(Table):
    """Keys that die early, live on, or vanish together, when servers' clocks are not right."""

    name: ClassVar[str] = "clock"
    title: ClassVar[str] = "Clocks: keys that die early or live on when servers' clocks are skewed or set"
    remark: ClassVar[str] = (
        "`px` is expiry by the server in milliseconds from now, as most caches do; `pxat` is expiry at a time by the "
        "client's wall clock, which is right here; `ours` is the Valkey tier. A key counts as early when an answer "
        "that came before its deadline said that it was gone, as late when a question that went out more than 1 s "
        "after its deadline found it. Avalanche: the largest share of a node's keys that vanish within 0.5 s; some "
        "must, as keys end all the time. The clocks are set at 02:15 and put right when seven tenths of the night "
        "are over; the machine that wrote the keys leaves after the step, and another one joins. `ours/unanswered`: "
        "what that one reads first is missed as `abstained`, until a machine that has followed the server's clock "
        "looks again. What was written before a step that no machine saw stays so; it is not guessed. `get/…` are "
        "single reads of 1 KiB: `bare` asks for the same bytes with redis-py; `ours` is our own client, checks and "
        "parses the frame, and looks at the server's clock every quarter of a second. The published design gives no "
        "figures for this."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """One night a seed. Raises `AssetError` where servers or libfaketime are missing."""
        keys, seconds = (45, 9.0) if quick else (90, 13.0)
        nights = []
        for done, seed in enumerate(seeds):
            progress("nights", done, len(seeds))
            with tempfile.TemporaryDirectory(prefix="mmcache-clock-") as folder:
                nights.append(spend(Path(folder), seed, keys, seconds))
        progress("nights", len(seeds), len(seeds))
        skews = ", ".join(f"{name} {skew * 1000:+.0f} ms" for name, (skew, _) in NODES.items())
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                f"{len(NODES)} valkey-server processes, each with a wall clock of its own under libfaketime ({skews})",
                f"real seconds: {keys} keys a node and way live 2 to {seconds:.0f} s; clocks are set by {STEP:.0f} s",
                "ValkeyTier as users get it, over real sockets on loopback",
            ),
            (
                "the three client machines are one process: their own times began elsewhere",
                "the fourth node, set forward instead of back, is our addition",
            ),
            (*rows(nights), *_costs(quick)),
        )

    def plot(self, result: Result, figure: Figure) -> None:
        """Three panels: early, late, avalanche; a group of bars a kind of node."""
        found = {row.id: row for row in result.rows}
        panels = {
            "early": "keys dead early, %",
            "late": "keys alive > 1 s late, %",
            "avalanche": "largest avalanche, %",
        }
        figure.set_size_inches(9, 3.2)
        for axes, (measure, label) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
            for place, way in enumerate(WAYS):
                heights = [found[f"{kind}/{way}/{measure}"].ours or 0.0 for kind in KINDS]
                axes.bar([n + 0.27 * place for n in range(len(KINDS))], heights, 0.25, color=_COLOURS[way], label=way)
            axes.set_xticks([n + 0.27 for n in range(len(KINDS))], list(KINDS))
            axes.set_title(label, fontsize=9)
            axes.set_ylim(0, 105)
            axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)


def rows(nights: Sequence[Night]) -> list[Row]:
    """One row a kind of node, way and measure; one sample a night."""
    found: list[Row] = []
    for kind, names in KINDS.items():
        for way in WAYS:
            lives = [[life for name in names for life in night.lives[name][way]] for night in nights]
            for measure, (words, unit, figure, target) in MEASURES.items():
                figures, aim = [figure(night) for night in lives], target if way == "ours" else None
                found.append(Row.of(f"{kind}/{way}/{measure}", words, unit, "lower", figures, target=aim))
    every = [[life for ways in night.lives.values() for life in ways["ours"]] for night in nights]
    unanswered = [100 * sum(life.unanswered for life in night) / sum(life.asked for life in night) for night in every]
    return [*found, Row.of("ours/unanswered", "reads that nobody could vouch for", "%", "lower", unanswered)]


def _early(lives: Lives) -> float:
    return 100 * sum(life.before > 0 for life in lives) / len(lives)


def _before(lives: Lives) -> float:
    return max(life.before for life in lives)


def _late(lives: Lives) -> float:
    return 100 * sum(life.past > LATEST for life in lives) / len(lives)


def _past(lives: Lives) -> float:
    return max(life.past for life in lives)


def _avalanche(lives: Lives) -> float:
    ends = sorted(life.died for life in lives if life.died is not None)
    most = max((sum(end <= other <= end + RECOMPUTE for other in ends) for end in ends), default=0)
    return 100 * most / len(lives)


MEASURES: dict[str, tuple[str, str, Callable[[Lives], float], float]] = {
    "early": ("keys found dead before their deadline", "%", _early, 0.0),
    "before": ("longest found dead before a deadline", "s", _before, 0.0),
    "late": ("keys found alive more than 1 s after their deadline", "%", _late, 0.0),
    "past": ("longest found alive after a deadline", "s", _past, LATEST),
    "avalanche": ("most keys gone within 0.5 s", "%", _avalanche, AVALANCHE),
}
"""Name → words, unit, figure of one night's keys, target for ours."""


def _costs(quick: bool) -> list[Row]:
    key, frame = make_key(1), make_frame(make_key(1), bytes(1024))
    with tempfile.TemporaryDirectory(prefix="mmcache-clock-") as folder, server(Path(folder)) as started:
        tier = ValkeyTier.open(started.url)
        tier.put([frame], [time.monotonic() + 3600])
        with redis_client(started.port) as client:
            client.set("bare", frame.to_bytes())
            times = interleave(
                {"bare": lambda: client.get("bare"), "ours": lambda: tier.get([key])},
                rounds=9 if quick else 31,
                least_seconds=0.02,
            )
        tier.close()
    found = [
        Row.of(f"get/{name}", "one read of 1 KiB", "µs", "lower", timing.scaled(1e6)) for name, timing in times.items()
    ]
    return [*found, Row.of("get/ratio", "ours over bare", "x", "lower", times["ours"].over(times["bare"]))]
