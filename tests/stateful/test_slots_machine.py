"""Compute slots in virtual time: any order of arriving, leaving, giving up, lending and taking back."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from mmcache.admission.qos import QoS
from mmcache.settings import Tenant
from mmcache.slots import Slots, _Ticket
from mmcache.testing import FakeClock

TENANTS = {"pay": Tenant("critical"), "shop": Tenant("normal"), "report": Tenant("batch"), "night": Tenant("batch")}
COUNT = 4


class SlotsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.qos = QoS(TENANTS)
        self.slots = Slots(COUNT, self.qos, tenants=TENANTS, clock=self.clock)
        self.tickets: list[_Ticket] = []
        self.joined = 0

    def pick(self, n: int, wanted: list[_Ticket]) -> _Ticket:
        return wanted[n % len(wanted)]

    def computing(self) -> list[_Ticket]:
        return [ticket for ticket in self.tickets if ticket.called.done() and not ticket.lent]

    def lending(self) -> list[_Ticket]:
        return [ticket for ticket in self.tickets if ticket.lent]

    @rule(tenant=st.sampled_from([*TENANTS, "stranger"]))
    def arrive(self, tenant: str) -> None:
        self.tickets.append(self.slots._join(tenant))
        self.joined += 1

    @precondition(lambda self: self.tickets)
    @rule(n=st.integers(0, 99))
    def leave_or_give_up(self, n: int) -> None:
        ticket = self.pick(n, self.tickets)
        if not ticket.lent:
            self.tickets.remove(ticket)
            self.slots._leave(ticket)

    @precondition(lambda self: self.computing())
    @rule(n=st.integers(0, 99))
    def lend(self, n: int) -> None:
        self.slots.lend(self.pick(n, self.computing()))

    @precondition(lambda self: self.lending())
    @rule(n=st.integers(0, 99))
    def take_back(self, n: int) -> None:
        self.slots.take_back(self.pick(n, self.lending()))

    @rule(seconds=st.floats(0.001, 20.0))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def counts_agree(self) -> None:
        assert self.slots.taken_now == sum(ticket.holds for ticket in self.tickets) == len(self.computing())
        assert self.slots.waiting_now == sum(not ticket.called.done() for ticket in self.tickets)
        assert sum(waited.at_once + waited.delayed for waited in self.slots.waited.values()) == self.joined

    @invariant()
    def nobody_waits_beside_a_free_slot_who_may_have_it(self) -> None:
        for ticket in self.tickets:
            self.slots._may_go(ticket)  # as those do that wait
        if self.slots.taken_now < COUNT:
            batch = sum(self.qos._tenants.get(t.tenant, Tenant()).service == "batch" for t in self.computing())
            waiting = {ticket.tenant for ticket in self.tickets if not ticket.called.done()}
            assert waiting <= {"report", "night", "shop", "stranger"}, "a critical tenant always may"
            if self.slots.taken_now == 0:
                assert not waiting, "where all is free everybody may"
            if not {"shop", "stranger"} & waiting:
                assert not waiting or batch >= COUNT // 2 or self.slots.taken_now > 0

    def teardown(self) -> None:
        for ticket in self.lending():
            while ticket.lent:
                self.slots.take_back(ticket)
        for ticket in list(self.tickets):
            self.slots._leave(ticket)
        assert (self.slots.taken_now, self.slots.waiting_now) == (0, 0)


def test_slots_keep_count_and_never_idle_in_front_of_a_critical_tenant() -> None:
    run_state_machine_as_test(SlotsMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))
