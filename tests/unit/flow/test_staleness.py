"""Nothing old comes back: not from a queue, a slow reader, a computation under way, or another process's memory."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache, InvalidInputError, Key, Signature, UnversionedModelError
from mmcache.model.errors import SettingsError
from mmcache.model.event import MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.policies.lru import LRU
from mmcache.settings import MemorySettings
from mmcache.testing import FakeClock, WholeThaw
from mmcache.tiers.base import Deadline, Found
from mmcache.tiers.memory import MemoryTier


def text(cache: Cache, name: str = "k", **options: Any) -> Key:
    return cache.key(name, modality="text", **({"signature": "v1"} | options))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Cache, Cache]]:
    with Cache(tmp_path) as one, Cache(tmp_path) as other:
        yield one, other


class Held:
    """Lets the disk tier's writes wait."""

    def __init__(self, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.entered = threading.Event(), threading.Event()
        behind: Any = cache._store.lower[0]
        disk: Any = behind.inner
        real = disk.put

        def put(frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> Any:
            self.entered.set()
            assert self.go.wait(10)
            return real(frames, deadlines)

        monkeypatch.setattr(disk, "put", put)


def test_a_queued_write_does_not_bring_back_what_another_process_invalidated(
    pair: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    held = Held(other, monkeypatch)
    other.put(text(other), "being written")
    assert held.entered.wait(10)
    other.put(text(other, "2"), "queued")
    one.invalidate([text(one), text(one, "2")])
    held.go.set()
    other.flush()
    for cache in pair:
        assert cache.get(text(cache)) is None
        assert cache.get(text(cache, "2")) is None


def test_a_put_over_an_existing_block_reaches_the_memory_of_other_processes(pair: tuple[Cache, Cache]) -> None:
    one, other = pair
    one.put(text(one), "old")
    one.flush()
    assert other.get(text(other)) == "old"
    one.put(text(one), "new")
    one.flush()
    assert other.get(text(other)) == "new"
    assert one.peek(text(one)) == "new"


def test_no_accepted_put_is_lost_to_the_news_of_an_earlier_one(pair: tuple[Cache, Cache]) -> None:
    one, other = pair
    for n in range(60):
        for m in range(3):
            one.put(text(one), [n, m])
        one.flush()
        assert one.get(text(one)) == [n, 2]
        assert other.get(text(other)) == [n, 2]


class SlowTier(MemoryTier):
    """Answers what it read, but only when told to."""

    def __init__(self) -> None:
        super().__init__(MemorySettings(1 << 20), LRU(), WholeThaw)
        self.name = "slow"
        self.read, self.go = threading.Event(), threading.Event()
        self.slow = False

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        found = super().get(keys)
        if self.slow:
            self.read.set()
            assert self.go.wait(10)
        return found


@pytest.mark.parametrize("change", ["invalidate", "put"])
def test_a_slow_reader_does_not_promote_what_changed_meanwhile(change: str) -> None:
    tier = SlowTier()
    with Cache(lower=[tier]) as cache, ThreadPoolExecutor(1) as pool:
        key = text(cache)
        cache.put(key, "old")
        cache._store.memory.drop([key])
        tier.slow = True
        reading = pool.submit(cache.get, key)
        assert tier.read.wait(10)
        tier.slow = False
        if change == "put":
            cache.put(key, "new")
        else:
            cache.invalidate(key)
        tier.go.set()
        reading.result(10)
        assert cache.get(key) == ("new" if change == "put" else None)


def test_a_put_wins_over_a_computation_that_began_before_it() -> None:
    with Cache() as cache:
        key = text(cache)

        def compute() -> str:
            cache.put(key, "newer")
            return "older"

        assert cache.get_or_compute(key, compute) == "older"
        assert cache.get(key) == "newer"


def test_what_is_invalidated_inside_its_computation_can_be_computed_there_again(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        key = text(cache)

        def compute() -> str:
            cache.invalidate(key)
            return str(cache.get_or_compute(key, lambda: "inner"))

        assert cache.get_or_compute(key, compute) == "inner"


def test_a_check_keeps_the_ttl_and_never_stores_over_an_invalidation() -> None:
    clock = FakeClock()
    with Cache(verify_share=1.0, clock=clock) as cache:
        key, values = text(cache), iter([1, 2])
        cache.get_or_compute(key, lambda: next(values), ttl=5)
        assert cache.get_or_compute(key, lambda: next(values), ttl=5) == 2
        clock.advance(6)
        assert cache.get(key) is None

        cache.put(key, 1)

        def compute() -> int:
            cache.invalidate(key)
            return 2

        assert cache.get_or_compute(key, compute) == 2
        assert cache.get(key) is None
        unstorable = object()
        cache.put(key, 1)
        assert cache.get_or_compute(key, lambda: unstorable) is unstorable


@pytest.mark.parametrize("ttl", [float("nan"), -1, "5", True])
def test_a_ttl_is_checked_before_anything_is_computed(ttl: Any) -> None:
    with Cache() as cache:
        key = text(cache)
        with pytest.raises(SettingsError, match="ttl"):
            cache.get_or_compute(key, lambda: pytest.fail("computed"), ttl=ttl)
        with pytest.raises(SettingsError, match="ttl"):
            cache.put(key, 1, ttl=ttl)
        with pytest.raises(SettingsError, match="ttl"):
            cache.wrap(len, modality="text", signature="v1", ttl=ttl)


def test_functions_of_one_name_or_one_model_are_told_apart() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    module: Any = torch.nn.Module

    class Tower(module):  # type: ignore[misc]
        def pooled(self, words: str) -> str:
            return f"pooled {words}"

        def patches(self, words: str) -> str:
            return f"patches {words}"

    def layer_of(words: str, layer: int = 0) -> str:
        return f"{layer} {words}"

    def closed(layer: int) -> Any:
        return lambda words: f"{layer} {words}"

    tower = Tower()
    with Cache() as cache:
        wrap = functools.partial(cache.wrap, modality="text", guard=False)
        encoders = [
            wrap(tower.pooled, signature=Signature.of(tower)),
            wrap(tower.patches, signature=Signature.of(tower)),
            wrap(functools.partial(layer_of, layer=1), signature="v1"),
            wrap(functools.partial(layer_of, layer=2), signature="v1"),
            wrap(closed(3), signature="v1"),
            wrap(closed(4), signature="v1"),
            *(wrap(f, signature="v1") for f in (lambda w: w + "a", lambda w: w + "b", lambda w, end="c": w + end)),
        ]
        assert len({encode("x") for encode in encoders}) == len(encoders)
        assert cache.stats().computes == len(encoders)


def test_a_closure_s_own_state_is_not_its_identity() -> None:
    seen: list[str] = []

    def encode(words: str) -> str:
        seen.append(words)
        return words.upper()

    with Cache() as cache:
        for _ in range(2):
            assert cache.wrap(encode, modality="text", signature="v1")("x") == "X"
    assert seen == ["x"]


def test_bad_arguments_say_what_to_pass() -> None:
    with Cache() as cache:
        for realm in ({"tenant": ""}, {"namespace": ""}, {"tenant": 5}):
            with pytest.raises(InvalidInputError, match="string that is not empty"):
                text(cache, **realm)
        for wrong in ("x", b"x" * 48, 5):
            with pytest.raises(InvalidInputError, match=r"cache\.key"):
                cache.get(wrong)
            with pytest.raises(InvalidInputError, match=r"cache\.key"):
                cache.put(wrong, 1)  # type: ignore[arg-type]
            with pytest.raises(InvalidInputError, match=r"cache\.key"):
                cache.invalidate([wrong])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="tll"):
            cache.wrap(len, modality="text", signature="v1", tll=5)  # type: ignore[call-overload]
        with pytest.raises(SettingsError, match="modality"):
            cache.wrap(len, modality="img", signature="v1")
        with pytest.raises(UnversionedModelError, match="version"):
            cache.wrap(len, modality="text", signature="")
        assert cache.get(text(cache), default=7) == 7
    with pytest.raises(SettingsError):
        Cache(secret=b"")


def test_a_coroutine_function_is_awaited_or_refused_and_a_method_is_bound_first() -> None:
    async def embed(words: str) -> str:
        return words

    class Model:
        pass

    with Cache() as cache:
        encode = cache.wrap(embed, modality="text", signature="v1")
        with pytest.raises(TypeError, match="await"):
            encode("x")
        Model.encode = cache.wrap(len, modality="text", signature="v1")  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="bound method"):
            Model().encode("x")  # type: ignore[attr-defined]


async def test_stop_iteration_reaches_the_caller_as_an_error() -> None:
    def stops() -> None:
        raise StopIteration

    with Cache() as cache:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await cache.a.get_or_compute(text(cache), stops)
        with pytest.raises(StopIteration):
            cache.get_or_compute(text(cache), stops)


class Angry:
    """An admission plug-in that fails."""

    def judge(self, key: Key, facts: Any, now: float) -> Any:
        raise KeyError("no such tenant")


def test_a_failing_plug_in_does_not_fail_the_request() -> None:
    with Cache(admission=Angry()) as cache:
        assert cache.get_or_compute(text(cache), lambda: "value") == "value"
        assert "no such tenant" in cache.events.recent()[-1].detail  # type: ignore[union-attr]


def test_a_writer_that_meets_any_error_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cache(tmp_path) as cache:
        behind: Any = cache._store.lower[0]
        disk: Any = behind.inner
        real = disk.put
        fate: list[BaseException] = [MemoryError("no room")]

        def put(frames: Any, deadlines: Any) -> Any:
            if fate:
                raise fate.pop()
            return real(frames, deadlines)

        monkeypatch.setattr(disk, "put", put)
        cache.put(text(cache, "lost"), 1)
        cache.flush()
        cache.put(text(cache, "kept"), 2)
        cache.flush()
        assert {held.key for held in disk.scan()} == {text(cache, "kept")}


def test_many_refusals_do_not_make_a_tier_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmcache.tiers.owed.CAPACITY", 10)
    tier = MemoryTier(MemorySettings(40_000), LRU(), WholeThaw)
    tier.name = "small"
    with Cache(lower=[tier]) as cache:
        for n in range(20):
            cache.put(text(cache, f"large {n}"), np.zeros(30_000, np.uint8))
        assert sum(e.reason is RefuseReason.TOO_LARGE for e in cache.events.recent() if hasattr(e, "reason")) == 20
        cache.put(text(cache), "small")
        cache._store.memory.drop([text(cache)])
        assert cache.get(text(cache)) == "small"


def test_explain_knows_what_has_ended(tmp_path: Path) -> None:
    clock = FakeClock()
    with Cache(clock=clock) as cache:
        cache.put(text(cache), 1, ttl=5)
        clock.advance(6)
        assert cache.explain(text(cache)).tiers[0].reason == "expired"


def test_each_lookup_is_counted_once() -> None:
    with Cache(verify_share=1.0) as cache:
        for _ in range(11):
            cache.get_or_compute(text(cache), lambda: 1)
        stats = cache.stats()
        assert (stats.hits, stats.misses, stats.checked) == (10, 1, 10)


def test_a_closed_cache_serves_nothing_through_its_encoders() -> None:
    cache = Cache()
    encode = cache.wrap(len, modality="text", signature="v1")
    encode("x")
    cache.close()
    with pytest.raises(Exception, match="closed"):
        encode("x")
