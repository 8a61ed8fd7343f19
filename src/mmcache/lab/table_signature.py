"""Table `signature`: a model is upgraded under load while two versions are live (A3), with the gate and without it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mmcache.cache import Cache
from mmcache.lab.measure import interleave
from mmcache.lab.servers import server
from mmcache.lab.signature_models import trigrams
from mmcache.lab.signature_runs import WINDOW, Corpus, Decide, Run, Scale, dip, late, run, share, steady
from mmcache.lab.signature_worker import FRESH, SESSIONS
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.model.clock import SystemClock
from mmcache.model.errors import AssetError
from mmcache.rollout import Rollout
from mmcache.rollout.board import Board
from mmcache.rollout.places import places

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FULL = Scale(popular=60, processes=2, threads=3, rate=40.0, seconds=8.0)
QUICK = Scale(popular=20, processes=2, threads=2, rate=50.0, seconds=2.5)
FOLDER_MS, SERVER_MS = 100.0, 1500.0
"""How long after a switch a process may still begin requests with the old version."""
PERCENT = 5.0
_STEPS = (5.0, 25.0, 60.0, 100.0)
_DARK = 0.0
"""A canary that nobody gets, so that a promotion is a switch for everybody."""


def _canary(percent: float) -> Decide:
    return lambda board: board.canary("text", "v2", percent)


def _promote(board: Board) -> None:
    board.promote("text")


def _rollback(board: Board) -> None:
    board.rollback("text")


def _flips(count: int) -> list[tuple[float, str, Decide]]:
    """`count` promotions, and rollbacks half-way between."""
    return [
        decision
        for n in range(count)
        for decision in (
            ((n + 0.1) / count, "canary", _canary(_DARK)),
            ((n + 0.2) / count, "promote", _promote),
            ((n + 0.6) / count, "rollback", _rollback),
        )
    ]


THERE_AND_BACK = ((0.15, "canary", _canary(PERCENT)), (0.45, "promote", _promote), (0.75, "rollback", _rollback))
STEPWISE = (
    *((0.15 + 0.15 * n, f"canary {p:g} %", _canary(p)) for n, p in enumerate(_STEPS)),
    (0.8, "promote", _promote),
)


Curve = tuple[list[float], list[float], list[float]]


class SignatureTable(Table):
    """Crashes, wrong values, the dip of the hit rate, and how long processes disagree."""

    name: ClassVar[str] = "signature"
    title: ClassVar[str] = "Signature: a model is upgraded under load, with two versions live"
    remark: ClassVar[str] = (
        "An application reads each output as its own version defines it. `content`: a cache keyed by SHA-256 of the "
        "text alone, in memory and in one folder; `gate`: ours. Both are deployed process by process, so that for a "
        "fifth of the run one process runs the old code and one the new. `schema`: the output is renamed and grows "
        "from 384 to 512 numbers, and the version string was forgotten, so that only the schema tells them apart; "
        "`weights`: same names and shapes, other values. A crash is an output that the application cannot read; a "
        "wrong value is one that differs from what its version computes without any cache. `rollout`: both versions "
        "in every process, decided from outside: canary, promotion, rollback. Dip: by how many points the worst "
        f"{WINDOW} requests after a switch lie below the hit rate before it; its length: requests until it stays "
        "within 10 points. `content` goes on answering with the old version's outputs, so its dip is chance, and shows "
        "how much of the other dips is. A switch of versions must compute the popular texts anew; `stepwise` raises "
        "the canary to 100 % before it promotes, which spreads that, and a rollback finds the old blocks. `folder` and "
        "`server`: promotions and rollbacks in quick succession. Late: requests that began after the command had "
        "returned and got the version of before; a process looks at the folder 20 times a second, at a server once. On "
        "a folder the command returns when the change is durable, which is after others can see it. The design "
        "publishes no figures for this."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Every way once a seed; one seed where `quick`. Raises `AssetError` where the model is missing."""
        scale = QUICK if quick else FULL
        seeds = tuple(seeds)[:1] if quick else tuple(seeds)
        corpus = Corpus.make(80 if quick else 220, progress)
        found: dict[str, list[Run]] = {}
        with tempfile.TemporaryDirectory(prefix="mmcache-signature-") as folder:
            for done, seed in enumerate(seeds):
                for name, one in _runs(Path(folder) / str(seed), corpus, scale, seed):
                    found.setdefault(name, []).append(one)
                    progress(f"seed {seed}: {name}", done + 1, len(seeds))
        rows = [*_versus(found), *_rollout(found), *_agreement(found), *_costs(quick)]
        self._curves: dict[str, Curve] = {
            name: _curve(found[name][0]) for name in ("content", "gate", "rollout", "stepwise")
        }
        return Result(
            self.name,
            quick,
            seeds,
            (
                f"{scale.processes} processes with {scale.threads} threads each on one folder; requests come by "
                f"themselves, {scale.rate * scale.threads * scale.processes:g} a second in all for {scale.seconds:g} s",
                f"multilingual-e5-small; {len(corpus.texts)} first words of paragraphs of Python's manual: "
                f"{scale.popular} popular ones (Zipf), and {FRESH:.0%} of the requests for one that is new",
                "`mmcache signature` decides through the same code from another process",
                *(["the state of `server` on a valkey-server"] if "server" in found else []),
            ),
            (
                "`v2` and the other weights are made from that model's vector (letter trigrams added, mean removed): "
                "the agreement of `v2` is 1 by construction",
                f"one tenant with {SESSIONS} sessions: the canary's share is one of sessions",
                "a candidate that runs out of memory raises by itself",
            ),
            tuple(rows),
        )  # fmt: skip

    def plot(self, result: Result, figure: Figure) -> None:
        """Hit rates over time; dashed: when somebody switched."""
        curves: dict[str, Curve] = getattr(self, "_curves", {})
        axes = figure.subplots(1, max(1, len(curves)), sharey=True, squeeze=False)[0]
        figure.set_size_inches(11, 3)
        for place, (name, (times, rates, switches)) in zip(axes, curves.items(), strict=False):
            place.plot(times, rates, color="#2f7d5b" if name != "content" else "#b5482f", linewidth=1)
            for at in switches:
                place.axvline(at, color="#8793a6", linewidth=0.8, linestyle="--")
            place.set(title=name, xlabel="s", ylim=(0, 101))
        axes[0].set_ylabel("hits, % of the last 100")


