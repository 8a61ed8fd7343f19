"""The controller with doers that are made up: what it decides, tells and survives. Time is virtual."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mmcache.model.errors import ScaleError
from mmcache.scale.access import Access
from mmcache.scale.controller import Controller, Doers
from mmcache.scale.observed import SLOTS, Member, NodeSeen, Observed
from mmcache.scale.platform import Platform
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Happened, Phase, Plan, Status
from mmcache.scale.steps import MoveSlots, StartShard, Step
from mmcache.scale.telling import failure

SPEC = ClusterSpec(min_shards=3, max_shards=6, replicas=0, qps_threshold=1.0)
SECRET = "hunter2-and-more"
START = 1_700_000_000.0
TURN = 5.0


class Nobody:
    """A platform that no doer asks."""

    def members(self) -> tuple[Member, ...]:
        return ()

    def start_shard(self, shard: int, members: int) -> None: ...
    def stop_shard(self, shard: int, keep: int = 0) -> None: ...
    def replace(self, member: Member) -> None: ...


@dataclass
class World:
    """A cluster that does at once what it is told; its clients ask `rate` times a second."""

    shards: int = 3
    rate: float = 1000.0
    requests: dict[int, float] = field(default_factory=dict)
    at: float = START
    fails: Exception | None = None
    blind: Exception | None = None
    next: Callable[[ClusterSpec, int, Observed], Plan] | None = None
    clock: Callable[[], float] | None = None
    silent: bool = False
    asked: list[int] = field(default_factory=list)
    done: list[Step] = field(default_factory=list)

    def look(self, platform: Platform, access: Access, at: float) -> Observed:
        if self.blind:
            raise self.blind
        for place in range(self.shards):
            each = self.rate * self.passed(at) / self.shards
            self.requests[place] = self.requests.get(place, 0.0) + each
        self.at = at
        names = [f"{shard}-0" for shard in range(self.shards)]
        share = SLOTS // max(1, self.shards) + 1
        nodes = {
            name: NodeSeen(
                f"id{name}", slots=frozenset(range(place * share, min(SLOTS, (place + 1) * share))), cluster_ok=True,
                keys=10, used_bytes=100, max_bytes=1000, requests=int(self.requests[place]),
                hits=int(0.75 * self.requests[place]), misses=int(0.25 * self.requests[place]),
            )
            for place, name in enumerate(names)
        }  # fmt: skip
        members = tuple(Member(place, 0, "h", 1, ready=True) for place in range(self.shards))
        return Observed(members, {} if self.silent else nodes, at)

    def passed(self, at: float) -> float:
        """Seconds since the last look."""
        return TURN if self.clock else max(0.0, at - self.at)

    def plan(self, spec: ClusterSpec, wanted: int, seen: Observed) -> Plan:
        self.asked.append(wanted)
        if self.next is not None:
            return self.next(spec, wanted, seen)
        if wanted > self.shards:
            return Plan(Phase.SCALING_OUT, StartShard(self.shards, 1), "Growing", f"{self.shards} of {wanted}")
        return Plan(Phase.STEADY, None, "Steady", "as wanted")

    def deletion(self, seen: Observed) -> Plan:
        step = StartShard(self.shards - 1, 0) if self.shards else None
        return Plan(Phase.DRAINING, step, "Deleting", f"{self.shards} are left")

    def act(self, step: Step, seen: Observed, platform: Platform, access: Access, cancelled: Any) -> None:
        if self.fails:
            raise self.fails
        self.done.append(step)
        if isinstance(step, StartShard):
            self.shards += 1 if step.members else -1

    def controller(self, saved: Any = None) -> Controller:
        return Controller(
            Nobody(),
            Access(password=SECRET),
            saved,
            doers=Doers(self.look, self.act, self.plan, self.deletion, self.clock),
        )


def turns(controller: Controller, world: World, seconds: float, spec: ClusterSpec = SPEC) -> list[Status]:
    end = world.at + seconds
    found = []
    while world.at < end:
        found.append(controller.turn(spec, world.at + TURN))
    return found


def reasons(statuses: list[Status]) -> list[str]:
    return [event.reason for status in statuses for event in status.happened]


def condition(status: Status, type: str) -> tuple[bool, str]:
    (found,) = [one for one in status.conditions if one.type == type]
    return found.status, found.reason


def test_a_burst_brings_shards_and_its_end_takes_them_away_one_by_one() -> None:
    world = World()
    controller = world.controller()
    quiet = turns(controller, world, 3600)
    assert reasons(quiet) == []
    assert condition(quiet[-1], "Available") == (True, "AllSlotsServed")
    assert condition(quiet[-1], "Burst") == (False, "Usual")
    assert quiet[-1].qps == pytest.approx(1000, rel=0.01)
    assert quiet[-1].baseline_qps == pytest.approx(1000, rel=0.01)
    assert quiet[-1].hit_ratio == pytest.approx(0.75, rel=0.01)
    assert (quiet[-1].keys, quiet[-1].used_bytes, quiet[-1].max_bytes) == (30, 300, 3000)
    world.rate = 4600
    burst = turns(controller, world, 300)
    assert reasons(burst) == ["BurstBegan", "Decided", "StartShard", "StartShard"]
    assert burst[-1].wanted == burst[-1].shards == 5
    assert condition(burst[-1], "Burst") == (True, "AboveUsual")
    world.rate = 1000
    world.next = shrinking(world)
    after = turns(controller, world, 1500)
    assert reasons(after) == ["BurstOver", "Decided", "Decided"]
    assert after[-1].wanted == 3
    down = [status.wanted for status in after]
    assert down.index(4) * TURN >= 300
    assert (down.index(3) - down.index(4)) * TURN >= 300


def shrinking(world: World) -> Callable[[ClusterSpec, int, Observed], Plan]:
    def plan(spec: ClusterSpec, wanted: int, seen: Observed) -> Plan:
        world.shards = wanted
        return Plan(Phase.STEADY, None, "Steady", "")

    return plan


def test_a_user_who_asks_for_more_gets_it_at_once() -> None:
    world = World()
    controller = world.controller()
    assert controller.turn(SPEC, START + TURN).wanted == 3
    status = controller.turn(replace(SPEC, min_shards=5), START + 2 * TURN)
    assert status.wanted == 5
    assert reasons([status]) == ["Decided", "StartShard"]


def test_nothing_there_begins_with_the_fewest() -> None:
    world = World(shards=0)
    assert world.controller().turn(SPEC, START + TURN).wanted == 3


def test_nodes_that_do_not_answer_do_not_make_it_shrink() -> None:
    world = World(shards=5)
    controller = world.controller()
    turns(controller, world, 60)
    full = world.look
    doers = Doers(lambda p, a, at: replace(full(p, a, at), nodes={}), world.act, world.plan, world.deletion)
    blind = Controller(Nobody(), Access(), controller.saved(), doers=doers)
    status = turns(blind, world, 3000)[-1]
    assert status.wanted == 5
    assert condition(status, "Available") == (False, "SlotsMissing")
    assert Controller(Nobody(), Access(), doers=doers).turn(SPEC, world.at + 1).wanted == 5  # as members say


def test_a_step_that_fails_is_told_once_and_tried_again() -> None:
    world = World()
    controller = world.controller()
    cause = ConnectionResetError("by peer")
    world.fails = ScaleError(f"2-0 refuses {SECRET}")
    world.fails.__cause__ = cause
    statuses = [controller.turn(replace(SPEC, min_shards=4), START + TURN * turn) for turn in range(1, 6)]
    assert reasons(statuses) == ["Decided", "StepFailed"]
    (told,) = [event for event in statuses[0].happened if event.reason == "StepFailed"]
    assert told.warning
    assert told.message == (
        "StartShard: shard 3, members 1: ScaleError: 2-0 refuses ***; because of ConnectionResetError: by peer"
    )
    assert condition(statuses[-1], "Degraded") == (True, "Failed")
    assert SECRET not in repr(statuses)
    world.fails = None
    status = controller.turn(replace(SPEC, min_shards=4), START + TURN * 6)
    assert reasons([status]) == ["StartShard"]
    assert condition(status, "Degraded") == (False, "AsWanted")


@pytest.mark.parametrize("error", [OSError("x"), KeyError("x"), RuntimeError("x"), ScaleError("x")], ids=type)
def test_a_look_that_fails_ends_nothing(error: Exception) -> None:
    world = World()
    controller = world.controller()
    world.blind = error
    first, second = controller.turn(SPEC, START + TURN), controller.turn(SPEC, START + 2 * TURN)
    assert (first.phase, first.nodes) == (Phase.UNKNOWN, 0)
    assert reasons([first, second]) == ["LookFailed"]
    assert condition(second, "Available") == (False, "LookFailed")
    world.blind = None
    assert controller.turn(SPEC, START + 3 * TURN).phase is Phase.STEADY
    world.blind = error
    third = controller.turn(SPEC, START + 4 * TURN)
    assert reasons([third]) == ["LookFailed"]
    assert (third.phase, third.nodes, third.shards) == (Phase.UNKNOWN, 3, 3)


def test_a_plan_that_fails_ends_nothing() -> None:
    world = World()
    controller = world.controller()
    world.next = lambda spec, wanted, seen: Plan(**{})
    statuses = turns(controller, world, 3 * TURN)
    assert reasons(statuses) == ["PlanFailed"]
    assert (statuses[-1].phase, statuses[-1].shards) == (Phase.UNKNOWN, 3)
    assert condition(statuses[-1], "Degraded") == (True, "Failed")
    world.next = None
    assert turns(controller, world, TURN)[-1].phase is Phase.STEADY


def test_a_refusal_is_told_once_for_each_reason() -> None:
    world = World()
    controller = world.controller()
    why = ["WouldNotFit", "WouldNotFit", "Other", "", "Other"]
    plans = iter(
        Plan(Phase.BLOCKED if word else Phase.STEADY, None, word or "Steady", f"{number} bytes too many")
        for number, word in enumerate(why)
    )
    world.next = lambda spec, wanted, seen: next(plans)
    statuses = turns(controller, world, TURN * len(why))
    assert [event for status in statuses for event in status.happened] == [
        Happened("WouldNotFit", "0 bytes too many", warning=True),
        Happened("Other", "2 bytes too many", warning=True),
        Happened("Other", "4 bytes too many", warning=True),
    ]
    assert condition(statuses[0], "Progressing") == (False, "WouldNotFit")


def test_the_largest_number_of_shards_is_told_once() -> None:
    world = World(shards=6, rate=5500.0)
    controller = world.controller()
    turns(controller, world, 600)
    world.rate = 100_000
    assert reasons(turns(controller, world, 300)) == ["BurstBegan", "AtMaximum"]


def test_a_rate_at_the_limit_is_not_told_all_day_long() -> None:
    world = World(shards=6, rate=5500.0)
    controller = world.controller()
    found = turns(controller, world, 600)
    for turn in range(60):
        world.rate = 6500.0 if turn % 2 else 5500.0
        found += turns(controller, world, 60)
    assert reasons(found) == ["AtMaximum"]
    world.rate = 5500.0
    assert reasons(turns(controller, world, 600)) == []
    world.rate = 6500.0
    assert reasons(turns(controller, world, 120)) == ["AtMaximum"]


@pytest.mark.parametrize("jump", [-7200.0, -100.0, 100.0, 400.0, 7200.0], ids=["-2h", "-100s", "100s", "400s", "2h"])
def test_a_clock_that_is_set_neither_adds_nor_takes_shards(jump: float) -> None:
    ticks = iter(range(0, 10**6, int(TURN)))
    world = World(shards=5, rate=4500.0, clock=lambda: float(next(ticks)))
    controller = world.controller()
    turns(controller, world, 3600)
    world.at += jump
    statuses = turns(controller, world, 600)
    assert {status.wanted for status in statuses} == {5}
    assert reasons(statuses) == []
    assert statuses[-1].qps == pytest.approx(4500, rel=0.01)
    world.rate = 9000.0
    assert "BurstBegan" in reasons(turns(controller, world, 120))


def test_nothing_is_decided_by_a_load_of_long_ago() -> None:
    world = World(shards=5, rate=100.0)
    world.next = shrinking(world)
    controller = world.controller()
    assert turns(controller, world, 320)[-1].wanted == 4  # the next would go 300 s later
    world.silent = True
    assert {status.wanted for status in turns(controller, world, 3000)} == {4}
    world.silent = False
    assert turns(controller, world, 200)[-1].wanted == 4
    assert turns(controller, world, 300)[-1].wanted == 3


def test_words_of_a_failure_have_an_end_and_no_secret() -> None:
    secret = "two  spaces\tand a tab"
    first, second = ScaleError(f"no: {secret}"), TimeoutError()
    first.__cause__, second.__cause__ = second, first
    told = failure(first, [secret])
    assert told.startswith("ScaleError: no: ***; because of TimeoutError; because of")
    assert "spaces" not in told
    assert len(told) <= 1000


def test_batches_of_a_resharding_are_told_once_a_pair() -> None:
    world = World()
    pairs = iter([("0-0", "3-0")] * 3 + [("1-0", "3-0")] * 3)

    def plan(spec: ClusterSpec, wanted: int, seen: Observed) -> Plan:
        return Plan(Phase.SCALING_OUT, MoveSlots(tuple(range(16)), *next(pairs)), "Resharding", "")

    world.next = plan
    statuses = turns(world.controller(), world, 6 * TURN)
    assert [event.message for status in statuses for event in status.happened] == [
        "MoveSlots: slots 16, source 0-0, target 3-0",
        "MoveSlots: slots 16, source 1-0, target 3-0",
    ]
    assert condition(statuses[-1], "Progressing") == (True, "Resharding")


def test_what_is_saved_goes_on() -> None:
    world = World()
    controller = world.controller()
    turns(controller, world, 3600)
    world.rate = 4600
    turns(controller, world, 300)
    saved = json.loads(json.dumps(controller.saved(), allow_nan=False))
    assert len(json.dumps(saved)) < 12_000
    second = world.controller(saved)
    statuses = turns(second, world, 60)
    assert reasons(statuses) == []
    assert statuses[-1].wanted == 5
    assert condition(statuses[-1], "Burst") == (True, "AboveUsual")
    assert statuses[-1].baseline_qps == pytest.approx(1000, rel=0.05)
    assert world.controller(saved).saved() == saved  # also before its first turn


@pytest.mark.parametrize(
    "change",
    [lambda s: 5, lambda s: [], lambda s: {**s, "version": 99}, lambda s: {**s, "load": {"version": 1, "at": "x"}},
     lambda s: {**s, "wanted": "many"}, lambda s: {**s, "load": {**s["load"], "version": 7}}],
    ids=["number", "list", "version", "load", "wanted", "load-version"],
)  # fmt: skip
def test_damaged_saved_state_is_ignored_and_told(change: Callable[[dict[str, Any]], Any]) -> None:
    world = World()
    controller = world.controller()
    turns(controller, world, 600)
    second = world.controller(change(controller.saved()))
    statuses = turns(second, world, 60)
    assert reasons(statuses) == ["SavedStateIgnored"]
    assert statuses[-1].wanted == 3


def test_draining_goes_on_until_nothing_is_left() -> None:
    world = World()
    controller = world.controller()
    turns(controller, world, 60)
    statuses = [controller.drain(world.at + TURN) for _ in range(5)]
    assert {status.phase for status in statuses} == {Phase.DRAINING}
    assert [status.nodes for status in statuses] == [3, 2, 1, 0, 0]
    world.blind = ScaleError("gone")
    assert controller.drain(world.at + TURN).phase is Phase.UNKNOWN


def test_load_is_measured_while_slots_move() -> None:
    world = World()
    world.next = lambda spec, wanted, seen: Plan(Phase.SCALING_OUT, MoveSlots((1,), "0-0", "1-0"), "Resharding", "")
    statuses = turns(world.controller(), world, 600)
    assert statuses[-1].qps == pytest.approx(1000, rel=0.01)
    assert statuses[-1].baseline_qps is not None
