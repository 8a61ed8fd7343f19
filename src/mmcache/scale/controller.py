"""`Controller`: looks, measures the load, decides, does one step, tells. It joins deciders and doers.

Level-triggered: what it knows from before is only what is usual (`bursts`), what was decided last, and when; and, to
tell people how far a scaling is, where that began (`way`), which a controller that starts anew does not know. A step or
a look that fails is told and tried again at the next turn; nothing ends the controller. One thread at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from mmcache.model.errors import ScaleError
from mmcache.scale.bursts import BurstDetector, Load
from mmcache.scale.load import Readings
from mmcache.scale.observed import Observed
from mmcache.scale.platform import Platform
from mmcache.scale.sizing import Wanted, carried, wanted
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Happened, Phase, Plan, Status
from mmcache.scale.steps import MoveSlots, Settle, Step
from mmcache.scale.telling import burst_news, conditions, failure, step_words
from mmcache.scale.views import moves_slots_itself
from mmcache.scale.way import Way, further

if TYPE_CHECKING:
    from mmcache.scale.access import Access

VERSION = 1
Cancelled = Callable[[], bool]


class Look(Protocol):
    """`mmcache.scale.observe.look`."""

    def __call__(self, platform: Platform, access: Access, at: float) -> Observed: ...


class Act(Protocol):
    """`mmcache.scale.act.act`."""

    def __call__(
        self, step: Step, seen: Observed, platform: Platform, access: Access, cancelled: Cancelled
    ) -> None: ...


@dataclass(frozen=True)
class Doers:
    """What a controller works with; the product's own by default (`Doers.real`), others in tests."""

    look: Look
    act: Act
    plan: Callable[[ClusterSpec, int, Observed], Plan]
    plan_deletion: Callable[[Observed], Plan]
    clock: Callable[[], float] | None = None
    """Seconds that nobody sets back or forward, for what is counted between two looks; None: `at` is as good."""

    @staticmethod
    def real() -> Doers:
        """The product's own."""
        from mmcache.scale.act import act
        from mmcache.scale.observe import look
        from mmcache.scale.plan import plan, plan_deletion

        return Doers(look, act, plan, plan_deletion, time.monotonic)


@dataclass(frozen=True)
class _Saved:
    version: int
    load: dict[str, Any] | None
    wanted: int | None
    changed_at: float | None


def never() -> bool:
    """Of a step: nobody wants it to end early."""
    return False


