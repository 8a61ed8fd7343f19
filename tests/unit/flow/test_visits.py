"""A prefetcher is told of each lookup once, by whichever way it came, and what it does over is stored as what it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache, visit
from mmcache.model.errors import InvalidInputError, SettingsError, UnknownPluginError
from mmcache.model.key import Key
from mmcache.repeat import UNKNOWN_BYTES
from mmcache.settings import Settings
from mmcache.visits import Again, session


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Key, Again | None]] = []
        self.state = "new"

    def start(self, cache: Any) -> None:
        assert cache.stats().hits == 0  # it is open
        self.state = "started"

    def visited(self, key: Key, again: Again | None = None) -> None:
        self.seen.append((session(), key, again))

    def close(self) -> None:
        self.state = "closed"

    @property
    def keys(self) -> list[Key]:
        return [key for _, key, _ in self.seen]


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def cache(listener: Listener) -> Iterator[Cache]:
    with Cache(prefetch=listener) as cache:
        yield cache


def length(text: str) -> Any:
    return np.full(4, len(text), np.float32)


def test_every_way_of_looking_is_told_once(cache: Cache, listener: Listener) -> None:
    encode = cache.wrap(length, modality="text", signature="1")
    a, b = encode.key("a"), encode.key("b")

    async def twins() -> None:
        await encode.a("a")
        await cache.a.get_or_compute(a, lambda: 1)
        await cache.a.get(a)

    ways: list[Callable[[], object]] = [
        lambda: encode("a"), lambda: encode("a"), lambda: encode.batch(["a", "b"]), lambda: cache.get(a),
        lambda: cache.get_or_compute(a, lambda: 1), lambda: cache.get(encode.key("never")),
        lambda: asyncio.run(twins()),
    ]  # fmt: skip
    expected = [[a], [a], [a, b], [a], [a], [encode.key("never")], [a, a, a]]
    for way, keys in zip(ways, expected, strict=True):
        listener.seen.clear()
        way()
        assert listener.keys == keys


def test_what_is_no_lookup_is_not_told(cache: Cache, listener: Listener) -> None:
    encode = cache.wrap(length, modality="text", signature="1")
    encode("a")
    listener.seen.clear()
    cache.peek(encode.key("a"))
    encode.explain("a")
    encode.options(bypass=True)("a")
    cache.switch("off")
    encode("a")
    assert listener.seen == []


def test_sessions_are_told_apart_in_threads_and_tasks(cache: Cache, listener: Listener) -> None:
    encode = cache.wrap(length, modality="text", signature="1")

    async def one(name: str) -> None:
        with visit(name):
            await encode.a(name)

    async def both() -> None:
        await asyncio.gather(one("x"), one("y"))

    asyncio.run(both())
    with visit("z"):
        thread = threading.Thread(target=encode, args=("t",))
        thread.start()
        thread.join()
        encode("z")
    named = {key: name for name, key, _ in listener.seen}
    assert [named[encode.key(text)] for text in "xyzt"] == ["x", "y", "z", ""]


def test_names_of_sessions(cache: Cache, listener: Listener) -> None:
    key = cache.key("a", modality="text", signature="1")
    names = ["", "a", "x" * 128, "x" * 10_000_000, "x" * 10_000_001, "\ud800" * 200]
    for name in names:
        with visit(name):
            cache.get(key)
    seen = [name for name, _, _ in listener.seen]
    assert seen[:3] == names[:3]
    assert len(set(seen)) == len(names)
    assert all(len(name) <= 128 for name in seen)
    wrong: list[Any] = [7, None, b"a", ["a"], {}]
    for other in wrong:
        with pytest.raises(InvalidInputError, match="str"), visit(other):
            raise AssertionError
    assert session() == ""


def test_doing_it_over_counts_as_nothing(cache: Cache, listener: Listener) -> None:
    encode = cache.wrap(length, modality="text", signature="1")
    encode("a")
    again, before = listener.seen[0][2], cache.stats()
    assert again is not None
    assert again(60.0) == 0  # it is there
    cache.invalidate(encode.key("a"))
    listener.seen.clear()
    assert again(60.0) > 0
    after = cache.stats()
    assert (after.hits, after.misses) == (before.hits, before.misses)
    assert listener.seen == []
    assert np.array_equal(cache.get(encode.key("a")), length("a"))


def test_a_changed_file_is_stored_as_what_it_is_now(cache: Cache, listener: Listener, tmp_path: Path) -> None:
    from PIL import Image

    def mean(picture: Any) -> Any:
        return np.asarray(picture, np.float32).mean(axis=(0, 1))

    path = tmp_path / "picture.png"
    Image.new("RGB", (8, 8), "red").save(path)
    encode = cache.wrap(mean, modality="image", signature="1")
    red = encode.key(path)
    encode(path)
    again = listener.seen[0][2]
    assert again is not None
    cache.invalidate(red)
    Image.new("RGB", (8, 8), "blue").save(path)
    again(None)
    assert cache.get(red) is None
    assert np.array_equal(cache.get(encode.key(path)), [0, 0, 255])


@pytest.mark.parametrize("modality", ["tensor", "image"])
def test_a_buffer_that_is_written_to_meanwhile(cache: Cache, listener: Listener, modality: str) -> None:
    """As a video's frames are, one after another into one array: what is stored is what its key says."""
    buffer, write = np.zeros((8, 8, 3), np.uint8), False

    def mean(given: Any) -> Any:
        if write:
            buffer[:] = 200  # the caller goes on
        return np.asarray(given, np.float32).mean(axis=(0, 1))

    encode = cache.wrap(mean, modality=modality, signature="1")
    black = encode.key(buffer)
    encode(buffer)
    again = listener.seen[0][2]
    assert again is not None
    cache.invalidate(black)
    write = True
    again(None)
    assert buffer.max() == 200
    assert np.array_equal(cache.get(black), [0, 0, 0])


