"""News of other processes' invalidations while this one stores: nothing outdated stays, nobody waits for himself."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mmcache import Cache, Key
from mmcache.model.event import Failed
from mmcache.model.frame import Frame
from mmcache.tiers.base import Deadline


def text(cache: Cache, name: str = "k") -> Key:
    return cache.key(name, modality="text", signature="v1")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Cache, Cache]]:
    with Cache(tmp_path) as one, Cache(tmp_path) as other:
        yield one, other


def test_a_replacement_that_another_process_invalidates_while_it_waits_does_not_lock_up(
    pair: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    key = text(one)
    one.put(key, "first")
    one.flush()
    go, entered = threading.Event(), threading.Event()
    behind: Any = one._store.lower[0]
    disk: Any = behind.inner
    real = disk.put

    def put(frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> Any:
        entered.set()
        assert go.wait(10)
        return real(frames, deadlines)

    monkeypatch.setattr(disk, "put", put)
    one.put(text(one, "2"), "being written")
    assert entered.wait(10)
    one.put(key, "second")  # it waits to be written, and then others are told
    other.invalidate(text(other))
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(one.peek(key)), daemon=True)
    reader.start()
    for _ in range(1000):  # what was waiting is dropped before the write that is on its way is waited for
        if key not in one._store.lower[0]._pending:  # type: ignore[attr-defined]
            break
        reader.join(0.01)
    go.set()
    reader.join(10)
    assert found == [None]
    one.flush()
    assert one.get(key) is None
    assert other.get(text(other)) is None


def test_an_invalidation_that_the_disk_cannot_follow_fails_no_hit(
    pair: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    key = text(one)
    one.put(key, "kept")
    one.flush()
    behind: Any = one._store.lower[0]

    def forget(*arguments: object) -> Any:
        raise OSError("the disk is gone")

    monkeypatch.setattr(behind, "forget", forget)
    other.invalidate(text(other, "2"))
    assert one.get(key) == "kept"
    assert "the disk is gone" in str([event for event in one.events.recent() if isinstance(event, Failed)])


def test_no_accepted_put_is_lost_to_the_news_of_an_earlier_invalidation(pair: tuple[Cache, Cache]) -> None:
    one, other = pair
    key = text(one)
    one.put(key, "old")
    one.flush()
    behind: Any = one._store.lower[0]
    behind._last = {key}  # written a moment ago: whoever read it must forget it
    one.invalidate(key)
    behind._last = set()
    one.put(key, "new")
    assert one.peek(key) == "new"
    one.flush()
    assert (one.get(key), other.get(text(other))) == ("new", "new")


def test_what_was_invalidated_between_two_tiers_reaches_no_reader(
    pair: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    key = text(one)
    text(other)
    behind: Any = one._store.lower[0]
    real = behind.put_then
    read = []

    def put_then(*arguments: Any) -> Any:
        monkeypatch.undo()
        one.invalidate(key)
        taken = real(*arguments)
        read.append(one.get(key))
        one.flush()
        read.append(other.get(key))
        return taken

    monkeypatch.setattr(behind, "put_then", put_then)
    assert one.get_or_compute(key, lambda: "outdated") == "outdated"
    assert read == [None, None]
    assert (one.get(key), other.get(key)) == (None, None)


@pytest.mark.parametrize("speaker", [0, 1])
def test_a_replacement_outlives_what_is_invalidated_while_others_are_told_of_it(
    pair: tuple[Cache, Cache], monkeypatch: pytest.MonkeyPatch, speaker: int
) -> None:
    """The news of it is for others, even where this process has to read what was said just before."""
    one, other = pair
    key, gone = text(one), text(one, "gone")
    for name in ("k", "gone"):
        one.put(text(one, name), "old")
    one.flush()
    assert (other.get(text(other)), other.get(text(other, "gone"))) == ("old", "old")
    ring: Any = one.below.broadcast
    real = ring.publish

    def publish(keys: Sequence[Key]) -> Any:
        monkeypatch.undo()
        view: Any = pair[speaker].below.broadcast
        view.publish([gone])  # told, and not yet heard here
        return real(keys)

    monkeypatch.setattr(ring, "publish", publish)
    one.put(key, "new")
    one.flush()
    assert ring.publish == real  # the turn came
    assert (one.get(key), other.get(text(other))) == ("new", "new")
    assert one.peek(gone) is None  # what was said in between is heard
