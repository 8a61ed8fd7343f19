"""The prefetch controller's transitions, and an exhaustive walk over its states."""

from __future__ import annotations

import copy
import itertools
from collections import deque
from dataclasses import replace

import pytest

from mmcache.model.errors import SettingsError
from mmcache.prefetch.controller import Controller, ControllerSettings, Reason, Signals, State, Transition

SETTINGS = ControllerSettings()
BUSY = Signals(misses=5, latencies=[0.2] * 5)
GUARDS = {
    Reason.SHUTDOWN: Signals(stopping=True),
    Reason.OVERLOAD: Signals(load=1.0),
    Reason.FAILURES: Signals(failed=3),
    Reason.UNUSED: Signals(use=0.1),
    Reason.BUDGET: Signals(spent=True),
}


def told(moved: list[Transition]) -> list[tuple[State, State, Reason]]:
    return [(one.was, one.state, one.reason) for one in moved]


def in_state(state: State, settings: ControllerSettings = SETTINGS) -> Controller:
    controller = Controller(settings)
    if state is not State.IDLE:
        controller.step(0.0, BUSY)
    if state is State.PRELOADING:
        controller.step(0.0, Signals(candidates=3))
    assert controller.state is state
    return controller


def test_a_round() -> None:
    controller = Controller()
    assert told(controller.step(0.0, BUSY)) == [(State.IDLE, State.EVALUATING, Reason.MISSES)]
    assert controller.step(0.1) == []
    assert told(controller.step(0.2, Signals(candidates=2))) == [
        (State.EVALUATING, State.PRELOADING, Reason.CANDIDATES)
    ]
    assert controller.step(0.3, Signals(pending=2)) == []
    assert told(controller.step(0.4, Signals(pending=0, loaded=2))) == [(State.PRELOADING, State.IDLE, Reason.DONE)]
    assert [one.at for one in controller.log] == [0.0, 0.2, 0.4]
    assert controller.step(0.5)
    assert controller.state is State.EVALUATING  # still slow, and nothing to rest from


@pytest.mark.parametrize(
    ("signals", "held"),
    [
        (Signals(misses=2, latencies=[0.2] * 9), Reason.FEW_MISSES),
        (Signals(misses=9, latencies=[0.05] * 9), Reason.FAST),
        (Signals(misses=9, latencies=[0.05] * 99 + [9.0]), Reason.FAST),
        (Signals(misses=9), Reason.FAST),
    ],
)
def test_stays_idle_while_it_is_not_needed(signals: Signals, held: Reason) -> None:
    controller = Controller()
    assert controller.step(0.0, signals) == []
    assert (controller.state, controller.held) == (State.IDLE, held)


def test_the_95th_percentile_counts() -> None:
    assert Controller().step(0.0, Signals(misses=9, latencies=[0.05] * 90 + [0.1] * 10))


def test_what_is_older_than_the_window_does_not_count() -> None:
    controller = Controller()
    controller.step(0.0, Signals(misses=2, latencies=[0.2]))
    assert controller.step(61.0, Signals(misses=2, latencies=[0.2])) == []
    assert controller.held is Reason.FEW_MISSES
    assert controller.step(62.0, Signals(misses=1))


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("reason", list(GUARDS))
def test_every_guard_holds_in_every_state(state: State, reason: Reason) -> None:
    controller = in_state(state)
    moved = controller.step(1.0, replace(GUARDS[reason], pending=5, misses=5, latencies=[0.2] * 5))
    assert (controller.state, controller.held) == (State.IDLE, reason)
    silent = state is State.IDLE and reason in (Reason.OVERLOAD, Reason.BUDGET)  # nothing to leave, nothing to remember
    assert told(moved) == ([] if silent else [(state, State.IDLE, reason)])


@pytest.mark.parametrize("state", list(State))
def test_waiting_requests_are_an_overload(state: State) -> None:
    controller = in_state(state)
    controller.step(1.0, replace(BUSY, waiting=1, pending=1))
    assert (controller.state, controller.held) == (State.IDLE, Reason.OVERLOAD)


@pytest.mark.parametrize("state", list(State))
def test_nothing_begins_after_shutdown(state: State) -> None:
    controller = in_state(state)
    assert len(controller.step(1.0, Signals(stopping=True))) == 1
    for second in range(2, 200):
        assert controller.step(float(second), replace(BUSY, candidates=9, pending=9, stopping=second % 2 == 0)) == []
    assert (controller.state, controller.held, controller.stopped) == (State.IDLE, Reason.SHUTDOWN, True)


@pytest.mark.parametrize(("state", "limit"), [(State.EVALUATING, 5.0), (State.PRELOADING, 30.0)])
def test_neither_lasts_for_ever(state: State, limit: float) -> None:
    controller = in_state(state)
    assert controller.step(limit - 0.1, Signals(pending=1)) == []
    assert told(controller.step(limit, Signals(pending=1))) == [(state, State.IDLE, Reason.TIMEOUT)]


def test_rests_after_finding_nothing() -> None:
    controller = in_state(State.EVALUATING)
    assert told(controller.step(0.1, Signals(candidates=0))) == [(State.EVALUATING, State.IDLE, Reason.NO_CANDIDATES)]
    assert controller.step(1.0, BUSY) == []
    assert controller.held is Reason.RESTING
    assert controller.step(1.2)


@pytest.mark.parametrize("reason", [Reason.FAILURES, Reason.UNUSED])
def test_backs_off_twice_as_long_each_time(reason: Reason) -> None:
    controller, now, pauses = Controller(), 0.0, []
    for _ in range(9):
        while not controller.step(now, BUSY):
            now += 1.0
        assert controller.state is State.EVALUATING
        assert controller.step(now, GUARDS[reason])
        pauses.append(controller.rests_until - now)
    assert pauses == [30.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 3600.0, 3600.0]


