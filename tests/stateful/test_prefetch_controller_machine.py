"""The prefetch controller under any order of signals: always a reason, always a way back to Idle."""

from __future__ import annotations

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from mmcache.prefetch.controller import Controller, ControllerSettings, Reason, Signals, State, Transition

SETTINGS = ControllerSettings()
LIMIT = {State.IDLE: 0.0, State.EVALUATING: SETTINGS.evaluating, State.PRELOADING: SETTINGS.preloading}
SIGNALS = st.builds(
    Signals,
    misses=st.integers(0, 5),
    latencies=st.lists(st.sampled_from([0.0, 0.001, 0.079, 0.081, 3.0, 1e9, float("inf")]), max_size=5),
    load=st.sampled_from([0.0, 0.5, 0.95]),
    waiting=st.sampled_from([0, 0, 0, 1]),
    candidates=st.sampled_from([None, 0, 4]),
    pending=st.sampled_from([0, 4]),
    loaded=st.integers(0, 2),
    failed=st.integers(0, 3),
    use=st.sampled_from([None, None, 0.0, 0.24, 0.25, 1.0]),
    spent=st.sampled_from([False, False, True]),
)


class ControllerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.controller = Controller()
        self.now = 0.0
        self.moved: list[Transition] = []
        self.stopped = False

    def step(self, signals: Signals) -> None:
        was = self.controller.state
        moved = self.controller.step(self.now, signals)
        assert len(moved) <= 1
        for one in moved:
            assert one.was is was
            assert isinstance(one.reason, Reason)
            assert one.at == self.now
            assert one.state is not one.was or one.state is State.IDLE
        assert self.controller.state is (moved[-1].state if moved else was)
        self.moved += moved

    @rule(signals=SIGNALS, passed=st.sampled_from([0.0, 0.1, 1.0, 10.0, 100.0, 5000.0]))
    def signal(self, signals: Signals, passed: float) -> None:
        self.now += passed
        self.step(signals)

    @rule()
    def work(self) -> None:
        """A whole round where nothing is in its way."""
        self.step(Signals(misses=9, latencies=[1.0] * 9))
        self.step(Signals(candidates=3))

    @rule(load=st.booleans())
    def overload(self, load: bool) -> None:
        self.step(Signals(load=1.0, pending=3) if load else Signals(waiting=2, pending=3))
        assert self.controller.state is State.IDLE

    @rule()
    def fail(self) -> None:
        self.step(Signals(failed=SETTINGS.failures, pending=3))
        assert self.controller.state is State.IDLE
        self.step(Signals(misses=9, latencies=[1.0] * 9))
        assert self.controller.state is State.IDLE  # it backs off

    @rule()
    def shut_down(self) -> None:
        self.step(Signals(stopping=True, pending=3))
        self.stopped = True

    @invariant()
    def comes_back(self) -> None:
        """Without any more input it is Idle after its state's limit, and stays there."""
        twin = copy.deepcopy(self.controller)
        twin.step(self.now + LIMIT[twin.state])
        for later in (0.0, 1.0, 1000.0):
            twin.step(self.now + LIMIT[State.PRELOADING] + SETTINGS.window + later)
            if twin.state is not State.IDLE:  # what came before began one more round
                twin.step(self.now + 2 * (LIMIT[State.PRELOADING] + SETTINGS.window) + later)
        assert twin.state is State.IDLE

    @invariant()
    def is_logged(self) -> None:
        assert list(self.controller.log) == self.moved[-SETTINGS.log :]
        assert (self.controller.held is None) is (self.controller.state is not State.IDLE)

    @invariant()
    def stays_stopped(self) -> None:
        if self.stopped:
            assert (self.controller.state, self.controller.held) == (State.IDLE, Reason.SHUTDOWN)


def test_any_order_of_signals() -> None:
    run_state_machine_as_test(
        ControllerMachine,
        settings=settings(max_examples=120, stateful_step_count=30, deadline=None, derandomize=True, database=None),
    )
