"""A trial: a scene of real processes, a fault that strikes it, and what callers see before, meanwhile and after."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from mmcache.lab.faults_caller import BLOCKS, Caller, Counting, Phase, Writer
from mmcache.settings import SharedSettings

TIMEOUT_SECONDS = 0.25
REST_SECONDS = 0.25
PATIENT_SECONDS = 10.0
"""The time limit of who finds out afterwards what became of the writes: a busy machine is no fault of theirs."""
LONGEST_HEALING = 40.0
"""Seconds; a scene that is not well after that is not well."""
_BREATH = 0.02
_MEMORY = 64 << 20


def nothing() -> None:
    """Done where there is nothing to do."""


@dataclass
class Scene:
    """Servers that run, and what can be done to them."""

    settings: SharedSettings
    strike: Callable[[], None]
    mend: Callable[[], None]
    """What somebody does so that all is well again; `nothing` where it heals by itself."""
    meanwhile: Callable[[], None] = nothing
    """Done after each round while the fault lasts."""
    lasts: float = 3.0
    """Seconds from the strike to mending."""
    ready: bool = True
    """Whether all is well before the fault strikes; else it is there from the start."""
    heals: bool = True
    """Whether `mend` makes it well."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault. `open(folder, rng)` is its scene."""

    name: str
    what: str
    """What is done, in a sentence."""
    healing: str
    """What makes it well again."""
    open: Callable[[Path, Random], AbstractContextManager[Scene]]
    quick: bool = False
    """Whether it is in a quick run."""


@dataclass
class Trial:
    """What came of it."""

    fault: Fault
    before: Phase = field(default_factory=Phase)
    during: Phase = field(default_factory=Phase)
    healing: Phase = field(default_factory=Phase)
    after: Phase = field(default_factory=Phase)
    writer: Phase = field(default_factory=Phase)
    """Of another host, which wrote all the while."""
    written: Phase = field(default_factory=Phase)
    """What a third host then found of that."""
    agreed: Phase = field(default_factory=Phase)
    """What another host, which keeps blocks in memory, found when it had heard all that was invalidated."""
    agreed_seconds: float | None = None
    """From mending until that host has nothing more that was replaced or invalidated."""
    healed_seconds: float | None = None
    """From mending (from the strike where nobody mends) until every block is found again."""
    most_timeouts: int = 0
    """That one lookup cost."""
    counted: dict[str, int | float | str] = field(default_factory=dict)
    """By the client that only looked up."""

    @property
    def phases(self) -> dict[str, Phase]:
        """All, by name."""
        return {
            "before": self.before, "during": self.during, "healing": self.healing, "after": self.after,
            "writer": self.writer, "written": self.written, "agreed": self.agreed,
        }  # fmt: skip


def settings_for(url: str, **more: object) -> SharedSettings:
    """As the trials use them: impatient, so that they are short."""
    base = SharedSettings(url, timeout_seconds=TIMEOUT_SECONDS, rest_seconds=REST_SECONDS, chunk_bytes=256 << 10)
    return replace(base, **more)  # type: ignore[arg-type]


def try_out(fault: Fault, seed: int, lasts: float | None = None) -> Trial:
    """Run it. Raises `AssetError` where the scene cannot be made here."""
    trial = Trial(fault)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="mmcache-fault-")))
        scene = opened.enter_context(fault.open(folder, Random(seed)))
        caller = opened.enter_context(closing(Caller(scene.settings)))
        counting = opened.enter_context(closing(Counting(scene.settings, caller)))
        neighbour = opened.enter_context(closing(Caller(scene.settings, like=caller, memory=_MEMORY)))
        if scene.ready:
            caller.fill(trial.before)
            caller.round(trial.before)
            counting.round()
            _read_all(neighbour, Phase())
        caller.fill(trial.before if scene.ready else trial.during)
        writer = Writer(scene.settings)
        writer.start()
        began = time.monotonic()
        try:
            scene.strike()
            _endure(scene, caller, neighbour, counting, trial.during, scene.lasts if lasts is None else lasts)
        finally:
            trial.writer = writer.stop()
        began = time.monotonic() if scene.mend is not nothing else began
        scene.mend()
        if scene.heals:
            trial.healed_seconds = _heal(caller, counting, trial, began)
            trial.agreed_seconds = _agree(neighbour, trial.agreed, began)
            with closing(Caller(replace(scene.settings, timeout_seconds=PATIENT_SECONDS))) as reader:
                writer.check(reader, trial.written)
        trial.most_timeouts, trial.counted = counting.most, counting.status()
    return trial


def _endure(scene: Scene, caller: Caller, neighbour: Caller, counting: Counting, phase: Phase, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        caller.round(phase)
        _read_all(neighbour, Phase())  # so that it may have what it should not
        counting.round()
        scene.meanwhile()
        time.sleep(_BREATH)


def _heal(caller: Caller, counting: Counting, trial: Trial, began: float) -> float | None:
    """Until two rounds of lookups, one after the other, find everything; the seconds from `began` to the first's end.

    The second is `trial.after`: one lucky round is no health, and one late answer of a busy machine no illness.
    """
    while time.monotonic() < began + LONGEST_HEALING:
        caller.fill(trial.healing)
        found = Phase()
        everything = caller.round(found)
        add(trial.healing, found)
        counting.round()
        if everything:
            healed = time.monotonic() - began
            caller.fill(trial.healing)
            trial.after = Phase()
            if caller.round(trial.after):
                return healed
            add(trial.healing, trial.after)
        time.sleep(_BREATH)
    return None


def _read_all(host: Caller, phase: Phase) -> None:
    for block in range(BLOCKS):
        host.read(phase, block)


def _agree(neighbour: Caller, phase: Phase, began: float) -> float | None:
    """Until another host finds nothing any more that was replaced or invalidated; then it is asked once more."""
    while time.monotonic() < began + LONGEST_HEALING:
        _read_all(neighbour, seen := Phase())
        if not seen.stale:
            agreed = time.monotonic() - began
            _read_all(neighbour, phase)
            return agreed
        time.sleep(_BREATH)
    _read_all(neighbour, phase)
    return None


def add(into: Phase, more: Phase) -> None:
    """Sum two phases up."""
    into.lookups += more.lookups
    into.hits += more.hits
    into.wrong += more.wrong
    into.stale += more.stale
    into.slowest = max(into.slowest, more.slowest)
    for name in ("missed", "refused", "errors", "said"):
        getattr(into, name).update(getattr(more, name))
