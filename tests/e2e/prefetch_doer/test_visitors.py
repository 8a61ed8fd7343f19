"""Visitors over real pictures, with real threads: the next page is there before it is asked for, and nobody waits.

No time is asserted: what must come is waited for patiently, and order is proved by gates that models stand at.
"""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.patience import PATIENCE, until

from mmcache import Cache, visit
from mmcache.lab import data
from mmcache.model.errors import AssetError, SettingsError
from mmcache.model.event import Missed, Prefetched
from mmcache.niceness import check_nice
from mmcache.prefetch import Cancelled, cancelled
from mmcache.prefetch.behaviour import BehaviourPrefetch, BehaviourSettings

EAGER = BehaviourSettings(
    latency_seconds=0.0, misses_a_minute=1.0, computations_per_second=1000.0, stale_seconds=600.0, lookback=1, hops=1
)


@pytest.fixture(scope="module")
def pictures() -> list[Path]:
    try:
        return list(data.shapes()[:8])
    except AssetError as error:
        pytest.skip(str(error))


def thumbnail(picture: Image.Image) -> Any:
    """Means of 8 × 8 pixels, float32 [8, 8, 3]."""
    return np.asarray(picture.convert("RGB").resize((8, 8), Image.Resampling.BOX), np.float32)


class Shop:
    """A cache that is prefetched into, and a model that says who computes what, and may be held up."""

    def __init__(self, cache: Cache, prefetch: BehaviourPrefetch, model: Callable[..., Any] = thumbnail) -> None:
        self.cache, self.prefetch, self.inner = cache, prefetch, model
        self.log: list[tuple[bool, str]] = []
        """Speculative or not; what."""
        self.during: Callable[[bool], None] = lambda speculative: None
        self.encode = cache.wrap(self.model, modality="image", signature="8x8", guard=False)

    def model(self, picture: Image.Image) -> Any:
        speculative = threading.current_thread().name == "mmcache-prefetch-work"
        self.log.append((speculative, "begins"))
        try:
            self.during(speculative)
            return self.inner(picture)
        finally:
            self.log.append((speculative, "ends"))

    def learn(self, pictures: list[Path], times: int = 3) -> None:
        """Visitors go through the pictures in order. Then all is forgotten, and it is quiet."""
        for number in range(times):
            for picture in pictures:
                with visit(f"before {number}"):
                    self.encode(picture)
            self.quiet(pictures)
        self.log.clear()

    def quiet(self, pictures: list[Path]) -> None:
        def still() -> bool:
            status = self.prefetch.status()
            return not (status.queued or status.under_way or self.prefetch._visits or status.state != "idle")

        until(still)
        self.cache.invalidate([self.encode.key(picture) for picture in pictures])
        until(still)

    def there(self, picture: Path) -> bool:
        return self.cache.peek(self.encode.key(picture)) is not None


@pytest.fixture
def shop() -> Iterator[Shop]:
    prefetch = BehaviourPrefetch(EAGER)
    with Cache(prefetch=prefetch) as cache:
        yield Shop(cache, prefetch)


def follow(shop: Shop, pictures: list[Path]) -> None:
    shop.learn(pictures)
    missed = len([event for event in shop.cache.events.recent() if isinstance(event, Missed)])
    for number, picture in enumerate(pictures):
        with visit("new"):
            output = shop.encode(picture)
        assert np.array_equal(output, shop.inner(Image.open(picture).convert("RGB")))
        if number + 1 < len(pictures):
            until(lambda: shop.there(pictures[number + 1]))  # noqa: B023 - asked at once
    events = shop.cache.events.recent()
    assert len([event for event in events if isinstance(event, Missed)]) == missed + 1
    assert len([event for event in events if isinstance(event, Prefetched)]) >= len(pictures) - 1
    assert len([one for one in shop.log if one == (False, "begins")]) == 1
    until(lambda: not shop.prefetch._visits)
    assert shop.prefetch.status().used >= len(pictures) - 1


def test_who_follows_the_others_finds_the_next_page(shop: Shop, pictures: list[Path]) -> None:
    follow(shop, pictures[:5])


@pytest.mark.slow
def test_so_with_a_real_encoder(pictures: list[Path]) -> None:
    from mmcache.lab.models import ImageEncoder

    try:
        encoder = ImageEncoder(threads=1)
    except (AssetError, ImportError) as error:
        pytest.skip(str(error))
    prefetch = BehaviourPrefetch(EAGER)
    with Cache(prefetch=prefetch) as cache:
        follow(Shop(cache, prefetch, encoder.encode), pictures[:5])


def test_by_its_name(pictures: list[Path]) -> None:
    with Cache(prefetch="behaviour") as cache:
        prefetch = cache.prefetcher
        assert isinstance(prefetch, BehaviourPrefetch)
        encode = cache.wrap(thumbnail, modality="image", signature="8x8", guard=False)
        for picture in pictures:
            encode(picture)
        until(lambda: prefetch.status().visits == len(pictures))
        assert prefetch.status().edges > 0