class Controller:
    """`turn` every few seconds."""

    def __init__(self, platform: Platform, access: Access, saved: Any = None, *, doers: Doers | None = None) -> None:
        """saved: what `saved` returned before; None: nothing. What cannot be used is told at the first turn."""
        self._platform, self._access, self._doers = platform, access, doers or Doers.real()
        self._readings = Readings()
        self._detector: BurstDetector | None = None
        self._load: Load | None = None
        self._measured = False
        """Whether `_load` is of this turn."""
        self._wanted: int | None = None
        self._changed_at: float | None = None
        self._status: Status | None = None
        self._seen: Observed | None = None
        self._moved: set[tuple[str, str]] = set()
        self._way: Way | None = None
        self._told: dict[str, str] = {}
        self._news: list[Happened] = []
        self._saved_load = self._believed(saved)

    def turn(self, spec: ClusterSpec, at: float, cancelled: Cancelled = never) -> Status:
        """Look, decide, and do at most one step, which may take as long as its doer lets it.

        at: Unix seconds. cancelled: asked now and then by a long step, which then ends early; the next turn goes on.
        """
        detector = self._detector_for(spec, at)
        seen, trouble = self._looked(at)
        if seen is None:
            return self._unknown(trouble or "")
        self._measure(detector, seen, at)
        decided = self._decide(spec, seen, at)
        return self._carry_out(seen, lambda: self._doers.plan(spec, decided.shards, seen), decided, cancelled)

    def drain(self, at: float, cancelled: Cancelled = never) -> Status:
        """One turn of deleting the cluster. It is gone when the status's `nodes` is 0 and its phase `DRAINING`."""
        seen, trouble = self._looked(at)
        if seen is None:
            return self._unknown(trouble or "")
        self._load = None
        gone = Wanted(0, "Deleted", "it is deleted")
        return self._carry_out(seen, lambda: self._doers.plan_deletion(seen), gone, cancelled)

    @property
    def seen(self) -> Observed | None:
        """The last look that succeeded."""
        return self._seen

    def saved(self) -> dict[str, Any]:
        """What another controller needs to go on: JSON of a few kilobytes."""
        load = self._saved_load if self._detector is None else self._detector.saved()
        saved: dict[str, Any] = msgspec.to_builtins(_Saved(VERSION, load, self._wanted, self._changed_at))
        return saved

    def _believed(self, saved: Any) -> dict[str, Any] | None:
        if saved is None:
            return None
        try:
            state = msgspec.convert(saved, _Saved)
            if state.version != VERSION:
                raise ScaleError(f"it is of version {state.version}, and this is {VERSION}")
            if state.load is not None:
                BurstDetector.restored(ClusterSpec().burst, state.load, 0.0)
        except (msgspec.ValidationError, ScaleError) as error:
            self._news.append(Happened("SavedStateIgnored", f"what is usual is learned anew: {error}", warning=True))
            return None
        self._wanted, self._changed_at = state.wanted, state.changed_at
        return state.load

    def _detector_for(self, spec: ClusterSpec, at: float) -> BurstDetector:
        if self._detector is None:
            saved = self._saved_load
            self._detector = (
                BurstDetector(spec.burst) if saved is None else BurstDetector.restored(spec.burst, saved, at)
            )
        elif self._detector.spec != spec.burst:
            self._detector.change(spec.burst)
        return self._detector

    def _looked(self, at: float) -> tuple[Observed | None, str | None]:
        try:
            self._seen = self._doers.look(self._platform, self._access, at)
        except Exception as error:  # noqa: BLE001 - whatever a platform raises, the controller goes on
            told = failure(error, self._secrets())
            self._tell_once("LookFailed", told)
            return None, told
        self._told.pop("LookFailed", None)
        return self._seen, None

    def _measure(self, detector: BurstDetector, seen: Observed, at: float) -> None:
        now = at if self._doers.clock is None else self._doers.clock()
        rate = self._readings.take(seen.nodes, now, detector.spec.window_seconds, self._moved)
        self._moved.clear()
        self._measured = rate is not None
        if rate is not None:
            was = detector.bursting
            self._load = detector.observe(at, rate.requests, rate.seconds)
            self._news += burst_news(self._load, was)

    def _decide(self, spec: ClusterSpec, seen: Observed, at: float) -> Wanted:
        served = _serving(seen)
        if self._wanted is None:
            there = len({member.shard for member in seen.members if not member.leaving})
            self._wanted = max(served, there) or spec.min_shards
        if self._changed_at is None:
            self._changed_at = at
        load = self._load if self._measured else None  # what was may be long ago: nothing is decided by it
        decided = wanted(spec, load, self._wanted, self._changed_at, at, served)
        if decided.shards != self._wanted:
            self._news.append(
                Happened("Decided", f"from {self._wanted} to {decided.shards} shards ({decided.reason}): "
                         f"{decided.message}")
            )  # fmt: skip
            self._wanted, self._changed_at = decided.shards, at
        if decided.reason == "AtMaximum":
            self._tell_once("AtMaximum", decided.message, f"{spec.max_shards}")
        elif decided.shards < spec.max_shards or (load and load.peak is not None and load.peak <= carried(spec)):
            self._told.pop("AtMaximum", None)  # not sooner: a rate just at the limit would be told all day long
        return decided

    def _carry_out(self, seen: Observed, planned: Callable[[], Plan], decided: Wanted, cancelled: Cancelled) -> Status:
        try:
            plan = planned()
        except Exception as error:  # noqa: BLE001 - what nodes say may be stranger than was thought of
            told = failure(error, self._secrets())
            self._tell_once("PlanFailed", told)
            return self._told_status(seen, Plan(Phase.UNKNOWN, None, "PlanFailed", told), decided, told)
        self._told.pop("PlanFailed", None)
        self._way = further(self._way, plan, decided.shards)
        if plan.phase is Phase.BLOCKED:
            self._tell_once("Blocked", plan.message, plan.reason, plan.reason)
        else:
            self._told.pop("Blocked", None)
        trouble = None if plan.step is None else self._done(plan.step, seen, cancelled)
        return self._told_status(seen, plan, decided, trouble)

    def _done(self, step: Step, seen: Observed, cancelled: Cancelled) -> str | None:
        self._moved |= _migrates(step, seen)
        try:
            self._doers.act(step, seen, self._platform, self._access, cancelled)
        except Exception as error:  # noqa: BLE001 - whatever a platform or a node raises, the next turn tries again
            told = failure(error, self._secrets())
            self._tell_once("StepFailed", f"{step_words(step)}: {told}")
            return told
        self._told.pop("StepFailed", None)
        # A resharding is hundreds of batches: told once for each pair of nodes.
        key = f"{step.source} {step.target}" if isinstance(step, MoveSlots) else ""
        if not key or self._told.get("MoveSlots") != key:
            self._news.append(Happened(type(step).__name__, step_words(step)))
        self._told["MoveSlots"] = key
        return None

    def _told_status(self, seen: Observed, plan: Plan, decided: Wanted, trouble: str | None) -> Status:
        load = self._load
        primaries = [node for node in seen.nodes.values() if not node.primary]
        news, self._news = tuple(self._news), []
        self._status = Status(
            phase=plan.phase, shards=_serving(seen), wanted=decided.shards, nodes=len(seen.members),
            ready_nodes=sum(member.ready and not member.leaving for member in seen.members),
            qps=load.qps if load else 0.0, baseline_qps=load.baseline if load else None,
            hit_ratio=self._readings.hit_ratio, keys=sum(node.keys for node in primaries),
            used_bytes=sum(node.used_bytes for node in primaries), max_bytes=sum(node.max_bytes for node in primaries),
            reason=plan.reason, message=plan.message, conditions=conditions(seen, plan, load, trouble),
            progress=plan.progress or (None if self._way is None else self._way.progress), happened=news,
        )  # fmt: skip
        return self._status

    def _unknown(self, trouble: str) -> Status:
        """The platform could not be asked: the figures are those of the last look."""
        plan = Plan(Phase.UNKNOWN, None, "LookFailed", trouble)
        last = self._status or Status(plan.phase, 0, self._wanted or 0, 0, 0, 0.0, None, None, 0, 0, 0, "", "")
        news, self._news = tuple(self._news), []
        return replace(
            last, phase=plan.phase, reason=plan.reason, message=plan.message, happened=news,
            conditions=conditions(None, plan, self._load, trouble),
        )  # fmt: skip

    def _tell_once(self, kind: str, message: str, key: str | None = None, reason: str | None = None) -> None:
        key = message if key is None else key
        if self._told.get(kind) != key:
            self._told[kind] = key
            self._news.append(Happened(reason or kind, message, warning=True))

    def _secrets(self) -> list[str]:
        password = getattr(self._access, "password", None)
        return [password] if password else []


def _migrates(step: Step, seen: Observed) -> set[tuple[str, str]]:
    """From and to which ids it may move keys by MIGRATE."""
    if not isinstance(step, MoveSlots | Settle) or step.source is None:
        return set()
    ends = [seen.nodes[name] for name in (step.source, step.target) if name in seen.nodes]
    ids = [node.id for node in ends]
    if len(ends) < 2 or (isinstance(step, MoveSlots) and all(moves_slots_itself(node.version) for node in ends)):
        return set()
    return {(ids[0], ids[1]), (ids[1], ids[0])} if isinstance(step, Settle) else {(ids[0], ids[1])}


def _serving(seen: Observed) -> int:
    return sum(1 for node in seen.nodes.values() if not node.primary and node.slots)
