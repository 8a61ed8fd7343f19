"""The forecast beside a running cache: it hears hits in memory, reaches the policy, and stops by itself."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator

import pytest
from tests.unit.telemetry.test_spans_forks import in_child

import mmcache.learn.forecasting as forecasting
from mmcache.cache import Cache
from mmcache.learn import Forecast, LSTMTrainer, forecast
from mmcache.model.errors import SettingsError
from mmcache.model.event import Evicted, Failed
from mmcache.model.key import Key
from mmcache.policies.forecast import SEQUENCE
from mmcache.policies.freshness import HeatFreshness
from mmcache.settings import Tenant
from mmcache.testing import FakeClock, make_key

torch = pytest.importorskip("torch", reason="the forecast is trained by torch: pip install 'mmcache[learn]'")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def opened(clock: FakeClock, events: int = 10 * SEQUENCE) -> Cache:
    return Cache(memory="1MiB", policy=HeatFreshness(events=events, seconds=1e6), clock=clock)


def used(cache: Cache, clock: FakeClock, numbers: list[int]) -> None:
    for n in numbers:
        clock.advance(0.1)
        key = cache.key(f"text {n}", modality="text", signature="encoder-1")
        cache.get_or_compute(key, lambda: "vector")


def test_it_hears_hits_that_nobody_asked_the_memory_tier_about() -> None:
    clock = FakeClock()
    with opened(clock) as cache:
        watcher = Forecast(cache)
        used(cache, clock, [n % 5 for n in range(200)])
        assert watcher.pump() == 200 // 10
        status = watcher.status()
        assert (status.state, status.steps, status.reason) == ("learning", 20, "")
        assert status.report["examples"] > 0


def test_what_can_be_learned_reaches_the_policy_and_goes_with_the_watcher() -> None:
    clock = FakeClock()
    with opened(clock, 20 * SEQUENCE) as cache:
        watcher, policy = Forecast(cache), cache._store.keeping.policy
        assert isinstance(policy, HeatFreshness)
        # Six blocks of the size of these fit, so that forecasts decide who stays.
        cache._store.memory.settings = type(cache._store.memory.settings)(limit_bytes=12_000, largest_share=1.0)
        for step in range(160):
            uses = [*range(4), *(1000 + step * 10 + n for n in range(4) for _ in range(4))]
            random.Random(step).shuffle(uses)
            used(cache, clock, uses)
            watcher.pump()
        assert watcher.status().state == "trusted"
        held = list(policy.victims(clock.monotonic()))
        whys = [policy.explain(key, clock.monotonic()) for key in held]
        assert any(why["forecast"] != why["uses"] for why in whys)
        watcher.close()
        assert watcher.status().state == "stopped"
        whys = [policy.explain(key, clock.monotonic()) for key in held]
        assert all(why["forecast"] == why["uses"] for why in whys)
        assert policy.history is None


def served(*, foreseen: bool) -> tuple[int, list[Evicted], str]:
    """Hits in the later half of requests of which much comes once, who was pushed out for whom, how it stands."""
    clock, hits, gone = FakeClock(), 0, list[Evicted]()
    with opened(clock, 20 * SEQUENCE) as cache, cache.events.feed(4096) as feed:
        watcher = Forecast(cache) if foreseen else None
        cache._store.memory.settings = type(cache._store.memory.settings)(limit_bytes=12_000, largest_share=1.0)
        for step in range(160):
            uses = [*range(4), *(1000 + step * 10 + n for n in range(4) for _ in range(4))]
            random.Random(step).shuffle(uses)
            for n in uses:
                key = cache.key(f"text {n}", modality="text", signature="encoder-1")
                hits += step >= 80 and cache.answers.resident(key).frame is not None
                used(cache, clock, [n])
            gone += [event for event in feed.drain() if isinstance(event, Evicted)]
            if watcher is not None:
                watcher.pump()
        return hits, gone, "" if watcher is None else watcher.status().state


@pytest.mark.slow
def test_a_real_cache_chooses_other_victims_by_it_and_hits_no_less() -> None:
    (plain, gone, _), (foreseen, others, state) = served(foreseen=False), served(foreseen=True)
    assert state == "trusted"
    assert [event.key for event in others] != [event.key for event in gone]
    assert foreseen >= plain > 0


def test_uses_that_keep_coming_hold_nobody_up() -> None:
    policy = HeatFreshness(events=80, seconds=1e6)
    trainer = LSTMTrainer(policy)
    heard, told = [0], trainer.duel.use

    def busy(key: Key, now: float, blocks: int) -> None:
        heard[0] += 1
        assert heard[0] <= 5, "more than waited when it began"
        trainer._uses.append((key, now))
        told(key, now, blocks)

    trainer.duel.use = busy  # type: ignore[method-assign]
    trainer._uses.extend((make_key(n), float(n)) for n in range(5))
    trainer.step()
    assert (heard[0], len(trainer._uses)) == (5, 5)


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with Cache(memory="1MiB", policy="heat-freshness") as cache:
        with pytest.raises(SettingsError, match=r"pip install 'mmcache\[learn\]'"):
            forecast(cache)
        policy = cache._store.keeping.policy
        assert isinstance(policy, HeatFreshness)
        assert policy.history is None, "nothing waits for nobody"


def test_it_stops_by_itself_where_it_is_no_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "GIVE_UP", 20)
    clock = FakeClock()
    with opened(clock) as cache:
        watcher = Forecast(cache)
        used(cache, clock, [n % 5 for n in range(200)])
        watcher.pump()
        assert watcher.status().state == "stopped"
        assert "20 steps" in watcher.status().reason
        used(cache, clock, [1, 2, 3])
        assert watcher.pump() == 0
        assert Forecast(cache).status().state == "learning", "the policy is free for another"


def test_training_that_fails_is_an_event_and_fails_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    with opened(clock) as cache:
        watcher = Forecast(cache)

        def broken() -> int:
            raise RuntimeError("no memory for a tensor")

        monkeypatch.setattr(watcher.trainer, "step", broken)
        assert watcher.pump() == 0
        assert any(isinstance(event, Failed) and event.where == "forecast" for event in cache.events.recent())
        assert watcher.status().state == "stopped"
        used(cache, clock, [1, 1])


def test_it_is_for_one_policy_and_one_watcher() -> None:
    with Cache(memory="1MiB") as cache, pytest.raises(SettingsError, match="heat-freshness"):
        forecast(cache)
    tenants = {"a": Tenant("critical")}
    with (
        Cache(memory="1MiB", policy="heat-freshness", tenants=tenants) as cache,
        pytest.raises(SettingsError, match="one policy"),
    ):
        forecast(cache)
    with Cache(memory="1MiB", policy="heat-freshness") as cache, forecast(cache), pytest.raises(SettingsError):
        forecast(cache)


def test_its_thread_ends_with_the_cache() -> None:
    with Cache(memory="1MiB", policy="heat-freshness") as cache:
        watcher = forecast(cache, period_seconds=0.01)
        assert "mmcache-forecast" in {thread.name for thread in threading.enumerate()}
    assert watcher.status().reason == "closed"
    assert "mmcache-forecast" not in {thread.name for thread in threading.enumerate()}
    watcher.close()


def test_a_forked_child_goes_on_without_it() -> None:
    clock = FakeClock()
    with opened(clock) as cache:
        watcher = Forecast(cache)
        used(cache, clock, [1, 2])

        def work() -> list[str]:
            used(cache, clock, [1, 2, 3])
            watcher.pump()
            watcher.close()
            return [watcher.status().state, watcher.status().reason]

        assert in_child(work) == ["stopped", "this process is a forked child"]
        assert watcher.status().state == "learning"
