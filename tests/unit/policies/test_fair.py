"""Who loses, by how much, and that nobody at or below its share does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.fair import _APART, _REMEMBERED, FairShare
from mmcache.policies.lru import LRU
from mmcache.settings import Tenant
from mmcache.testing import make_key

TENANTS = {"pay": Tenant("critical"), "shop": Tenant("normal"), "report": Tenant("batch")}
NAMES = (*TENANTS, "nobody named me")
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "touch", "drop"]),
        st.integers(0, 25),
        st.sampled_from(NAMES),
        st.integers(0, 400),
    ),
    max_size=120,
)


class Shared:
    """Some bytes that tenants share, as a tier does it; a model of who holds what beside the policy."""

    def __init__(self, limit: int, tenants: Mapping[str, Tenant] = TENANTS) -> None:
        self.limit, self.tenants = limit, tenants
        self.policy = FairShare(LRU, tenants)
        self.held: dict[Key, Facts] = {}
        self.lost: list[tuple[str, int, float]] = []
        """Tenant, bytes that it held before, and its weighted share at that moment."""

    def bytes_of(self, tenant: str) -> int:
        return sum(facts.size for facts in self.held.values() if facts.tenant == tenant)

    def weight(self, tenant: str) -> float:
        return self.tenants.get(tenant, Tenant()).weight

    def share(self, tenant: str) -> float:
        weights = sum(self.weight(name) for name in {facts.tenant for facts in self.held.values()})
        return self.limit * self.weight(tenant) / weights

    def add(self, key: Key, facts: Facts, now: float) -> None:
        self.policy.add(key, facts, now)
        self.held[key] = facts
        excess = sum(facts.size for facts in self.held.values()) - self.limit
        chosen = []
        for victim in self.policy.victims(now) if excess > 0 else ():
            chosen.append(victim)
            excess -= self.held[victim].size
            if excess <= 0:
                break
        for victim in chosen:
            tenant = self.held[victim].tenant
            self.lost.append((tenant, self.bytes_of(tenant), self.share(tenant)))
            self.drop(victim)

    def drop(self, key: Key) -> None:
        self.policy.drop(key)
        self.held.pop(key, None)


@given(CALLS)
@settings(max_examples=200)
def test_nobody_at_or_below_its_weighted_share_loses(calls: list[tuple[str, int, str, int]]) -> None:
    shared = Shared(1000)
    for now, (call, n, tenant, size) in enumerate(calls):
        match call:
            case "add":
                shared.add(make_key(n), Facts(size, tenant=tenant), now)
            case "touch":
                shared.policy.touch(make_key(n), now)
            case "drop":
                shared.drop(make_key(n))
        assert {name: shared.policy.bytes_of(name) for name in NAMES} == {n: shared.bytes_of(n) for n in NAMES}
    assert all(held > share for _, held, share in shared.lost)


@given(CALLS)
def test_the_first_to_go_is_always_of_the_tenant_most_above_its_share(calls: list[tuple[str, int, str, int]]) -> None:
    shared = Shared(1 << 40)
    for now, (call, n, tenant, size) in enumerate(calls):
        if call == "drop":
            shared.drop(make_key(n))
        else:
            shared.add(make_key(n), Facts(size, tenant=tenant), now)
    left = {tenant: shared.bytes_of(tenant) for tenant in NAMES}
    own = {tenant: list(shared.policy.victims_of(tenant, 0.0)) for tenant in NAMES}
    for victim in shared.policy.victims(0.0):
        tenant = shared.held[victim].tenant
        most = max(left[name] / shared.weight(name) for name in NAMES if own[name])
        assert left[tenant] / shared.weight(tenant) == most
        assert own[tenant].pop(0) == victim
        left[tenant] -= shared.held[victim].size


def test_a_batch_scan_cannot_push_out_what_a_critical_tenant_needs() -> None:
    shared = Shared(1000 * 100)
    hot = [make_key(n) for n in range(900)]
    for key in hot:
        shared.add(key, Facts(100, tenant="pay"), 0.0)
    for n in range(10_000):  # a report that reads everything once
        shared.add(make_key(10_000 + n), Facts(100, tenant="report"), 1.0)
    assert all(key in shared.held for key in hot)
    assert shared.bytes_of("report") == 100 * 100, "it uses what is idle"


def test_idle_space_is_lent_and_a_batch_tenant_keeps_its_share_under_full_demand() -> None:
    shared = Shared(1050 * 100)
    for n in range(2000):
        shared.add(make_key(n), Facts(100, tenant="report"), 0.0)
    assert shared.bytes_of("report") == shared.limit
    for n in range(5000):
        shared.add(make_key(10_000 + n), Facts(100, tenant="pay"), 1.0)
        assert shared.bytes_of("report") >= shared.limit * 0.5 / 10.5
    assert shared.bytes_of("report") == shared.limit * 0.5 / 10.5


def test_of_equal_shares_the_lower_class_goes_first() -> None:
    policy = FairShare(LRU, TENANTS)
    policy.add(make_key(1), Facts(1000, tenant="pay"), 0.0)
    policy.add(make_key(2), Facts(50, tenant="report"), 0.0)
    assert list(policy.victims(1.0)) == [make_key(2), make_key(1)]


def test_a_block_may_change_hands_and_size() -> None:
    policy = FairShare(LRU, TENANTS)
    policy.add(make_key(1), Facts(100, tenant="pay"), 0.0)
    policy.add(make_key(1), Facts(70, tenant="pay"), 1.0)
    assert policy.bytes_of("pay") == 70
    policy.add(make_key(1), Facts(60, tenant="report"), 2.0)
    assert (policy.bytes_of("pay"), policy.bytes_of("report")) == (0, 60)
    assert list(policy.victims_of("pay", 3.0)) == []
    assert list(policy.victims_of("never seen", 3.0)) == []


class Counted(LRU):
    asked = 0

    def victims(self, now: float) -> Iterator[Key]:
        Counted.asked += 1
        return super().victims(now)


def test_the_first_victims_of_thousands_of_tenants_ask_few_of_them() -> None:
    policy = FairShare(Counted, {f"tenant {n}": Tenant() for n in range(5000)})
    rng = random.Random(5)
    for n in range(5000):
        policy.add(make_key(n), Facts(rng.randrange(1000, 9000), tenant=f"tenant {n}"), 0.0)
    Counted.asked = 0
    assert len(list(itertools.islice(policy.victims(1.0), 10))) == 10
    assert Counted.asked <= 10


def test_strangers_that_hold_nothing_are_forgotten_in_the_end() -> None:
    policy = FairShare(LRU, TENANTS)
    for n in range(3 * _REMEMBERED):
        policy.add(make_key(n), Facts(1, tenant=f"stranger {n}"), 0.0)
        policy.drop(make_key(n))
    policy.add(make_key(1), Facts(1, tenant="pay"), 0.0)
    policy.drop(make_key(1))
    assert len(policy._accounts) <= _REMEMBERED + 1
    assert list(policy.victims(0.0)) == []


def test_thousands_of_strangers_share_one_policy() -> None:
    made: list[LRU] = []

    def make() -> LRU:
        made.append(LRU())
        return made[-1]

    policy, rng = FairShare(make, TENANTS), random.Random(6)
    held: dict[int, int] = {}
    for n in range(20_000):
        block = rng.randrange(5000)
        policy.add(make_key(block), Facts(100, tenant=f"stranger {block}"), 0.0)
        held[block] = 100
        if n % 7 == 0:
            gone = rng.choice(list(held))
            policy.drop(make_key(gone))
            del held[gone]
    assert len(policy._accounts) <= _APART + 1
    assert set(policy.victims(1.0)) == {make_key(block) for block in held}
    assert sum(account.bytes for account in policy._accounts.values()) == sum(held.values())
    policy.add(make_key(-1 % 2**32), Facts(100, tenant="pay"), 0.0)
    assert policy.bytes_of("pay") == 100


class NewestFirst(LRU):
    """A policy that would evict what has just come, as those do that count uses."""

    def victims(self, now: float) -> Iterator[Key]:
        return reversed(self._order)


class Refusing(NewestFirst):
    refuses = True


def test_a_new_block_goes_after_its_tenants_others_unless_their_policy_refuses_it() -> None:
    for make, first in ((NewestFirst, 2), (Refusing, 3)):
        policy = FairShare(make, TENANTS)
        for n in range(1, 4):
            policy.add(make_key(n), Facts(100, tenant="report"), 0.0)
        assert next(policy.victims(1.0)) == next(policy.victims_of("report", 1.0)) == make_key(first)


def test_a_block_that_would_push_out_tenants_within_their_share_is_itself_the_victim() -> None:
    policy = FairShare(LRU, TENANTS)
    for n in range(8):
        policy.add(make_key(n), Facts(100, tenant="pay"), 0.0)
    policy.add(make_key(50), Facts(100, tenant="report"), 1.0)
    policy.add(make_key(51), Facts(500, tenant="report"), 2.0)
    assert policy.refuses
    assert list(itertools.islice(policy.victims(3.0), 2)) == [make_key(50), make_key(51)]


class Scored(LRU):
    def explain(self, key: Key, now: float) -> Mapping[str, float]:
        return {"age": now, "score": 7.0}


def test_it_explains_the_share_and_the_inner_score() -> None:
    policy = FairShare(Scored, TENANTS)
    policy.add(make_key(1), Facts(100, tenant="report"), 0.0)
    parts = policy.explain(make_key(1), 3.0)
    assert parts == {
        "age": 3.0, "within_tenant": 7.0, "tenant_bytes": 100.0, "tenant_weight": 0.5, "score": -200.0,
    }  # fmt: skip
    assert policy.explain(make_key(2), 3.0) == {}
    plain = FairShare(LRU, TENANTS)
    plain.add(make_key(1), Facts(100, tenant="pay"), 0.0)
    assert plain.explain(make_key(1), 0.0)["score"] == pytest.approx(-10.0)
