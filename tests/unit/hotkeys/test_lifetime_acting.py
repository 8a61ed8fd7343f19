"""The watch acts: soon where it was wrong, never where the cache is off, and for nothing at its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.unit.hotkeys.test_lifetime_watch import HOUR, World, steady

from mmcache.cache import Cache
from mmcache.hotkeys import HotKeys
from mmcache.hotkeys.lifetime import LifetimeWatch
from mmcache.hotkeys.lifetime_counts import KeyCounts
from mmcache.hotkeys.lifetime_drift import look
from mmcache.hotkeys.lifetime_tiers import MOST_REFUSALS, Outlook, Outlooks
from mmcache.lifespan.file import load, save
from mmcache.lifespan.inputs import LifeScale
from mmcache.model.errors import CorruptFrameError, InvalidInputError, SettingsError
from mmcache.settings import Tenant
from mmcache.testing import FakeClock, make_key


def test_describing_a_key_does_not_end_an_interval_that_nobody_then_asks_about() -> None:
    with World() as world:
        for n in range(5):
            world.use("hot", 20)
            world.clock.advance(6 * HOUR)
            world.watch.describe(world.key(f"new {n}"), image=n)
            assert world.watch.due()
            assert world.watch.pump()
        assert world.watch.expect(world.key("hot")) is not None


def test_a_cold_key_that_turns_hot_is_refused_twice_and_then_stored_for_a_day() -> None:
    with World() as world:
        for _ in range(5):
            world.interval(cold=1)
        key = world.key("cold")
        world.cache.invalidate(key)
        world.use("cold", MOST_REFUSALS)
        assert world.cache.peek(key) is None
        world.use("cold")
        assert world.cache.peek(key) == "vector"
        assert world.watch.expect(key) is None
        now = world.clock.monotonic()
        assert world.cache.answers.resident(key).deadline == pytest.approx(now + 24 * HOUR)


def test_refusals_are_forgotten_with_what_was_expected() -> None:
    outlooks, key = Outlooks(), make_key(1)
    for _ in range(3):
        outlooks.replace({key: Outlook(0.1, 0.1, 1e9, True)})
        assert [outlooks.refuse(key) for _ in range(MOST_REFUSALS + 1)] == [True] * MOST_REFUSALS + [False]
        assert len(outlooks) == 0


def test_a_hash_may_be_signed_and_what_is_none_is_told() -> None:
    with World() as world:
        for n, code in enumerate((-1, 2**64 - 1)):
            world.watch.describe(world.key(f"{n}"), image=code)
        about = world.watch._counts._about[[world.watch._counts._slots[world.key(f"{n}")] for n in (0, 1)]]
        assert np.array_equal(about[0], about[1])
        with pytest.raises(InvalidInputError, match="64 bits"):
            world.watch.describe(world.key("2"), image=1 << 64)
        with pytest.raises(InvalidInputError, match="one text"):
            world.watch.describe(world.key("2"), text=np.ones((2, 3)))


def test_one_that_stopped_listens_no_more_until_it_has_a_new_model(monkeypatch: pytest.MonkeyPatch) -> None:
    with World() as world:
        world.interval(hot=20)
        with monkeypatch.context() as patch:
            patch.setattr(world.watch, "_pump", lambda now: [].pop())
            world.watch.pump()
        assert world.watch.status().state == "stopped"
        memory = world.cache._store.memory
        assert not memory.reads._hearers, "nobody is told of hits"
        world.use("hot", 5)
        world.watch.adopt(steady())
        world.watch.pump()
        for _ in range(4):
            world.interval(hot=20)
        assert world.watch.status().state == "watching"
        assert world.watch.expect(world.key("hot")) is not None
        world.watch.close()
        with pytest.raises(SettingsError, match="closed"):
            world.watch.adopt(steady())
        assert world.watch.status().state == "stopped"


def test_a_thread_that_stopped_starts_again_with_a_new_model() -> None:
    with Cache(memory="1MiB") as cache:
        watch = LifetimeWatch(cache, steady(), period_seconds=0.01)
        first = watch._thread
        assert first is not None
        with watch._lock:
            watch._end("tried")
        first.join(60)
        assert not first.is_alive()
        watch.adopt(steady())
        second = watch._thread
        assert second is not None
        assert second.is_alive()
    assert not second.is_alive()


def test_preloading_ends_where_it_pushes_out_what_will_be_hot_as_well(tmp_path: Path) -> None:
    with World(tmp_path, policy="lru") as world:
        names = [f"k{n}" for n in range(60)]
        for _ in range(4):
            world.interval(**dict.fromkeys(names, 8))
        for name in names:
            world.use(name)
        world.cache.flush()
        memory = world.cache._store.memory
        kept = [world.key(name) for name in names[:20]]
        held = sum(memory._charge(key) for key in kept)
        memory.drop([world.key(name) for name in names[20:]])
        memory.settings = replace(memory.settings, limit_bytes=held, largest_share=1.0)
        world.watch._bring()
        assert memory._bytes <= held
        assert 0 < world.watch.status().preloaded <= 32, "one batch, and no more"


def test_nothing_is_brought_where_the_cache_is_off_or_in_the_shadow(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        for _ in range(4):
            world.interval(hot=20)
        world.use("hot")
        world.cache.flush()
        world.cache._store.memory.drop([world.key("hot")])
        for mode in ("off", "shadow"):
            world.cache.switch(mode)
            world.watch._bring()
        assert world.cache.answers.resident(world.key("hot")).frame is None
        assert world.watch.status().preloaded == 0


def test_tenants_have_each_their_own() -> None:
    tenants = {"a": Tenant("critical"), "b": Tenant("batch")}
    with World(tenants=tenants) as world:
        keys = {
            name: world.cache.key("a cat", modality="text", signature="encoder-1", tenant=name) for name in ("a", "b")
        }
        for _ in range(5):
            for name, times in (("a", 20), ("b", 1)):
                for _ in range(times):
                    world.cache.get_or_compute(keys[name], lambda: "vector")
            world.interval()
        said = {name: (world.watch.expect(key) or (0, 0))[1] for name, key in keys.items()}
        assert said["a"] > 0.8
        assert 0 < said["b"] < 0.2


def test_the_live_list_shows_what_is_expected() -> None:
    with World() as world, HotKeys(world.cache, threaded=False, lifetimes=world.watch) as hot:
        for _ in range(5):
            world.interval(hot=20, cold=1)
            hot.pump()
        world.use("hot", 3)
        world.use("cold")
        hot.pump()
        shown = {
            one.key: (one.expected_hours, one.confidence) for one in hot.view().keys if one.expected_hours is not None
        }
        assert shown[world.key("hot").short] == pytest.approx((72.0, 0.9))
        assert shown[world.key("cold").short] == pytest.approx((24.0, 0.1))


def test_keys_and_tenants_that_keep_coming_are_bounded() -> None:
    counts = KeyCounts(steady(), 4096)
    counts.roll(0)
    for n in range(20_000):
        counts.use(make_key(n), f"tenant {n % 500}")
    counts.roll(1)
    assert len(counts) <= 4096
    assert len(counts._free) + len(counts) == len(counts._keys) <= 4096
    assert len(counts._tenants) <= 64


def test_each_histogram_has_its_threshold() -> None:
    base = {"heat": np.array([500, 500]), "text": np.array([500, 500])}
    now = {"heat": np.array([600, 400]), "text": np.array([900, 100])}
    found = look(now, base, {"heat": 0.01, "text": 1.0})
    assert (found.name, found.threshold, found.drifted) == ("heat", 0.01, True)
    assert look(now, base, {"heat": 1.0, "text": 1.0}).drifted is False
    assert look(now, base).name == "text"


def test_what_the_history_says_of_days_is_the_threshold_unless_one_is_named() -> None:
    baseline = {"heat": [0, 0, 0, 0, 1000, 0, 0, 0]}
    patient = replace(steady(baseline), tolerances={"heat": 50.0})
    uses = {f"other{n}": 1 for n in range(250)}
    states = []
    for drift in (None, 0.35):
        with World(made=patient, drift=drift) as world:
            for _ in range(3):
                world.interval(one=1)
            world.interval(**uses)
            states.append(world.watch.status().state)
    assert states == ["watching", "withheld"]


def test_files_that_fit_nowhere_are_told(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.numpy import save_file

    path = tmp_path / "life.safetensors"
    save(replace(steady(), tolerances={"heat": 0.1}), path)
    assert load(path).tolerances == {"heat": 0.1}
    with safe_open(path, framework="numpy") as file:
        facts = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    changes: tuple[tuple[dict[str, npt.NDArray[np.float32]], dict[str, str]], ...] = (
        ({"text_groups": np.array(1.0, np.float32)}, {}),
        ({"weights.dense.bias": np.full(2, np.nan, np.float32)}, {}),
        ({"weights.lstm.recurrent": np.zeros((4, 1 << 18), np.float32)}, {}),
        ({}, {"scale": facts["scale"].replace('"intervals": 28', '"intervals": 28.0')}),
        ({}, {"scale": facts["scale"].replace('"intervals": 28', '"intervals": 1e999')}),
        ({}, {"tolerances": '{"heat": -1}'}),
        ({}, {"tolerances": '{"heat": NaN}'}),
        ({}, {"version": "first"}),
    )
    for other, said in changes:
        save_file({**tensors, **other}, path, {**facts, **said})
        with pytest.raises(CorruptFrameError):
            load(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptFrameError):
        load(path)
    with pytest.raises(InvalidInputError, match="whole numbers"):
        LifeScale(day=2.0)  # type: ignore[arg-type]


def test_a_clock_that_stands_still_ends_no_interval() -> None:
    with World() as world:
        assert world.watch.pump() is False
        assert not world.watch.due()
        assert isinstance(world.clock, FakeClock)
