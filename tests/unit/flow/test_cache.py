"""The whole flow through `Cache`, in memory and on a real disk."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache, InvalidInputError, Key, MissReason, Signature, UnsupportedValueError
from mmcache.model.errors import SettingsError, TierClosedError
from mmcache.model.event import Differed, Evicted, Invalidated, Missed, Refused, RefuseReason
from mmcache.testing import FakeClock


@pytest.fixture(params=["memory", "disk"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cache]:
    with Cache(tmp_path / "c" if request.param == "disk" else None, memory="64MiB") as made:
        yield made


def text(cache: Cache, name: str, **options: Any) -> Key:
    return cache.key(name, modality="text", **({"signature": "v1"} | options))


def test_what_was_put_comes_back_equal_and_read_only(cache: Cache) -> None:
    value: dict[str, Any] = {
        "features": np.arange(6, dtype=np.float16).reshape(2, 3),
        "grid": (1, 2, 3),
        "name": "dino",
    }
    key = text(cache, "a")
    assert cache.put(key, value, cost=0.5)
    value["features"][0, 0] = 99  # the caller's buffer is its own
    found = cache.get(key)
    assert found["features"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["features"].dtype == np.float16
    assert (found["grid"], found["name"]) == ((1, 2, 3), "dino")
    with pytest.raises(ValueError, match="read-only"):
        found["features"][0, 0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        found["features"].flags.writeable = True
    found["name"] = "changed"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of numpy 2.5
        found["features"].shape = (6,)
    assert cache.get(key)["name"] == "dino"
    assert cache.get(key)["features"].shape == (2, 3)


def test_none_is_a_value(cache: Cache) -> None:
    key = text(cache, "none")
    assert cache.get(key, "default") == "default"
    cache.put(key, None)
    assert cache.get(key, "default") is None


def test_a_restart_serves_from_disk(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(257, 384)).astype(np.float32)
    with Cache(tmp_path) as first:
        key = text(first, "a")
        first.get_or_compute(key, lambda: features)
    with Cache(tmp_path) as second:
        key = text(second, "a")
        found = second.get_or_compute(key, lambda: pytest.fail("computed again"))
        assert np.array_equal(found, features)
        assert second.stats().hits_by_tier["disk"] == 1
        assert found.ctypes.data % 64 == 0


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "other"},
        {"namespace": "other"},
        {"signature": "v2"},
        {"signature": Signature(model_version="v1", dtype="float16")},
    ],
)
def test_nothing_is_shared_across_tenants_namespaces_and_signatures(cache: Cache, other: dict[str, Any]) -> None:
    cache.put(text(cache, "a"), "mine")
    cache.flush()
    assert cache.get(text(cache, "a", **other)) is None


def test_equal_bytes_of_different_modalities_never_share(cache: Cache) -> None:
    array = np.zeros((2, 2, 3), np.uint8)
    cache.put(cache.key(array, modality="image", signature="v1"), "image")
    assert cache.get(cache.key(array, modality="tensor", signature="v1")) is None


def test_a_lossless_reader_never_gets_a_lossy_block(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    with Cache(tmp_path, codec="int4") as lossy:
        lossy.put(text(lossy, "a"), features)
        assert not np.array_equal(lossy.get(text(lossy, "a")), features)
    with Cache(tmp_path, codec="raw") as exact:
        assert exact.get(text(exact, "a")) is None


def test_with_a_lossy_chain_the_first_caller_gets_what_later_callers_get(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    with Cache(tmp_path, codec="int4") as cache:
        first = cache.get_or_compute(text(cache, "a"), lambda: features)
        assert np.array_equal(first, cache.get(text(cache, "a")))
        assert np.abs(first - features).max() <= np.abs(features).max() / 7


def test_ttl_ends_a_block_in_every_tier(tmp_path: Path) -> None:
    clock = FakeClock()
    with Cache(tmp_path, ttl=10, clock=clock) as cache:
        short, default = text(cache, "short"), text(cache, "default")
        cache.put(short, 1, ttl=5)
        cache.put(default, 2)
        cache.flush()
        clock.advance(6)
        assert cache.get(short) is None
        assert cache.get(default) == 2
        clock.advance(6)
        assert cache.get(default) is None
        assert cache.stats().miss_reasons == {"expired": 2}


def test_miss_reasons_are_named_and_sum_to_the_misses(tmp_path: Path) -> None:
    with Cache(tmp_path, memory="100KiB", disk=None) as cache:
        cache.get(text(cache, "never"))
        for n in range(50):
            cache.put(text(cache, f"n{n}"), np.zeros(2000, np.uint8))
        assert cache.get(text(cache, "n0")) is None
        assert cache.get(text(cache, "n49", signature="v2")) is None
        cache.get_or_compute(text(cache, "x"), lambda: 1, bypass=True)
        stats = cache.stats()
        assert stats.miss_reasons == {"absent": 1, "evicted": 1, "signature": 1, "bypassed": 1}
        assert stats.misses == sum(stats.miss_reasons.values())
        assert any(isinstance(event, Evicted) for event in cache.events.recent())


def test_the_memory_limit_holds_at_every_moment(tmp_path: Path) -> None:
    with Cache(memory="300KiB") as cache:
        for n in range(200):
            cache.put(text(cache, str(n)), np.zeros(1000 + 97 * n, np.uint8))
            cache.check_integrity()
            assert cache.stats().tiers["memory"].bytes <= 300 * 1024


def test_a_block_that_would_evict_everything_is_refused_but_returned() -> None:
    with Cache(memory="100KiB") as cache:
        key = text(cache, "big")
        assert cache.get_or_compute(key, lambda: np.zeros(90_000, np.uint8)).size == 90_000
        assert not cache.put(key, np.zeros(90_000, np.uint8))
        refused = [e for e in cache.events.recent() if isinstance(e, Refused)]
        assert refused[-1].reason is RefuseReason.TOO_LARGE


def test_pinned_blocks_stay_and_pins_are_capped() -> None:
    with Cache(memory="100KiB") as cache:
        pinned, late = text(cache, "pinned"), text(cache, "late")
        cache.put(pinned, np.zeros(40_000, np.uint8))
        with cache.pin(pinned) as held:
            assert held
            cache.put(late, np.zeros(40_000, np.uint8))
            with cache.pin(late) as too_much:
                assert not too_much
            for n in range(20):
                cache.put(text(cache, str(n)), np.zeros(20_000, np.uint8))
            assert cache.peek(pinned) is not None
            cache.check_integrity()
        with cache.pin(text(cache, "absent")) as held:
            assert not held


def test_invalidate_drops_what_depends_on_it(cache: Cache) -> None:
    picture, answer, other = text(cache, "picture"), text(cache, "answer"), text(cache, "other")
    for key in (picture, answer, other):
        cache.put(key, "value")
    cache.link(answer, [picture])
    assert cache.invalidate(picture) == 2
    assert cache.get(answer) is None
    assert cache.get(other) == "value"
    assert {e.key for e in cache.events.recent() if isinstance(e, Invalidated)} == {picture, answer}


def test_invalidation_reaches_the_memory_of_another_cache_on_the_folder(tmp_path: Path) -> None:
    with Cache(tmp_path) as one, Cache(tmp_path) as other:
        key = text(one, "a")
        one.put(key, "old")
        one.flush()
        assert other.get(key) == "old"
        one.invalidate(key)
        key = text(other, "a")
        assert other.peek(key) is None
        assert other.get(key) is None
        other.put(key, "new")
        assert other.get(key) == "new"


def test_a_value_that_cannot_be_stored_is_returned_and_said_so(cache: Cache) -> None:
    value, key = object(), text(cache, "a")
    assert cache.get_or_compute(key, lambda: value) is value
    assert cache.events.recent()[-1].reason is RefuseReason.UNSUPPORTED  # type: ignore[union-attr]
    with pytest.raises(UnsupportedValueError):
        cache.put(key, value)


def test_a_foreign_key_is_refused(cache: Cache) -> None:
    with pytest.raises(InvalidInputError, match=r"cache\.key"):
        cache.put(Key(bytes(16), bytes(16)), 1)


def test_shadow_mode_always_computes_compares_and_serves_nothing_stored() -> None:
    with Cache(mode="shadow") as cache:
        key, values = text(cache, "a"), iter([np.zeros(3), np.zeros(3), np.ones(3)])
        for expected in (0.0, 0.0, 1.0):
            assert cache.get_or_compute(key, lambda: next(values))[0] == expected
        assert cache.peek(key) is None
        stats = cache.stats()
        assert (stats.computes, stats.checked, stats.differed) == (3, 2, 1)
        differed = [e for e in cache.events.recent() if isinstance(e, Differed)]
        assert differed[0].largest_difference == 1.0


def test_sampled_verification_recomputes_exact_hits() -> None:
    with Cache(verify_share=1.0) as cache:
        key = text(cache, "a")
        for _ in range(3):
            assert cache.get_or_compute(key, lambda: "same") == "same"
        assert (cache.stats().checked, cache.stats().differed) == (2, 0)


def test_the_kill_switch_serves_and_stores_nothing(cache: Cache) -> None:
    key = text(cache, "a")
    cache.put(key, "old")
    cache.switch("off")
    assert cache.get(key) is None
    assert cache.get_or_compute(key, lambda: "new") == "new"
    assert not cache.put(key, "newer")
    cache.switch("on")
    assert cache.get(key) == "old"


def test_the_environment_kill_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMCACHE_DISABLED", "1")
    with Cache() as cache:
        assert cache.mode == "off"


def test_explain_changes_nothing_and_names_every_part(cache: Cache) -> None:
    key = text(cache, "a", tenant="acme")
    assert cache.explain(key).verdict == "miss (absent)"
    cache.put(key, np.zeros(4), cost=0.25)
    cache.flush()
    before = cache.stats()
    found = cache.explain(key)
    assert found.verdict == "hit (memory)"
    assert (found.tenant, found.modality, found.signature["model_version"]) == ("acme", "text", "v1")
    assert found.tiers[0].cost_seconds == 0.25
    assert "acme" in str(found)
    assert cache.explain("a", modality="text", signature="v1", tenant="acme").key == key
    assert found.to_dict()["key"] == str(key)
    after = cache.stats()
    assert (after.hits, after.misses, after.by_modality) == (before.hits, before.misses, before.by_modality)


def test_feeds_pull_events_and_stats_count_exactly(cache: Cache) -> None:
    with cache.events.feed() as feed:
        key = text(cache, "a")
        cache.get_or_compute(key, lambda: "v")
        kinds = [type(event).__name__ for event in feed.drain()]
        assert kinds[0] == "Missed"
        assert "Stored" in kinds
        for _ in range(7):
            cache.get(key)
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.computes) == (7, 1, 1)
    assert stats.hit_ratio == 7 / 8


async def test_async_twins(cache: Cache) -> None:
    key = text(cache, "a")
    assert await cache.a.get(key, 5) == 5
    assert await cache.a.put(key, "v")
    assert await cache.a.get(key) == "v"
    assert cache.a.peek(key) == "v"
    assert await cache.a.invalidate(key) == 1
    assert await cache.a.get_or_compute(key, lambda: "computed") == "computed"
    await cache.a.flush()


def test_a_closed_cache_says_so(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = text(cache, "a")
    cache.close()
    cache.close()
    with pytest.raises(TierClosedError, match="open a new"):
        cache.get(key)
    with pytest.raises(TierClosedError):
        cache.put(key, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "perhaps"}, "mode"),
        ({"verify_share": 2.0}, "verify_share"),
        ({"memory": "lots"}, "2GiB"),
        ({"policy": "clairvoyant"}, "clairvoyant"),
    ],
)
def test_settings_that_cannot_be_used_say_what_to_write(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Cache(**options)


def test_a_miss_event_has_its_reason(cache: Cache) -> None:
    cache.get(text(cache, "absent"))
    assert cache.events.recent()[-1] == Missed(text(cache, "absent"), MissReason.ABSENT)
