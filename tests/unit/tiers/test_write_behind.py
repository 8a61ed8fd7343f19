"""Write-behind: pending writes are visible, drops win, the backlog is bounded, nothing accepted is lost on close."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pytest

from mmcache.model.errors import TierClosedError, TierError
from mmcache.model.event import Event, Failed, MissReason, RefuseReason
from mmcache.model.frame import Frame, FrameHeader
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline, Found, Held, TierStats
from mmcache.tiers.write_behind import WriteBehind


class Gate:
    """A tier whose writes wait until they are let through."""

    name = "gate"

    def __init__(self) -> None:
        self.held: dict[Key, Frame] = {}
        self.open = threading.Event()
        self.entered = threading.Event()
        self.broken = False
        self.closed = False

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        return [Found(self.held[key], None) if key in self.held else MissReason.ABSENT for key in keys]

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        self.entered.set()
        assert self.open.wait(10)
        if self.broken:
            raise TierError("gone")
        self.held.update({frame.key: frame for frame in frames})
        return [None] * len(frames)

    def drop(self, keys: Iterable[Key]) -> int:
        return sum([self.held.pop(key, None) is not None for key in keys])

    def scan(self) -> Iterator[Held]:
        return iter(())

    def flush(self) -> None: ...

    def stats(self) -> TierStats:
        return TierStats(len(self.held), 0, None, {})

    def close(self) -> None:
        self.closed = True


def frame(n: int, payload: bytes = b"x" * 100) -> Frame:
    key = Key(bytes([n]) * 16, bytes(16))
    header = FrameHeader(bytes(key), bytes(16), "text", "t", "n", "m", 0.0, 0.0, msgspec.Raw(b"\xc0"), ())
    return Frame.seal(header, payload)


def behind(inner: Gate, backlog: int = 10_000) -> tuple[WriteBehind, list[Event]]:
    events: list[Event] = []
    return WriteBehind(inner, backlog_bytes=backlog, emit=events.append), events


def test_pending_writes_are_visible_and_written_on_close() -> None:
    inner = Gate()
    tier, _ = behind(inner)
    one, two = frame(1), frame(2)
    tier.put([one], [1e12])
    assert inner.entered.wait(10)
    tier.put([two], [None])
    found = tier.get([two.key, one.key, frame(3).key])
    assert found == [Found(two, None, verified=True), Found(one, 1e12, verified=True), MissReason.ABSENT]
    inner.open.set()
    tier.close()
    assert set(inner.held) == {one.key, two.key}
    assert inner.closed
    with pytest.raises(TierClosedError):
        tier.put([one], [None])


def test_a_drop_wins_over_the_write_it_races_with() -> None:
    inner = Gate()
    tier, _ = behind(inner)
    one, two = frame(1), frame(2)
    tier.put([one], [None])
    assert inner.entered.wait(10)
    tier.put([two], [None])
    dropping = threading.Thread(target=tier.drop, args=([one.key, two.key],))
    dropping.start()
    inner.open.set()
    dropping.join(10)
    tier.close()
    assert inner.held == {}


def test_beyond_the_backlog_puts_are_refused_and_the_older_value_goes_too() -> None:
    inner = Gate()
    tier, _ = behind(inner, backlog=250)
    inner.open.set()
    tier.put([frame(1, b"old")], [None])
    tier.flush()
    inner.open.clear()
    inner.entered.clear()
    tier.put([frame(9)], [None])
    assert inner.entered.wait(10)
    assert tier.put([frame(2), frame(3)], [None, None]) == [None, None]
    refused: list[RefuseReason | None] = []
    putting = threading.Thread(target=lambda: refused.extend(tier.put([frame(1)], [None])))
    putting.start()
    inner.open.set()
    putting.join(10)
    tier.close()
    assert refused == [RefuseReason.BACKLOG]
    assert frame(1).key not in inner.held
    assert tier.refused == 1


def test_done_is_called_once_for_written_replaced_and_failed_writes() -> None:
    inner = Gate()
    tier, events = behind(inner)
    calls: list[str] = []
    tier.put_then(frame(1), None, lambda: calls.append("written"))
    assert inner.entered.wait(10)
    tier.put_then(frame(2), None, lambda: calls.append("replaced"))
    tier.put_then(frame(2), None, lambda: calls.append("written too"))
    inner.open.set()
    tier.flush()
    inner.broken = True
    tier.put_then(frame(3), None, lambda: calls.append("failed"))
    tier.close()
    assert sorted(calls) == ["failed", "replaced", "written", "written too"]
    assert any(isinstance(event, Failed) and "1 writes lost" in event.detail for event in events)
