"""What a cache does with its deciders: tenants, quotas, refusals, and what `explain` says of it all."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache, Key, Settings, Tenant
from mmcache.config_file import read_config
from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.event import Evicted, Refused
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import FakeClock
from mmcache.ttl.fixed import FixedTTL

BLOCK = np.zeros(2000, np.uint8)


def space(blocks: int) -> int:
    """Bytes that hold so many blocks and no more."""
    with Cache(memory="1MiB") as cache:
        cache.put(text(cache, "one"), BLOCK)
        return cache.stats().tiers["memory"].bytes * blocks + 100


def text(cache: Cache, name: object, tenant: str | None = None) -> Key:
    return cache.key(str(name), modality="text", signature="v1", tenant=tenant)


def held(cache: Cache, tenant: str) -> int:
    found = cache.stats().tiers["memory"].detail.get(f"bytes[{tenant}]", 0)
    assert isinstance(found, int)
    return found


class Doorman(LRU):
    """Refuses whatever is cheaper than what it would push out."""

    refuses = True

    def __init__(self) -> None:
        super().__init__()
        self.costs: dict[Key, float] = {}

    def add(self, key: Key, facts: Facts, now: float) -> None:
        super().add(key, facts, now)
        self.costs[key] = facts.cost

    def victims(self, now: float) -> Any:
        return iter(sorted(self._order, key=lambda key: self.costs[key]))

    def explain(self, key: Key, now: float) -> dict[str, float]:
        return {"score": self.costs[key], "cost": self.costs[key]} if key in self.costs else {}


def test_a_policy_that_refuses_keeps_what_is_dearer() -> None:
    with Cache(memory=space(5), policy=Doorman()) as cache:
        dear = [text(cache, n) for n in range(5)]
        for key in dear:
            assert cache.put(key, BLOCK, cost=5.0)
        cheap = text(cache, "cheap")
        assert not cache.put(cheap, BLOCK, cost=1.0)
        assert all(cache.peek(key) is not None for key in dear)
        refused = [event for event in cache.events.recent() if isinstance(event, Refused)]
        assert [(event.reason.value, dict(event.why)) for event in refused] == [("admission", {"score": 1, "cost": 1})]
        told = cache.explain(cheap)
        assert told.departure is not None
        assert (told.departure.what, told.departure.reason) == ("refused", "admission")
        assert "refused" in str(told)
        assert "score 1 from cost 1" in str(told)
        assert cache.put(text(cache, "dearer"), BLOCK, cost=9.0)
        cache.check_integrity()


def test_explain_says_the_score_of_what_is_here_and_of_what_went() -> None:
    clock = FakeClock()
    with Cache(memory=space(5), policy=Doorman(), clock=clock) as cache:
        first, *_ = keys = [text(cache, n) for n in range(6)]
        for n, key in enumerate(keys):
            cache.put(key, BLOCK, cost=1.0 + n)
        clock.advance(3)
        gone, here = cache.explain(first), cache.explain(keys[-1])
        assert gone.verdict == "miss (evicted)"
        assert gone.departure is not None
        assert (gone.departure.what, gone.departure.tier, gone.departure.seconds_ago) == ("evicted", "memory", 3.0)
        assert gone.departure.score == {"score": 1.0, "cost": 1.0}
        assert here.tiers[0].score == {"score": 6.0, "cost": 6.0}
        assert here.departure is None
        assert here.to_dict()["tiers"][0]["score"]["cost"] == 6.0
        evicted = next(event for event in cache.events.recent() if isinstance(event, Evicted))
        assert dict(evicted.why)["score"] == 1.0


def test_references_are_explained_and_delay_eviction() -> None:
    with Cache(memory=space(5), policy="lru") as cache:
        child, answer = text(cache, "child"), text(cache, "answer")
        cache.put(child, BLOCK)
        cache.put(answer, BLOCK)
        cache.link(answer, [child])
        assert cache.explain(child).references == 1
        for n in range(4):
            cache.put(text(cache, n), BLOCK)
        assert cache.peek(child) is not None
        assert cache.peek(answer) is None
        assert cache.explain(child).references == 0  # evicted parents need nothing
        for n in range(50):
            cache.put(text(cache, n), BLOCK)
        assert cache.peek(child) is None


def test_references_never_hold_more_than_the_pinned_share() -> None:
    settings = Settings(memory=MemorySettings(40_000, pinned_share=0.25))
    with Cache(settings=settings, policy="lru") as cache:
        answer, parts = text(cache, "answer"), [text(cache, f"part {n}") for n in range(9)]
        for key in (answer, *parts):
            cache.put(key, BLOCK)
        cache.link(answer, parts)
        with cache.pin(answer):
            for n in range(100):
                assert cache.put(text(cache, n), BLOCK)
            here = sum(cache.peek(key) is not None for key in parts)
        assert 1 <= here <= 3
        cache.check_integrity()


def test_quotas_are_byte_accurate() -> None:
    tenants = {"small": Tenant("batch", quota=10_000), "shop": Tenant("critical")}
    with Cache(memory="1MiB", tenants=tenants) as cache:
        shop = [text(cache, n, "shop") for n in range(5)]
        for key in shop:
            cache.put(key, BLOCK)
        for n in range(100):
            cache.put(text(cache, n, "small"), np.zeros(100 + 37 * n, np.uint8))
            assert held(cache, "small") <= 10_000
            cache.check_integrity()
        assert held(cache, "small") > 4_000
        assert all(cache.peek(key) is not None for key in shop)
        reasons = {event.reason.value for event in cache.events.recent() if isinstance(event, Evicted)}
        assert reasons == {"quota"}
        assert not cache.put(text(cache, "huge", "small"), np.zeros(20_000, np.uint8))
        told = cache.explain(text(cache, "huge", "small"))
        assert told.departure is not None
        assert (told.departure.what, told.departure.reason) == ("refused", "quota")


def test_a_batch_tenant_cannot_push_out_a_critical_one() -> None:
    tenants = {"shop": Tenant("critical"), "export": Tenant("batch")}
    with Cache(memory=200_000, tenants=tenants) as cache:
        shop = [text(cache, n, "shop") for n in range(30)]
        for key in shop:
            cache.put(key, BLOCK)
        for n in range(1000):
            cache.put(text(cache, n, "export"), BLOCK)
        assert all(cache.peek(key) is not None for key in shop)
        assert held(cache, "export") > 50_000  # idle space is used
        for n in range(30, 60):
            cache.put(text(cache, n, "shop"), BLOCK)
        assert held(cache, "shop") > 0.9 * held(cache, "export")
        cache.check_integrity()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tenants": {"a": "critical"}}, "tenants are like"),
        ({"tenants": {"a": Tenant()}, "policy": LRU()}, "by name"),
        ({"tenants": ["a"]}, "tenants are like"),
        ({"policy": LRU}, "not the class LRU"),
        ({"policy": 5}, "has not the methods of a Policy"),
        ({"references": 5}, "has not the methods of a References"),
        ({"ttl": FixedTTL}, "not the class FixedTTL"),
        ({"stale_while_revalidate": "30"}, "0 or more"),
        ({"settings": Settings(early_refresh=math.inf)}, "finite"),
        ({"settings": Settings(compute_slots=2.5)}, "whole number"),  # type: ignore[arg-type]
        ({"verify_share": "half"}, "between 0 and 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        Cache(**options)


@pytest.mark.parametrize(
    ("arguments", "match"), [(("gold",), "one of"), ((["batch"],), "one of"), (("batch", "4 XB"), "not a size")]
)
def test_a_tenant_that_makes_no_sense_is_refused(arguments: tuple[Any, ...], match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        Tenant(*arguments)


def test_attention_reaches_the_policy() -> None:
    class Listening(LRU):
        heard: float | None = None

        def add(self, key: Key, facts: Facts, now: float) -> None:
            super().add(key, facts, now)
            self.heard = facts.entropy

    policy = Listening()
    with Cache(policy=policy) as cache:
        key = text(cache, "k")
        cache.put(key, BLOCK)
        cache.attended(key, 0.25)
        assert policy.heard == 0.25
        with pytest.raises(SettingsError, match="nats"):
            cache.attended(key, -1.0)


def test_a_configuration_file_makes_a_cache(tmp_path: Path) -> None:
    path = tmp_path / "mmcache.toml"
    path.write_text(
        '[cache]\nmemory = "2MiB"\npolicy = "heat"\nttl = 60\n\n[tenants.pay]\nservice = "critical"\nquota = "1MiB"\n'
    )
    with Cache.from_config(path, namespace="other") as cache:
        key = text(cache, "k", "pay")
        cache.put(key, BLOCK)
        assert held(cache, "pay") > 2000
        assert cache.namespace == "other"
        left = cache.explain(key).tiers[0].seconds_left
        assert left is not None
        assert left <= 60


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("[cache", "cannot read"),
        ("[cash]\nx = 1", "not cash"),
        ("[cache]\nsecret = 'x'", "no secret"),
        ("[cache]\nroot = 5", "root is a text"),
        ("[cache]\npolicy = ['lru']", "policy is a text"),
        ("[tenants.a]\nclass = 'x'", "service and quota"),
        ("[tenants.a]\nservice = 'gold'", "one of"),
        ("cache = 1", "tables"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(tmp_path: Path, words: str, match: str) -> None:
    path = tmp_path / "mmcache.toml"
    path.write_text(words)
    with pytest.raises(SettingsError, match=match):
        read_config(path)
    with pytest.raises(SettingsError, match="cannot read"):
        read_config(tmp_path / "absent.toml")


def test_nothing_of_a_tenant_goes_for_a_block_that_will_not_stay() -> None:
    one = space(1) - 100
    tenants = {"shop": Tenant("critical"), "export": Tenant("batch", quota=one * 2 + 50)}
    with Cache(memory=one * 4 + 100, policy="lru", tenants=tenants, admission="always") as cache:
        for n in range(2):
            cache.put(text(cache, n, "shop"), BLOCK)
            cache.put(text(cache, n, "export"), BLOCK)
        pinned = [cache._store.memory.pin(text(cache, n, "shop")) for n in range(2)]
        assert pinned == [True, True]
        assert cache.put(text(cache, 2, "shop"), BLOCK)  # takes the place of one of the export's
        left = [n for n in range(2) if cache.peek(text(cache, n, "export")) is not None]
        assert not cache.put(text(cache, 3, "export"), np.zeros(2000 + one - 200, np.uint8))
        assert [n for n in range(2) if cache.peek(text(cache, n, "export")) is not None] == left
        cache.check_integrity()


def test_what_came_back_to_memory_did_not_leave_it(tmp_path: Path) -> None:
    with Cache(tmp_path, memory=space(2), policy="lru") as cache:
        for n in range(3):
            cache.put(text(cache, n), BLOCK)
        cache.flush()
        gone = cache.explain(text(cache, 0)).departure
        assert gone is not None
        assert gone.what == "evicted"
        assert cache.get(text(cache, 0)) is not None
        assert cache.explain(text(cache, 0)).departure is None