def test_what_can_be_read_once_is_too_large_to_remember(cache: Cache, listener: Listener, tmp_path: Path) -> None:
    encode = cache.wrap(lambda text, extra: length(text), modality="text", signature="1")
    encode("a", 1)
    encode("b" * 1000, 1)
    sizes = [again.size for _, _, again in listener.seen if again is not None]
    assert sizes[0] < sizes[1] < UNKNOWN_BYTES
    from mmcache.repeat import Repeat

    with (tmp_path / "x").open("wb+") as handle:
        assert Repeat(encode, handle, None, (), {}).size == UNKNOWN_BYTES


def test_a_coroutine_is_not_done_over(cache: Cache, listener: Listener) -> None:
    async def encode(text: str) -> Any:
        return length(text)

    asyncio.run(cache.wrap(encode, modality="text", signature="1").a("a"))
    assert [again for _, _, again in listener.seen] == [None]


def test_while_slots_are_taken_nothing_is_computed_ahead(listener: Listener) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(text: str) -> Any:
        if text == "wait":
            begun.set()
            assert go.wait(60)
        return length(text)

    with Cache(prefetch=listener, settings=Settings(compute_slots=1)) as cache:
        encode = cache.wrap(slow, modality="text", signature="1")
        encode("a")
        again = listener.seen[0][2]
        assert again is not None
        cache.invalidate(encode.key("a"))
        thread = threading.Thread(target=encode, args=("wait",))
        thread.start()
        try:
            assert begun.wait(60)
            assert again(None) == 0
            assert cache.peek(encode.key("a")) is None
        finally:
            go.set()
            thread.join()
        assert again(None) > 0


def test_it_is_started_and_closed_with_the_cache(listener: Listener) -> None:
    with Cache(prefetch=listener) as cache:
        assert listener.state == "started"
        cache.close()
        assert listener.state == "closed"


def test_what_is_no_prefetcher_is_refused() -> None:
    with pytest.raises(UnknownPluginError, match="prefetch"):
        Cache(prefetch="nothing-of-that-name")
    with pytest.raises(SettingsError, match="Prefetcher"):
        Cache(prefetch=7)  # type: ignore[arg-type]