def _runs(folder: Path, corpus: Corpus, scale: Scale, seed: int) -> list[tuple[str, Run]]:
    def plain(name: str, way: str, versions: tuple[str, str]) -> tuple[str, Run]:
        shorter = replace(scale, seconds=scale.seconds * (0.6 if versions[1] == "v1b" else 1.0))
        return name, run(folder / name, corpus, shorter, seed, way, versions)

    flips = max(2, round(scale.seconds * 1.25))  # on a folder, 0.3 s apart; on a server, which is looked at less, 1 s

    def rolled(name: str, decisions: Sequence[tuple[float, str, Decide]], *, failing: bool = False) -> tuple[str, Run]:
        root = folder / name / "cache"
        board = Board(places(root)[0])
        return name, run(
            folder / name, corpus, scale, seed, "rollout", decisions=decisions, board=board, failing=failing
        )

    found = [
        plain("content", "content", ("v1", "v2")),
        plain("gate", "gate", ("v1", "v2")),
        plain("content-weights", "content", ("v1", "v1b")),
        plain("gate-weights", "gate", ("v1", "v1b")),
        rolled("rollout", THERE_AND_BACK),
        rolled("stepwise", STEPWISE),
        rolled("failing", ((0.2, "canary", _canary(50.0)),), failing=True),
        rolled("folder", _flips(flips)),
    ]
    with ExitStack() as stack:
        try:
            started = stack.enter_context(server(folder / "valkey"))
        except AssetError:
            return found
        from mmcache.settings import SharedSettings
        from mmcache.tiers.valkey.client import Client

        url = f"valkey://127.0.0.1:{started.port}"
        client = Client(SharedSettings(url), clock=SystemClock())
        stack.callback(client.close)
        board = Board(places(None, client, "mmcache:")[0])
        found.append(
            ("server", run(folder / "server", corpus, scale, seed, "rollout", decisions=_flips(max(1, flips // 3)),
                           board=board, shared=url))
        )  # fmt: skip
    return found


def _each(runs: Sequence[Run], figure: Callable[[Run], float]) -> list[float]:
    return [figure(one) for one in runs]


def _versus(found: dict[str, list[Run]]) -> list[Row]:
    rows = []
    for change, suffix in (("schema", ""), ("weights", "-weights")):
        for way in ("content", "gate"):
            runs = found[way + suffix]
            aim = 0.0 if way == "gate" else None
            rows += [
                Row.of(f"{change}/{way}/crashes", "outputs that the application cannot read", "% of requests", "lower",
                       _each(runs, lambda one: share(one.all, "crashed")), target=aim),
                Row.of(f"{change}/{way}/wrong", "values of another version, read without an error", "% of requests",
                       "lower", _each(runs, lambda one: share(one.all, "wrong")), target=aim),
                *_dips(f"{change}/{way}", runs, 0),
            ]  # fmt: skip
    return rows


def _dips(name: str, runs: Sequence[Run], place: int) -> list[Row]:
    """Of the hit rate, after the switch of that place and until the one after the next."""
    depths, lengths = [], []
    for one in runs:
        times = [switch.at for switch in one.switches]
        since = times[place]
        usual = steady(one.all, since, one.began if place == 0 else times[place - 1])
        later = [at for at in times[place + 1 :] if one.switches[times.index(at)].name != "deployed"]
        depth, length = dip(one.all, since, later[0] if later else 1 << 62, usual)
        depths.append(depth)
        lengths.append(float(length))
    return [
        Row.of(f"{name}/dip", f"hit rate, worst {WINDOW} requests after the switch against before", "points", "lower",
               depths),
        Row.of(f"{name}/dip-length", "until it stays within 10 points", "requests", "lower", lengths),
    ]  # fmt: skip


def _rollout(found: dict[str, list[Run]]) -> list[Row]:
    rows = []
    for name in ("rollout", "stepwise", "failing", "folder", *(["server"] if "server" in found else [])):
        runs = found[name]
        for field, words in (("crashed", "outputs that the application cannot read"),
                             ("wrong", "values of another version, read without an error"),
                             ("failed", "calls that raised")):  # fmt: skip
            rows.append(
                Row.of(f"{name}/{field}", words, "% of requests", "lower",
                       _each(runs, lambda one, field=field: share(one.all, field)), target=0.0)  # type: ignore[misc]
            )  # fmt: skip
    runs = found["rollout"]
    rows += [
        Row.of("rollout/canary", f"requests that the candidate answered, of {PERCENT:g} %", "%", "lower",
               _each(runs, _canaried)),
        Row.of("rollout/compared", "requests that both versions answered", "requests", "higher",
               _each(runs, lambda one: one.counts.compared if one.counts else 0)),
        Row.of("rollout/agreement", "mean agreement that was reported (cosine)", "", "higher",
               _each(runs, lambda one: (one.counts.mean if one.counts else None) or 0.0)),
        *_dips("rollout/canary", runs, 0),
        *_dips("rollout/promote", runs, 1),
        *_dips("rollout/rollback", runs, 2),
        Row.of("stepwise/dip", f"hit rate, worst {WINDOW} requests of all steps against before", "points", "lower",
               _each(found["stepwise"], _worst_step)),
        *_dips("stepwise/promote", found["stepwise"], len(_STEPS)),
        Row.of("failing/met", "calls of the failing candidate before it was on hold", "calls", "lower",
               _each(found["failing"], lambda one: one.counts.failed if one.counts else 0)),
        Row.of("failing/held", "runs in which it was put on hold", "%", "higher",
               _each(found["failing"], lambda one: 100.0 * bool(one.state and one.state.hold)), target=100.0),
    ]  # fmt: skip
    return rows


def _canaried(one: Run) -> float:
    begin, end = (switch.at for switch in one.switches[:2])
    rows = one.all
    part = rows[(rows["at"] > begin) & (rows["at"] < end)]
    return share(part, "new")


def _worst_step(one: Run) -> float:
    since = one.switches[0].at
    return dip(one.all, since, 1 << 62, steady(one.all, since, one.began))[0]


def _agreement(found: dict[str, list[Run]]) -> list[Row]:
    rows = []
    for name, most in (("folder", FOLDER_MS), ("server", SERVER_MS)):
        counts, windows, took = [], [], []
        for one in found.get(name, ()):
            for place, switch in enumerate(one.switches):
                if switch.name == "canary":
                    continue
                until = one.switches[place + 1].asked if place + 1 < len(one.switches) else 1 << 62
                took.append((switch.at - switch.asked) / 1e6)
                for rows_of_one in one.served:
                    count, ms = late(rows_of_one, switch.at, until, new=switch.name == "promote")
                    counts.append(count)
                    windows.append(ms)
        if took:
            what = f"promotions and rollbacks, state on a {name}"
            rows += [
                Row.of(f"{name}/switches", what, "switches", "higher", len(took)),
                Row.of(f"{name}/took", "the command itself", "ms", "lower", took),
                Row.of(f"{name}/late", "late requests of a process", "requests", "lower", counts),
                Row.of(f"{name}/window", "the latest of them, after the command", "ms", "lower", windows),
                Row.of(f"{name}/window/longest", "the longest of all", "ms", "lower", max(windows), target=most),
            ]
    return rows


def _costs(quick: bool) -> list[Row]:
    """Of a hit in memory: an encoder, the same behind a rollout, and with a canary."""
    with tempfile.TemporaryDirectory(prefix="mmcache-signature-") as folder, Cache(folder) as cache:
        function = trigrams
        encoder = cache.wrap(function, modality="text", signature="bare", guard=False)
        versions = {"v1": function, "v2": function}
        quiet = Rollout(cache, "quiet", versions, modality="text", guard=False)
        trying = Rollout(cache, "trying", versions, modality="text", guard=False, compare_share=0.0)
        trying.canary("v2", percent=100)
        text = "A mapping object maps hashable values"
        times = interleave(
            {"encoder": lambda: encoder(text), "rollout": lambda: quiet(text), "canary": lambda: trying(text)},
            rounds=21 if quick else 101,
            least_seconds=0.002,
        )
    bare = times["encoder"]
    return [
        Row.of("hit/encoder", "a hit in memory, one version", "µs", "lower", bare.scaled(1e6)),
        Row.of("hit/rollout", "behind a rollout that tries nothing", "x", "lower", times["rollout"].over(bare),
               target=1.25),
        Row.of("hit/canary", "behind one that tries a version", "x", "lower", times["canary"].over(bare), target=1.5),
    ]  # fmt: skip


def _curve(one: Run) -> Curve:
    """Seconds, hit rate of the last 100 requests in per cent, and when somebody switched."""
    rows = one.all
    rates = 100 * np.convolve(rows["hit"].astype(np.float64), np.ones(100) / 100, "valid")
    times = (rows["at"][99:] - one.began) / 1e9
    return times[::10].tolist(), rates[::10].tolist(), [(switch.at - one.began) / 1e9 for switch in one.switches]
