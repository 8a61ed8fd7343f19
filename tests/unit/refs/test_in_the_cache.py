"""References as the cache uses them: nothing stale is served, wherever a copy of it is and whatever left before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from mmcache import Cache, InvalidInputError
from mmcache.model.key import Key
from mmcache.refs.counted import CountedReferences
from mmcache.settings import DiskSettings, Settings
from mmcache.testing import FakeClock

TRACKERS = ["counted", "versioned", "soft"]
SECRET = bytes(32)


def key(cache: Cache, n: int) -> Key:
    return cache.key(np.full(4, n, np.float32), modality="tensor", signature="model-1")


def put(cache: Cache, n: int, size: int = 10, ttl: float | None = None) -> Key:
    cache.put(key(cache, n), np.full(size, n, np.float32), ttl=ttl)
    return key(cache, n)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.mark.parametrize("tracker", TRACKERS)
def test_an_answer_goes_though_what_it_was_made_from_ended_long_ago(tracker: str, clock: FakeClock) -> None:
    with Cache(memory="1MiB", references=tracker, clock=clock) as cache:
        picture, features, answer = put(cache, 1), put(cache, 2, ttl=5.0), put(cache, 3)
        cache.link(features, [picture])
        cache.link(answer, [features])
        clock.advance(6)
        cache.stats()
        assert cache.peek(features) is None
        assert cache.peek(answer) is not None
        cache.invalidate(picture)
        assert cache.peek(answer) is None


@pytest.mark.parametrize("tracker", TRACKERS)
def test_what_the_disk_evicted_goes_from_memory_too(tracker: str, tmp_path: Path) -> None:
    disk = DiskSettings(segment_bytes=1 << 20, index_map_bytes=1 << 20)
    with Cache(tmp_path, memory="64MiB", disk=4 << 20, references=tracker, settings=Settings(disk=disk)) as cache:
        picture, answer = put(cache, 1), put(cache, 2)
        cache.link(answer, [picture])
        cache.flush()
        for n in range(40):
            put(cache, 100 + n, 60_000)
            cache.flush()
        assert cache.peek(answer) is not None
        cache.invalidate(picture)
        assert cache.peek(answer) is None


@pytest.mark.parametrize("tracker", TRACKERS)
def test_an_invalidation_elsewhere_reaches_what_is_linked_here(tracker: str, tmp_path: Path) -> None:
    with (
        Cache(tmp_path, references=tracker, secret=SECRET) as here,
        Cache(tmp_path, references=tracker, secret=SECRET) as there,
    ):
        picture, answer = put(here, 1), put(here, 2)
        here.link(answer, [picture])
        here.flush()
        assert key(there, 1) == picture
        assert there.get(key(there, 2)) is not None
        there.invalidate(picture)
        assert here.peek(answer) is None
        assert here.get(answer) is None, "nor on the disk"
        assert there.get(answer) is None, "nor where the link is not known"


class Interrupted(CountedReferences):
    """Other threads do something right after the first `reach`, after the first `unlink` of an answer, and then before
    the next `reach`."""

    def __init__(self) -> None:
        super().__init__()
        self.reached: list[Callable[[], object]] = []
        self.unlinked: list[Callable[[], object]] = []
        self.returning: list[Callable[[], object]] = []

    def reach(self, keys: Iterable[Key]) -> set[Key]:
        while not self.unlinked and self.returning:
            self.returning.pop()()
        found = super().reach(keys)
        while self.reached:
            self.reached.pop()()
        return found

    def unlink(self, parent: Key) -> bool:
        was = super().unlink(parent)
        while was and self.unlinked:
            self.unlinked.pop()()
        return was


def test_who_links_while_a_block_is_on_its_way_out_goes_too() -> None:
    references = Interrupted()
    with Cache(memory="1MiB", references=references) as cache:
        picture, answer = put(cache, 1), key(cache, 2)

        def make() -> object:
            cache.link(answer, [picture])
            return cache.get(picture)

        references.reached.append(lambda: cache.get_or_compute(answer, make))
        cache.invalidate(picture)
        assert cache.peek(answer) is None
        assert not references.parents()


def test_who_is_made_anew_of_a_block_on_its_way_out_goes_again() -> None:
    references, read = Interrupted(), list[object]()
    with Cache(memory="1MiB", references=references) as cache:
        picture, answer = put(cache, 1), put(cache, 2)
        cache.link(answer, [picture])

        def link_and_read() -> None:
            cache.link(answer, [picture])
            read.append(cache.get(picture))

        references.unlinked.append(link_and_read)
        references.returning.append(lambda: cache.put(answer, read[0]))
        cache.invalidate(picture)
        assert cache.peek(answer) is None
        assert not references.parents()


def test_parents_that_were_never_stored_are_forgotten_in_the_end() -> None:
    references = CountedReferences(most_edges=100, most_gone=10)
    with Cache(memory="1MiB", references=references) as cache:
        picture = put(cache, 1)
        first = put(cache, 2)
        cache.link(first, [picture])
        for n in range(1000):
            cache.link(key(cache, 10 + n), [picture])
        assert len(references.parents()) <= 100
        assert cache.peek(picture) is not None
        assert cache.peek(first) is None, "whose links are forgotten is not served"


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_refused_parent_holds_nothing(tracker: str) -> None:
    with Cache(memory=64 << 10, references=tracker) as cache:
        picture, large = put(cache, 1), key(cache, 2)
        cache.link(large, [picture])
        cache.put(large, np.zeros(64 << 10, np.float32))
        assert cache.explain(picture).references == 0


def test_a_change_that_reaches_thousands_leaves_the_others_alone(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        picture, other, friend = put(cache, 1), put(cache, 2), put(cache, 3)
        cache.link(friend, [other])
        parents = [Key(picture.scope, n.to_bytes(16)) for n in range(6000)]
        for parent in parents:
            cache.link(parent, [picture])
        cache.invalidate(picture)
        assert cache.peek(picture) is None
        assert cache.peek(other) is not None
        assert cache.peek(friend) is not None
        assert cache.explain(other).references == 1


def test_a_link_names_keys() -> None:
    with Cache(memory="1MiB") as cache:
        answer, picture = (cache.key(name, modality="text", signature="v1") for name in ("answer", "picture"))
        cache.put(answer, 1)
        cache.link(answer, picture)  # one alone is as good as a list of it
        cache.invalidate(picture)
        assert cache.get(answer) is None
        for wrong in (("answer", [picture]), (answer, ["picture"])):
            with pytest.raises(InvalidInputError):
                cache.link(*wrong)