def test_a_real_request_does_not_wait_for_what_nobody_waits_for(shop: Shop, pictures: list[Path]) -> None:
    *walk, other = pictures[:4]
    shop.learn(walk)
    entered, release = threading.Event(), threading.Event()

    def during(speculative: bool) -> None:
        if speculative:  # a model that does not ask whether it should stop
            entered.set()
            assert release.wait(PATIENCE)

    shop.during = during
    try:
        with visit("new"):
            shop.encode(walk[0])
        assert entered.wait(PATIENCE)
        shop.encode(other)
        shop.log.append((False, "is answered"))
    finally:
        release.set()
    until(lambda: (True, "ends") in shop.log)
    real = [(False, "begins"), (False, "ends")]
    assert shop.log[:6] == [*real, (True, "begins"), *real, (False, "is answered")]


def test_what_asks_is_told_to_stop_while_a_real_request_computes(shop: Shop, pictures: list[Path]) -> None:
    *walk, other = pictures[:4]
    shop.learn(walk)
    entered, stopped = threading.Event(), threading.Event()

    def during(speculative: bool) -> None:
        if speculative:
            entered.set()
            for _ in range(int(PATIENCE * 200)):
                if cancelled():
                    stopped.set()
                    raise Cancelled
                stopped.wait(0.005)
        elif entered.is_set():
            assert stopped.wait(PATIENCE)  # it computes until the other has stopped

    shop.during = during
    with visit("new"):
        shop.encode(walk[0])
    assert entered.wait(PATIENCE)
    shop.encode(other)
    assert stopped.is_set()
    until(lambda: shop.prefetch.status().cancelled == 1)
    assert shop.prefetch.status().failed == 0
    stopped.clear()
    shop.during = lambda speculative: None
    until(lambda: shop.there(walk[1]))  # begun again when nobody waits


def test_who_asks_for_what_is_under_way_gets_it_and_it_goes_on(shop: Shop, pictures: list[Path]) -> None:
    *walk, other = pictures[:4]
    shop.learn(walk)
    entered, release, answers = threading.Event(), threading.Event(), []
    told: list[bool] = []

    def during(speculative: bool) -> None:
        if speculative and not entered.is_set():
            entered.set()
            assert release.wait(PATIENCE)
            told.append(cancelled())

    shop.during = during
    with visit("new"):
        shop.encode(walk[0])
    assert entered.wait(PATIENCE)

    def ask() -> None:
        with visit("new"):
            answers.append(shop.encode(walk[1]))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        until(lambda: any(work.joined for work in shop.prefetch._running.values()))
        shop.encode(other)  # somebody else needs the machine meanwhile
    finally:
        release.set()
        asking.join()
    assert told == [False]
    assert np.array_equal(answers[0], thumbnail(Image.open(walk[1])))
    assert len([one for one in shop.log if one == (False, "begins")]) == 2  # of the first page, and of the other
    until(lambda: shop.prefetch.status().used >= 1)
    assert shop.prefetch.status().cancelled == 0


def test_whoever_joined_one_that_gives_up_computes_it(shop: Shop, pictures: list[Path]) -> None:
    walk = pictures[:3]
    shop.learn(walk)
    entered, release = threading.Event(), threading.Event()
    answers: list[Any] = []

    def during(speculative: bool) -> None:
        if speculative and not entered.is_set():
            entered.set()
            assert release.wait(PATIENCE)
            raise Cancelled  # it was not asked to, and does all the same

    shop.during = during
    with visit("new"):
        shop.encode(walk[0])
    assert entered.wait(PATIENCE)
    asking = threading.Thread(target=lambda: answers.append(shop.encode(walk[1])))
    asking.start()
    try:
        until(lambda: any(work.joined for work in shop.prefetch._running.values()))
    finally:
        release.set()
        asking.join()
    assert np.array_equal(answers[0], thumbnail(Image.open(walk[1])))


def test_speculative_work_gives_way_until_somebody_waits_for_it(shop: Shop, pictures: list[Path]) -> None:
    try:
        check_nice(10)
    except SettingsError as error:
        pytest.skip(str(error))
    walk = pictures[:3]
    shop.learn(walk)
    usual = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    entered, raised, seen = threading.Event(), threading.Event(), []

    def during(speculative: bool) -> None:
        if speculative and not entered.is_set():
            mine = threading.get_native_id()
            seen.append(os.getpriority(os.PRIO_PROCESS, mine))
            entered.set()
            for _ in range(int(PATIENCE * 200)):
                if os.getpriority(os.PRIO_PROCESS, mine) == usual:
                    return
                raised.wait(0.005)
            seen.append(-1)

    shop.during = during
    with visit("new"):
        shop.encode(walk[0])
    assert entered.wait(PATIENCE)
    with visit("new"):
        shop.encode(walk[1])
    assert seen == [max(10, usual)]


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("mmcache-prefetch")}


def started(pictures: list[Path]) -> Shop:
    prefetch = BehaviourPrefetch(EAGER)
    shop = Shop(Cache(prefetch=prefetch), prefetch)
    shop.learn(pictures, 2)
    return shop


def test_its_threads_end_with_it(pictures: list[Path]) -> None:
    before = threads()
    shop = started(pictures[:3])
    assert threads() > before
    shop.cache.close()
    shop.cache.close()
    until(lambda: threads() <= before)
    assert shop.prefetch.status().state == "stopped"
    shop.prefetch.visited(shop.encode.key(pictures[0]))  # somebody who had the method


def test_its_threads_end_when_it_is_forgotten(pictures: list[Path]) -> None:
    before = threads()
    gone = weakref.ref(started(pictures[:3]).prefetch)
    until(lambda: gc.collect() >= 0 and gone() is None)
    until(lambda: threads() <= before)
