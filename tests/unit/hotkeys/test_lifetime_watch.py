"""The watch beside a running cache: what it expects, what follows, and when it expects nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.property.test_lifetime import model
from tests.unit.telemetry.test_spans_forks import in_child

import mmcache.hotkeys.lifetime as lifetime
from mmcache.admission.base import Admission, Admit, Reject
from mmcache.admission.qos import QoS
from mmcache.cache import Cache
from mmcache.hotkeys.lifetime import LifetimeWatch
from mmcache.hotkeys.lifetime_drift import look
from mmcache.hotkeys.lifetime_tiers import LifetimeTiers, Outlook, Outlooks
from mmcache.lifespan.inputs import OWN, LifeScale
from mmcache.lifespan.model import LifeModel
from mmcache.model.block import Facts
from mmcache.model.errors import CorruptFrameError, SettingsError
from mmcache.model.event import Drifted, Failed, Missed, Refused, RefuseReason
from mmcache.model.key import Key
from mmcache.settings import Tenant
from mmcache.testing import FakeClock, make_key
from mmcache.testing.decider_contracts import AdmissionContract, LifetimeContract
from mmcache.ttl.base import Lifetime
from mmcache.ttl.fixed import FixedTTL

HOUR = 3600.0
SCALE = LifeScale()
FACTS = Facts(1)


def steady(baseline: dict[str, list[int]] | None = None) -> LifeModel:
    """Says what the last interval was like: many uses = surely hot, few = surely not."""
    made = model(SCALE)
    weights = {name: np.zeros_like(array) for name, array in made.weights.items()}
    direct = weights["dense.direct"].reshape(2, 3, SCALE.intervals)
    direct[:, OWN, -1] = 4.0
    weights["dense.bias"] = np.full(2, -6.0, np.float32)
    counts = {name: np.array(part, np.int64) for name, part in (baseline or {}).items()}
    return replace(made, weights=weights, baseline=counts)


class World:
    """A cache with tiers and a watch, in virtual time."""

    def __init__(
        self,
        root: Path | None = None,
        made: LifeModel | None = None,
        *,
        policy: str = "auto",
        tenants: dict[str, Tenant] | None = None,
        **options: object,
    ) -> None:
        self.clock, self.tiers = FakeClock(), LifetimeTiers()
        self.cache = Cache(
            root, memory="1MiB", ttl=self.tiers.lifetime, admission=self.tiers.admission, clock=self.clock,
            policy=policy, tenants=tenants or {},
        )  # fmt: skip
        self.watch = LifetimeWatch(self.cache, made or steady(), self.tiers, threaded=False, **options)  # type: ignore[arg-type]
        self.watch.pump()

    def key(self, name: str) -> Key:
        return self.cache.key(name, modality="text", signature="encoder-1")

    def use(self, name: str, times: int = 1) -> None:
        for _ in range(times):
            self.cache.get_or_compute(self.key(name), lambda: "vector")

    def interval(self, **uses: int) -> None:
        for name, times in uses.items():
            self.use(name, times)
        self.clock.advance(6 * HOUR)
        self.watch.pump()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *error: object) -> None:
        self.watch.close()
        self.cache.close()


def test_what_is_used_much_is_kept_for_long_and_what_is_not_is_refused() -> None:
    with World() as world:
        for _ in range(5):
            world.interval(hot=20, cold=1)
        status = world.watch.status()
        assert (status.state, status.keys, status.preload, status.bypass) == ("watching", 2, 1, 1)
        hours, confidence = world.watch.expect(world.key("hot")) or (0, 0)
        assert hours == 72.0
        assert confidence == pytest.approx(0.9)
        assert (world.watch.expect(world.key("cold")) or (0, 1))[1] == pytest.approx(0.1)
        now = world.clock.monotonic()
        assert world.tiers.lifetime.deadline(world.key("hot"), FACTS, now) == now + 72 * HOUR
        world.cache.invalidate([world.key("hot"), world.key("cold")])
        world.use("hot")
        world.use("cold")
        assert world.cache.peek(world.key("hot")) is not None
        assert world.cache.peek(world.key("cold")) is None
        refused = [event for event in world.cache.events.recent() if isinstance(event, Refused)]
        assert {(event.key, event.reason) for event in refused} == {(world.key("cold"), RefuseReason.ADMISSION)}


def test_a_refused_key_that_is_used_again_comes_back() -> None:
    with World() as world:
        for _ in range(5):
            world.interval(cold=1)
        world.cache.invalidate(world.key("cold"))
        world.interval(cold=15)  # each of them a miss
        assert (world.watch.expect(world.key("cold")) or (0, 0))[1] > 0.8
        world.use("cold")
        assert world.cache.peek(world.key("cold")) == "vector"


def test_new_keys_are_never_refused() -> None:
    with World() as world:
        for _ in range(6):
            world.interval(old=1)
        world.use("new")
        assert world.cache.peek(world.key("new")) is not None, "nothing is known of it"
        world.interval()
        found = world.watch.expect(world.key("new"))
        assert found is not None
        assert found[1] < 0.5, "little is expected of it"
        world.cache.invalidate(world.key("new"))
        world.use("new")
        assert world.cache.peek(world.key("new")) is not None, "but it is known for less than a day"


def test_nothing_is_expected_before_a_day_has_been_watched_and_of_what_rests() -> None:
    with World() as world:
        for _ in range(3):
            world.interval(hot=20)
            assert world.watch.expect(world.key("hot")) is None
        world.interval(hot=20)
        assert world.watch.expect(world.key("hot")) is not None
        world.clock.advance(13 * HOUR)
        assert world.watch.expect(world.key("hot")) is None, "an outlook that nobody renews is not believed"


def test_hits_in_memory_and_misses_are_counted_alike() -> None:
    with World() as world:
        world.use("once", 7)
        world.clock.advance(6 * HOUR)
        world.watch.pump()
        counts = world.watch._counts
        slots = counts.candidates(10)
        assert counts.day(slots).tolist() == [7.0]


def test_sure_keys_are_brought_into_memory_from_below(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        for _ in range(4):
            world.interval(hot=20)
        world.use("hot")  # stored for a day before; now for three
        world.cache.flush()
        world.cache._store.memory.drop([world.key("hot")])
        world.watch._bring()
        assert world.cache.peek(world.key("hot")) == "vector"
        assert world.watch.status().preloaded == 1
        before = world.cache.stats()
        world.watch._bring()
        assert world.cache.stats().misses == before.misses, "preloading is no lookup"


def test_drifted_inputs_withhold_what_is_expected() -> None:
    baseline = {"heat": [0, 0, 0, 0, 1000, 0, 0, 0]}
    with World(made=steady(baseline)) as world:
        for _ in range(4):
            world.interval(**{f"key{n}": 4 for n in range(250)})
        status = world.watch.status()
        assert status.drift.drifted is False
        assert status.state == "watching"
        world.interval(**{f"other{n}": 1 for n in range(900)})
        status = world.watch.status()
        assert (status.state, status.retrain) == ("withheld", True)
        assert "heat" in status.reason
        assert world.watch.expect(world.key("key1")) is None
        assert any(isinstance(event, Drifted) for event in world.cache.events.recent())
        world.watch.adopt(steady())
        assert world.watch.status().state == "watching"


def test_a_model_that_is_wrong_is_not_believed_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "LEAST_CLAIMS", 20)
    monkeypatch.setattr(lifetime, "GIVE_UP", 3)
    wrong = steady()
    weights = dict(wrong.weights)
    weights["dense.direct"], weights["dense.bias"] = -weights["dense.direct"], -weights["dense.bias"]
    with World(made=replace(wrong, weights=weights)) as world:
        for _ in range(8):
            world.interval(**{f"key{n}": 12 for n in range(20)})
        world.interval(**{f"key{n}": 12 for n in range(20)})
        status = world.watch.status()
        assert "no better than" in status.reason
        assert status.error > status.rule_error
        assert (status.preload, status.on_demand, status.bypass) == (0, 0, 0)
        for _ in range(3):
            world.interval(**{f"key{n}": 12 for n in range(20)})
        assert world.watch.status().state == "stopped"
        world.interval(key1=1)


def test_one_tenants_uses_make_nobody_elses_keys_hot() -> None:
    made = model(SCALE, 1)
    with World(made=made) as world:
        keys = {
            name: world.cache.key("a cat", modality="text", signature="encoder-1", tenant=name) for name in ("a", "b")
        }
        for key in keys.values():
            world.watch.describe(key, text=[1.0, 0.0, 0.0], image=7)

        def asked(busy: int) -> list[float]:
            for n in range(busy):
                other = world.cache.key(f"{n}", modality="text", signature="encoder-1", tenant="a")
                world.watch.describe(other, text=[1.0, 0.0, 0.0], image=7)
                world.cache.get_or_compute(other, lambda: "vector")
            for key in keys.values():
                world.cache.get_or_compute(key, lambda: "vector")
            world.interval()
            counts = world.watch._counts
            slots = counts.candidates(1000)
            place = counts.keys(slots).index(keys["b"])
            series, _ = counts.asked(slots)
            return [float(series[place, channel, -1]) for channel in (3, 4, 5)]

        assert asked(0)[:2] == asked(300)[:2]


def test_an_embedding_of_another_model_is_refused() -> None:
    with World() as world, pytest.raises(SettingsError, match="3 numbers"):
        world.watch.describe(world.key("a"), text=[1.0, 2.0])


def test_a_failure_is_an_event_and_fails_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with World() as world:
        for _ in range(4):
            world.interval(hot=20)

        def broken(now: float | None) -> bool:
            raise ValueError("shapes do not fit")

        monkeypatch.setattr(world.watch, "_pump", broken)
        assert world.watch.pump() is False
        assert world.watch.status().state == "stopped"
        assert world.watch.expect(world.key("hot")) is None
        assert any(isinstance(event, Failed) and event.where == "lifetime" for event in world.cache.events.recent())
        world.use("hot", 2)


def test_a_forked_child_counts_its_own() -> None:
    with World() as world:
        for _ in range(4):
            world.interval(hot=20)

        def work() -> list[object]:
            held = world.watch.expect(world.key("hot")) is not None
            world.use("hot", 3)
            world.watch.pump()
            return [held, world.watch.status().keys]

        assert in_child(work) == [True, 1]
        assert world.watch.status().keys == 1


def test_it_is_read_from_a_file_and_its_thread_ends_with_the_cache(tmp_path: Path) -> None:
    from mmcache.lifespan.file import save

    save(steady(), tmp_path / "life.safetensors")
    with Cache(memory="1MiB") as cache:
        watch = LifetimeWatch(cache, tmp_path / "life.safetensors", period_seconds=0.01)
        thread = watch._thread
        assert thread is not None
    assert not thread.is_alive()
    watch.close()
    (tmp_path / "bad").write_bytes(b"x" * 100)
    with Cache(memory="1MiB") as cache, pytest.raises(CorruptFrameError):
        LifetimeWatch(cache, tmp_path / "bad")


def test_few_counts_are_not_compared_and_neither_are_other_bins() -> None:
    base = {"heat": np.array([100, 100])}
    assert not look({"heat": np.array([10, 0])}, base).drifted
    assert look({"heat": np.array([1000, 0])}, base).drifted
    assert not look({"heat": np.array([1000, 0, 0]), "text": np.array([1000, 0])}, base).drifted
    assert look({"heat": np.array([500, 500])}, base).divergence < 0.01


def outlooks() -> Outlooks:
    made = Outlooks()
    tiers = {1: (0.9, 0.85), 2: (0.6, 0.3), 3: (0.2, 0.1)}
    made.replace({make_key(n): Outlook(*said, 1e12, True) for n, said in tiers.items()})
    return made


class TestTieredLifetime(LifetimeContract):
    def make_lifetime(self) -> Lifetime:
        tiers = LifetimeTiers()
        tiers.outlooks.replace(dict(outlooks().items()))
        return tiers.lifetime

    def test_each_tier_has_its_time(self) -> None:
        made = self.make_lifetime()
        ends = [made.deadline(make_key(n), FACTS, 0.0) for n in (1, 2, 3, 4)]
        assert ends == [72 * HOUR, 24 * HOUR, 600.0, 24 * HOUR]
        named = LifetimeTiers(lifetime=FixedTTL(5.0)).lifetime
        assert named.deadline(make_key(1), FACTS, 1.0) == 6.0


class TestTieredAdmission(AdmissionContract):
    def make_admission(self) -> Admission:
        tiers = LifetimeTiers()
        tiers.outlooks.replace(dict(outlooks().items()))
        return tiers.admission

    def test_what_belongs_nowhere_is_refused(self) -> None:
        made = self.make_admission()
        verdicts = [made.judge(make_key(n), FACTS, 0.0) for n in (1, 2, 3, 4)]
        assert verdicts == [Admit(), Admit(), Reject(RefuseReason.ADMISSION), Admit()]
        assert made.judge(make_key(3), FACTS, 1e13) == Admit(), "what was expected is over"


def test_classes_and_quotas_are_passed_on() -> None:
    beside = QoS()
    tiers = LifetimeTiers(admission=beside)
    tenants = {"a": Tenant("critical"), "b": Tenant("batch")}
    with Cache(memory="1MiB", admission=tiers.admission, ttl=tiers.lifetime, tenants=tenants) as cache:
        key = cache.key("a cat", modality="text", signature="encoder-1", tenant="a")
        assert cache.put(key, "vector")
    assert beside._tenants == tenants
    assert beside._limit == 1 << 20


def test_a_miss_of_a_refused_key_says_so() -> None:
    with World() as world:
        for _ in range(5):
            world.interval(cold=1)
        world.cache.invalidate(world.key("cold"))
        world.use("cold", 2)
        missed = [event for event in world.cache.events.recent() if isinstance(event, Missed)]
        assert missed[-1].key == world.key("cold")
