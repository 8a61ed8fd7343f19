"""QoS in virtual time: the score, the threshold, the order of those that wait, and the bounds on starvation."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.admission.base import Admission, Admit, Ranks, Reject, Watchful
from mmcache.admission.qos import QoS, score, threshold
from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.settings import Tenant
from mmcache.testing import AdmissionContract, make_key

TENANTS = {"pay": Tenant("critical"), "shop": Tenant("normal"), "report": Tenant("batch"), "night": Tenant("batch")}
LIMIT = 1_000_000


class TestQoS(AdmissionContract):
    def make_admission(self) -> Admission:
        return QoS(TENANTS)


class TestQoSWhereNothingIsFree(AdmissionContract):
    def make_admission(self) -> Admission:
        qos = QoS({"default": Tenant("batch")})
        qos.space("default", 0, LIMIT, LIMIT)
        return qos


def fill(qos: QoS, held: int, own: int = 0) -> None:
    for tenant in TENANTS:
        qos.space(tenant, own, held, LIMIT)


def admitted(qos: QoS, tenant: str, size: int, now: float) -> bool:
    return isinstance(qos.judge(make_key(1), Facts(size, tenant=tenant), now), Admit)


def test_it_is_all_three() -> None:
    assert isinstance(QoS(), Admission)
    assert isinstance(QoS(), Ranks)
    assert isinstance(QoS(), Watchful)


@pytest.mark.parametrize(("share", "window", "quiet"), [(0.0, 1, 1), (1.1, 1, 1), (0.5, 0, 1), (0.5, 1, -1)])
def test_settings_out_of_bounds(share: float, window: float, quiet: float) -> None:
    with pytest.raises(SettingsError):
        QoS(batch_share=share, window_seconds=window, quiet_seconds=quiet)


@given(st.floats(0, 1))
def test_the_score_as_defined(load: float) -> None:
    assert score(10.0, load) == pytest.approx(10 * (1 - min(load, 0.95)))
    assert score(10.0, load) >= threshold(0.0), "a critical tenant always passes"


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_batch_tenant_passes_while_its_load_is_at_most_what_is_free(load: float, free: float) -> None:
    passes = score(0.5, load) >= threshold(free)
    assert passes or load > max(free, 0.05)
    assert not passes or min(load, 0.95) <= max(free, 0.05) + 1e-9


# Storing


def test_while_memory_is_free_everybody_stores_and_when_it_is_full_batch_is_held_back() -> None:
    qos = QoS(TENANTS)
    assert admitted(qos, "pay", 1000, 0.0)
    fill(qos, LIMIT // 2)
    assert [admitted(qos, "report", 100_000, 0.0) for _ in range(8)] == [True] * 6 + [False] * 2
    fill(qos, LIMIT)
    assert isinstance(qos.judge(make_key(1), Facts(1, tenant="report"), 0.0), Reject)
    assert all(admitted(qos, "pay", LIMIT, 0.0) for _ in range(20)), "critical stores under any load"


def test_nobody_is_held_back_for_nobody() -> None:
    qos = QoS(TENANTS)
    fill(qos, LIMIT)
    assert all(admitted(qos, "report", LIMIT, 0.0) for _ in range(5))
    admitted(qos, "shop", 1, 1.0)
    assert not admitted(qos, "report", 1, 2.0)
    qos = QoS(TENANTS, window_seconds=1e9)
    fill(qos, LIMIT)
    admitted(qos, "report", LIMIT, 0.0)
    admitted(qos, "shop", 1, 1.0)
    assert not admitted(qos, "report", 1, 61.0)
    assert admitted(qos, "report", LIMIT, 61.5), "the minute is over"


@given(
    st.lists(st.tuples(st.floats(0.01, 2.0), st.integers(1, LIMIT // 10)), min_size=30, max_size=150),
    st.sampled_from(["shop", "report"]),
)
@settings(deadline=None)
def test_nobody_is_refused_for_longer_than_three_windows(puts: list[tuple[float, int]], tenant: str) -> None:
    qos = QoS(TENANTS)
    fill(qos, LIMIT)
    now = refused_since = 0.0
    for pause, size in puts:
        now += pause
        admitted(qos, "pay", 1, now)
        if admitted(qos, tenant, size, now):
            refused_since = now
        assert now - refused_since <= 3 * qos.window_seconds + pause


def test_full_memory_still_takes_five_per_cent_a_window_from_batch() -> None:
    qos = QoS(TENANTS)
    fill(qos, LIMIT)
    stored = 0
    for n in range(10_000):  # 100 s at 100 blocks of 0.1 % of the pool a second: 1000 % of it in a window
        now = n / 100
        admitted(qos, "pay", 1, now)
        stored += 1000 * admitted(qos, "report", 1000, now)
    assert 0.05 * LIMIT * 9 < stored < 0.05 * LIMIT * 12


def test_its_own_space_may_be_turned_over_once_a_window() -> None:
    qos = QoS(TENANTS)
    stored = 0
    for n in range(10_000):
        now = n / 100
        fill(qos, LIMIT, own=LIMIT // 4)
        admitted(qos, "pay", 1, now)
        stored += 1000 * admitted(qos, "report", 1000, now)
    assert 0.25 * LIMIT * 9 < stored < 0.25 * LIMIT * 12


def test_loads_of_many_strangers_are_forgotten() -> None:
    qos = QoS(TENANTS)
    for n in range(20_000):
        qos.space(f"stranger {n}", 0, 0, LIMIT)
        admitted(qos, f"stranger {n}", 1, float(n))
    assert len(qos._pool) < 5000
    assert len(qos._free) < 5000


# Computing


def test_a_loaded_critical_tenant_goes_before_an_idle_batch_one() -> None:
    qos = QoS(TENANTS)
    for _ in range(4):
        qos.began("pay", 4, 0.0)
    assert qos.slot_load("pay", 4, 1000.0) == pytest.approx(1.0)
    assert score(10.0, 1.0) == score(0.5, 0.0), "a tie, which the class decides"
    assert qos.choose([("report", 0), ("pay", 0)], 4, 4, 1000.0) == "pay"
    assert qos.choose([("pay", 0), ("report", 0)], 4, 4, 1000.0) == "pay"


def test_load_is_the_smoothed_share_of_the_slots() -> None:
    qos = QoS(TENANTS, window_seconds=10.0)
    qos.began("shop", 2, 0.0)
    assert qos.slot_load("shop", 2, 0.0) == 0.0
    assert qos.slot_load("shop", 2, 10.0) == pytest.approx(0.5 * (1 - 0.36788), abs=1e-4)
    qos.ended("shop", 2, 1000.0)
    assert qos.slot_load("shop", 2, 1010.0) == pytest.approx(0.5 * 0.36788, abs=1e-4)
    assert qos.slot_load("nobody", 2, 1010.0) == 0.0


@pytest.mark.parametrize(("slots", "most"), [(1, 1), (2, 1), (3, 1), (4, 2), (9, 4)])
def test_batch_tenants_together_leave_half_of_the_slots(slots: int, most: int) -> None:
    qos, running = QoS(TENANTS), 0
    while (tenant := qos.choose([("report", 99), ("night", 99)], slots - running, slots, 0.0)) is not None:
        qos.began(tenant, slots, 0.0)
        running += 1
    assert running == most
    assert qos.choose([("report", 99), ("pay", 0)], slots - running, slots, 0.0) == "pay"
    qos.ended("report", slots, 0.0)
    assert qos.choose([("report", 99)], slots - running + 1, slots, 0.0) == "report"


def test_the_threshold_follows_the_free_slots() -> None:
    qos = QoS(TENANTS, batch_share=1.0)
    for _ in range(4):
        qos.began("report", 8, 0.0)
    qos.began("pay", 8, 100.0)
    assert qos.choose([("report", 0)], 5, 8, 100.0) == "report", "half loaded, more than half free"
    assert qos.choose([("report", 0)], 3, 8, 100.0) is None
    assert qos.choose([("report", 20)], 3, 8, 100.0) == "report", "overdue"
    assert qos.choose([("report", 0)], 3, 8, 161.0) == "report", "nobody of a higher class for a minute"


def test_reset_forgets_what_runs() -> None:
    qos = QoS(TENANTS)
    qos.began("report", 2, 0.0)
    assert qos.choose([("report", 0)], 1, 2, 0.0) is None
    qos.reset()
    assert qos.choose([("report", 0)], 2, 2, 0.0) == "report"


@dataclass
class Room:
    """A waiting room in virtual time: one slot, tenants that always have more to compute."""

    qos: QoS
    tenants: list[str]
    overtaken: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    served: deque[str] = field(default_factory=deque)

    def serve(self, seconds: float, now: float) -> None:
        chosen = self.qos.choose([(t, self.overtaken.get(t, 0)) for t in self.tenants], 1, 1, now)
        assert chosen is not None
        self.qos.began(chosen, 1, now)
        self.qos.ended(chosen, 1, now + seconds)
        self.served.append(chosen)
        for tenant in self.tenants:
            self.overtaken[tenant] = 0 if tenant == chosen else self.overtaken.get(tenant, 0) + 1
            self.most[tenant] = max(self.most.get(tenant, 0), self.overtaken[tenant])


CLASSES = st.lists(st.sampled_from(["critical", "normal", "batch"]), min_size=2, max_size=12)


@given(CLASSES, st.lists(st.floats(0.001, 30.0), min_size=1, max_size=5))
@settings(deadline=None, max_examples=60)
def test_nobody_is_overtaken_more_often_than_promised(classes: list[str], seconds: list[float]) -> None:
    tenants = {f"{service} {n}": Tenant(service) for n, service in enumerate(classes)}  # type: ignore[arg-type]
    room, now = Room(QoS(tenants), list(tenants)), 0.0
    weights = sum(tenant.weight for tenant in tenants.values())
    for n in range(600):
        took = seconds[n % len(seconds)]
        room.serve(took, now)
        now += took
    for name, tenant in tenants.items():
        assert room.most[name] <= 2 * max(10.0, weights) / tenant.weight + 2 * len(tenants)


def test_a_batch_tenant_against_a_critical_one_at_full_blast_gets_every_22nd_computation() -> None:
    room = Room(QoS(TENANTS), ["pay", "report"])
    for n in range(2200):
        room.serve(1.0, float(n))
    assert room.most["report"] <= 20
    assert 100 <= room.served.count("report") <= 220
