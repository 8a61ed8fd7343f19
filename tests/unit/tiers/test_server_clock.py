"""Deadlines between machines: in virtual time, over any skew, drift, jitter and step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mmcache.tiers.valkey.clocks import MOST_LEADS, NOISE, RATE, Lead, Ledger, Reading, follow, translate

LATEST = 1.0
"""Seconds that a key may live past its deadline."""


@dataclass
class World:
    """One server, machines with clocks of their own, and the true time that none of them knows."""

    skew: float = 0.0
    drift: float = 0.0
    now: float = 1000.0
    ledger: Ledger = field(default_factory=Ledger)

    def server(self) -> float:
        return 1.7e9 + self.now * (1 + self.drift) + self.skew


@dataclass
class Machine:
    """A machine whose own time began somewhere and runs a little fast or slow."""

    world: World
    name: bytes
    began: float = 0.0
    drift: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)
    trusts: bool = False

    def own(self, true: float | None = None) -> float:
        return (self.world.now if true is None else true) * (1 + self.drift) + self.began

    def look(
        self, out: float = 0.0, back: float = 0.0, meanwhile: Sequence[Callable[[], None]] = (), tries: int = 4
    ) -> None:
        """A round trip of `out` + `back` seconds, then the compare-and-set; others may act in between."""
        fetched, sent = self.world.ledger, self.own()
        for act in meanwhile[:1]:
            act()
        self.world.now += out
        server = self.world.server()
        self.world.now += back
        reading = Reading(sent, self.own(), server)
        for act in meanwhile[1:2]:
            act()
        becomes, trusts = follow(fetched, self.name, reading)
        if becomes is fetched:
            self.ledger, self.trusts = fetched, trusts
        elif self.world.ledger is fetched:
            self.world.ledger = self.ledger = becomes
            self.trusts = trusts
        elif tries > 1:
            self.look(out, back, meanwhile[2:], tries - 1)
        else:
            self.trusts = False

    def here(self, there: Machine, deadline: float) -> float | None:
        return translate(self.ledger, self.name, there.name, deadline) if self.trusts else None


def pair(skew: float = 0.0, drift: float = 0.0) -> tuple[World, Machine, Machine]:
    world = World(skew, drift)
    one, two = Machine(world, b"machine1", 17.0), Machine(world, b"machine2", -400.0)
    one.look()
    two.look()
    one.look()
    two.look()
    return world, one, two


def lateness(world: World, reader: Machine, writer: Machine, deadline: float, true: float) -> float:
    reader.look()
    found = reader.here(writer, deadline)
    assert found is not None
    return (found - reader.own(true)) / (1 + reader.drift)


def test_a_deadline_crosses_machines_whatever_the_skew() -> None:
    world, one, two = pair(skew=0.042)
    assert 0 <= lateness(world, two, one, one.own() + 5, world.now + 5) <= 0.2
    assert one.here(one, 12.5) == 12.5, "one's own time needs no translation"


@pytest.mark.parametrize("step", [-120.0, -1.0, 1.0, 120.0])
def test_a_step_moves_no_deadline_whoever_sees_it_first(step: float) -> None:
    for first in (0, 1):
        world, *machines = pair()
        written = [(machine, machine.own() + 5) for machine in machines]
        due = world.now + 5
        world.skew += step
        for machine in (machines[first], machines[1 - first], machines[first], machines[1 - first]):
            machine.look()
        for reader in machines:
            for writer, deadline in written:
                assert 0 <= lateness(world, reader, writer, deadline, due) <= 0.2
    assert world.ledger.turn < 12, "the ledger comes to rest"


@pytest.mark.parametrize("step", [-120.0, 120.0])
def test_who_comes_after_a_step_reads_what_was_written_before_by_those_who_have_left(step: float) -> None:
    world, gone, two = pair()
    three = Machine(world, b"machine3", 5.0)
    for machine in (three, two, three):
        machine.look()
    deadline, due = gone.own() + 50, world.now + 50
    world.skew += step
    two.look()
    three.look()
    late = Machine(world, b"late", 99.0)
    late.look()
    assert late.here(gone, deadline) is None, "nobody has vouched yet"
    two.look()
    late.look()
    assert 0 <= lateness(world, late, gone, deadline, due) <= 0.4


def test_a_step_that_nobody_saw_is_not_guessed() -> None:
    world, one, two = pair()
    deadline = one.own() + 500
    world.now += 60
    world.skew -= 120
    late = Machine(world, b"late")
    late.look()
    late.look()
    assert late.here(one, deadline) is None
    two.look()
    late.look()
    assert 0 <= lateness(world, late, one, deadline, 1500.0) <= 0.4, "one that has followed the clock comes back"


def test_a_step_between_joining_and_the_next_look_is_sorted_out() -> None:
    world, one, two = pair()
    late = Machine(world, b"late")
    late.look()
    deadline, due = late.own() + 5, world.now + 5
    world.skew -= 120
    one.look()
    two.look()
    assert one.here(late, deadline) is None, "which of the two clocks the newcomer saw is not known"
    assert two.here(late, deadline) is None
    for machine in (late, one, two):
        machine.look()
    assert 0 <= lateness(world, one, late, deadline, due) <= 0.2
    assert 0 <= lateness(world, late, two, two.own() + 5, world.now + 5) <= 0.2


def test_a_paused_machine_does_not_move_the_others_deadlines() -> None:
    world, one, two = pair()
    deadline, due = two.own() + 100, world.now + 100
    one.began -= 30  # it stood still for 30 s and cannot know
    world.now += 30
    one.look()
    two.look()
    late = Machine(world, b"late")
    for machine in (late, two, late, one):
        machine.look()
    assert 0 <= lateness(world, late, two, deadline, due) <= 0.2
    assert 0 <= lateness(world, one, two, deadline, due) <= 0.2


def test_a_lost_ledger_is_begun_again() -> None:
    world, one, two = pair()
    world.ledger = Ledger.decode(b"\xc1 rubbish")
    deadline, due = one.own() + 5, world.now + 5
    for machine in (two, one, two):
        machine.look()
    assert 0 <= lateness(world, two, one, deadline, due) <= 0.2


def test_a_slow_answer_teaches_nothing_and_a_quick_one_does() -> None:
    world, one, _ = pair()
    slow = Machine(world, b"slow")
    slow.look(0.3, 0.3)
    assert world.ledger.find(b"slow") is None
    assert slow.here(one, one.own() + 5) is None
    slow.look(0.05, 0.05)
    vague = world.ledger.find(b"slow")
    assert vague is not None
    assert vague.error == pytest.approx(0.05)
    slow.look(0.001, 0.001)
    sharp = world.ledger.find(b"slow")
    assert sharp is not None
    assert sharp.error == pytest.approx(0.001)


def test_steps_too_small_to_be_seen_make_nothing_early() -> None:
    world, one, two = pair()
    world.skew += NOISE * 0.9
    three = Machine(world, b"machine3")
    for machine in (three, one, three):
        machine.look()
    world.skew -= NOISE * 1.8
    three.look()
    assert 0 <= lateness(world, three, two, two.own() + 5, world.now + 5) <= 0.2
    assert 0 <= lateness(world, two, three, three.own() + 5, world.now + 5) <= 0.2


def test_two_that_jump_unlike_are_not_taken_for_one_step() -> None:
    world, one, two = pair()
    three = Machine(world, b"machine3")
    for machine in (three, two, three):
        machine.look()
    deadline, due = three.own() + 100, world.now + 100
    one.began -= 30
    two.began -= 20
    world.now += 30
    for machine in (one, two, one, two):
        machine.look()
    late = Machine(world, b"late")
    for machine in (late, one, late):
        machine.look()
    found = late.here(three, deadline)
    assert found is None or found - late.own(due) <= LATEST


def test_drift_is_followed_and_a_long_sleep_is_no_step() -> None:
    world, one, two = pair(drift=RATE / 2)
    for _ in range(100):
        world.now += 100
        one.look()
        two.look()
    deadline, due = one.own() + 5, world.now + 5
    assert 0 <= lateness(world, two, one, deadline, due) <= 0.3
    world.now += 30_000
    deadline, due = one.own() + 5, world.now + 5
    for machine in (two, one, two, one):
        machine.look()
    assert 0 <= lateness(world, two, one, deadline, due) <= 0.3
    assert one.here(two, 5.0) is not None


def test_the_ledger_is_bounded_and_survives_the_wire() -> None:
    world, one, _ = pair()
    for n in range(3 * MOST_LEADS):
        Machine(world, n.to_bytes(8, "big")).look()
        one.look()
    assert len(world.ledger.leads) == MOST_LEADS
    assert Ledger.decode(world.ledger.encode()) == world.ledger
    assert len(world.ledger.encode()) < 8192


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_an_insane_ledger_is_an_empty_one(seconds: float) -> None:
    assert Ledger.decode(Ledger(3, (Lead(b"machine1", 1, seconds, 0.0, 0.0, 1),)).encode()) == Ledger()


Deed = tuple[str, int, float]

deeds = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["look", "write", "read", "read"]), st.integers(0, 4), st.floats(0.0, 0.05)),
        st.tuples(st.just("wait"), st.just(0), st.floats(0.0, 20.0)),
        st.tuples(st.just("step"), st.sampled_from([1, -1]), st.floats(0.0, 0.02)),
        st.tuples(st.just("overlap"), st.integers(0, 4), st.floats(0.0, 0.05)),
        st.tuples(st.just("pause"), st.integers(0, 4), st.floats(0.0, 60.0)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(
    deeds,
    st.lists(st.floats(-1.0, 1.0), min_size=6, max_size=6),
    st.floats(-1e6, 1e6),
    st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5),
)
@example(
    [("write", 0, 0.0), ("step", -1, 0.0), ("look", 1, 0.0), ("look", 3, 0.0), ("look", 1, 0.0), ("read", 3, 0.0)],
    [0.0] * 6, 0.0, [0.0, 1.0, 0.5, 0.5, 0.5],
)  # fmt: skip
def test_never_early_and_never_a_second_late(
    deeds: list[Deed], drifts: list[float], skew: float, lopsided: list[float]
) -> None:
    """Three machines are there, two come when first named; a read may answer "I cannot tell", but never wrongly."""
    world = World(skew=skew, drift=drifts[5] * RATE / 2)
    machines = [Machine(world, b"machine%d" % n, n * 1e4 - skew / 3, drifts[n] * RATE / 2) for n in range(5)]
    written: list[tuple[Machine, float, float]] = []
    paused = [0.0] * 5
    steps = 0
    for machine, share in [*zip(machines, lopsided, strict=True)][:3] * 2:
        machine.look(0.04 * share, 0.04 * (1 - share))
    for deed, which, number in deeds:
        world.now += 0.01
        if deed == "wait":
            world.now += number
        elif deed == "step":
            steps += 1
            world.skew += which * (2.0**steps + number)  # so no run of steps undoes itself
        else:
            machine = machines[which]
            if deed == "pause":  # what it wrote lives on by its own clock, as long as it stood still
                machine.look()
                world.now += number
                machine.began -= number * (1 + machine.drift)
                paused[which] += number
                machine.look()
            elif deed == "overlap":
                others = [machines[(which + n) % 5].look for n in (1, 2, 3)]
                machine.look(number * lopsided[which], number * (1 - lopsided[which]), others)
            else:
                machine.look(number * lopsided[which], number * (1 - lopsided[which]))
            if deed == "write":
                written.append((machine, machine.own() + 10, world.now + 10))
            if deed == "read":
                for writer, deadline, due in written:
                    found = machine.here(writer, deadline)
                    if found is not None:
                        late = (found - machine.own(due)) / (1 + machine.drift)
                        since = abs(world.now - due) + 10
                        assert -RATE * since - 1e-6 <= late
                        assert late <= LATEST + RATE * since + paused[machines.index(writer)]


@settings(max_examples=100, deadline=None)
@given(deeds, st.lists(st.floats(-1.0, 1.0), min_size=6, max_size=6))
def test_when_the_clock_rests_all_who_still_look_can_read_each_other(deeds: list[Deed], drifts: list[float]) -> None:
    world = World(drift=drifts[5] * RATE / 2)
    machines = [Machine(world, b"machine%d" % n, n * 1e4, drifts[n] * RATE / 2) for n in range(5)]
    for n, (deed, which, number) in enumerate(deeds):
        world.now += 0.01 + (number if deed == "wait" else 0.0)
        if deed == "step":
            world.skew += which * 2.0**n
        elif deed in ("look", "write", "read"):
            machines[which].look(number / 2, number / 2)
    for _ in range(3):
        for machine in machines:
            machine.look()
    turn = world.ledger.turn
    for machine in machines:
        machine.look()
        assert all(machine.here(other, other.own()) is not None for other in machines)
    assert world.ledger.turn == turn, "and the ledger comes to rest"
    assert NOISE < LATEST


@pytest.mark.parametrize("turn", [2**64 - 1, 2**53, -1])
def test_a_ledger_whose_turns_are_over_is_begun_again(turn: int) -> None:
    assert Ledger.decode(Ledger(turn).encode()) == Ledger()