def test_what_goes_well_ends_the_back_off() -> None:
    for reason, well in ((Reason.FAILURES, Signals(loaded=1)), (Reason.UNUSED, Signals(use=0.9))):
        controller = in_state(State.EVALUATING)
        controller.step(0.0, GUARDS[reason])
        controller.step(100.0, replace(BUSY, loaded=well.loaded, use=well.use))
        controller.step(100.0, GUARDS[reason])
        assert controller.rests_until == 130.0


def test_failures_count_running() -> None:
    controller = in_state(State.PRELOADING)
    for _ in range(5):
        assert controller.step(1.0, Signals(pending=1, failed=2)) == []
        assert controller.step(1.0, Signals(pending=1, loaded=1)) == []
    assert controller.step(1.0, Signals(pending=1, failed=2)) == []
    assert told(controller.step(1.0, Signals(pending=1, failed=1))) == [(State.PRELOADING, State.IDLE, Reason.FAILURES)]


def test_little_use_is_told_once() -> None:
    controller = in_state(State.PRELOADING)
    assert controller.step(1.0, Signals(use=0.0))
    assert [controller.step(float(second), Signals(use=0.0)) for second in range(2, 20)] == [[]] * 18
    assert controller.held is Reason.UNUSED


def test_a_clock_that_steps_back_changes_nothing() -> None:
    controller = in_state(State.PRELOADING)
    controller.step(20.0, Signals(pending=1))
    assert controller.step(-1e9, Signals(pending=1)) == []
    assert controller.step(29.0, Signals(pending=1)) == []
    assert controller.step(30.0, Signals(pending=1))


def test_memory_is_bounded() -> None:
    controller = Controller(replace(SETTINGS, log=10))
    for second in range(2000):
        controller.step(second / 10, Signals(misses=3, latencies=[10.0 ** (second % 9 - 5)] * 3, candidates=second % 2))
    assert len(controller.log) == 10
    assert len(controller._recent._slots) <= 12


@pytest.mark.parametrize("wrong", [{"window": 0.0}, {"share": 1.0}, {"busy": 0.0}, {"failures": 0}, {"longest": 1.0}])
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        replace(SETTINGS, **wrong)  # type: ignore[arg-type]


def abstract(controller: Controller, now: float) -> tuple[object, ...]:
    """Where it is, as far as that decides where it can go."""
    left = controller.rests_until - now
    recent = controller._recent
    return (
        controller.state,
        controller.stopped,
        controller.held,
        min(controller._failures, 2),
        tuple(min(count, 1) for count in controller._setbacks.values()),
        "rested" if left <= 0 else "short" if left <= 1 else "long",
        controller.state is not State.IDLE and now - controller._since >= 4.0,
        recent.misses >= 3,
        recent.percentile(0.95) > 0.08,
    )


def twin(controller: Controller) -> Controller:
    """A copy that goes its own way."""
    found = copy.copy(controller)
    found.log, found._setbacks, found._recent = copy.copy(found.log), dict(found._setbacks), copy.copy(found._recent)
    found._recent._slots = deque((number, dict(counts), [*missed]) for number, counts, missed in found._recent._slots)
    return found


FROM_ANY = {Reason.OVERLOAD, Reason.FAILURES, Reason.UNUSED, Reason.BUDGET, Reason.SHUTDOWN}
ALLOWED = {
    (State.IDLE, State.EVALUATING): {Reason.MISSES},
    (State.IDLE, State.IDLE): {Reason.SHUTDOWN, Reason.FAILURES, Reason.UNUSED},
    (State.EVALUATING, State.PRELOADING): {Reason.CANDIDATES},
    (State.EVALUATING, State.IDLE): FROM_ANY | {Reason.NO_CANDIDATES, Reason.TIMEOUT},
    (State.PRELOADING, State.IDLE): FROM_ANY | {Reason.DONE, Reason.TIMEOUT},
}


def test_every_state_that_can_be_reached_leads_back_to_idle() -> None:
    """Breadth-first over all abstract states by one of each kind of signal; edges seen are exactly those allowed."""
    guards = [Signals(), *GUARDS.values(), Signals(waiting=1), Signals(failed=1), Signals(loaded=1), Signals(use=0.9)]
    traffic = [((), 0), ([0.2] * 9, 9)]
    kinds = [
        replace(guard, latencies=latencies, misses=misses, candidates=candidates, pending=pending)
        for guard, (latencies, misses), candidates, pending in itertools.product(guards, traffic, (None, 0, 2), (0, 2))
    ]
    fresh = Controller(replace(SETTINGS, log=1, failures=2))
    seen = {abstract(fresh, 0.0): (fresh, 0.0)}
    waiting, edges = [abstract(fresh, 0.0)], set()
    while waiting:
        was, at = seen[waiting.pop()]
        for passed in (0.0, 0.9, 4.5, 70.0):
            for signals in kinds:
                controller = twin(was)
                for moved in controller.step(at + passed, signals):
                    edges.add((moved.was, moved.state, moved.reason))
                name = abstract(controller, at + passed)
                if name not in seen:
                    seen[name] = (controller, at + passed)
                    waiting.append(name)
    assert edges == {(*ends, reason) for ends, reasons in ALLOWED.items() for reason in reasons}
    assert {state[0] for state in seen} == set(State)
    for found, at in seen.values():
        controller = twin(found)
        controller.step(at)
        controller.step(at + 30.0)
        assert controller.state is State.IDLE or controller.log[-1].at == at + 30.0  # left, and begun anew
        controller.step(at + 130.0)
        controller.step(at + 260.0)
        assert controller.state is State.IDLE
