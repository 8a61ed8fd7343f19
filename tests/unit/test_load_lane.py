"""A lane of a load against a tier that somebody tampers with: what is lost, older or another's is counted as that."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from threading import Event

from mmcache.lab.load.blocks import Blocks
from mmcache.lab.load.counts import Counts, total
from mmcache.lab.load.job import Filled, Job, Seen
from mmcache.lab.load.lane import Lane
from mmcache.model.event import MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline, Found

KEYS = 20


class Store:
    """As a server would: what is put is there, until a test changes it."""

    def __init__(self) -> None:
        self.frames: dict[bytes, Frame] = {}
        self.mute: set[bytes] = set()

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        return [self._one(bytes(key)) for key in keys]

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        self.frames |= {frame.header.key: frame for frame in frames}
        return [None] * len(frames)

    def drop(self, keys: Iterable[Key]) -> int:
        return len([self.frames.pop(bytes(key), None) for key in keys])

    def _one(self, key: bytes) -> Found | MissReason:
        if key in self.mute:
            return MissReason.TIMEOUT
        frame = self.frames.get(key)
        return MissReason.ABSENT if frame is None else Found(frame, None)


class Played:
    """One lane that has all keys, filled, and what it tells."""

    def __init__(self, **changes: object) -> None:
        wanted: dict[str, object] = {"reads": 1.0, "zipf": 0.0, "refill": False, "lanes": 1}
        job = Job("valkey://h:1", 8000.0, 0.1, KEYS, {256: 1.0}, **(wanted | changes))  # type: ignore[arg-type]
        self.store, self.blocks = Store(), Blocks(job.sizes, job.seed)
        self.seen: list[Seen] = []
        self.lane = Lane(job, 0, self.store, self.blocks, self.seen.append)  # type: ignore[arg-type]
        filled: list[Filled] = []
        self.lane.fill(filled.append, Event())
        assert [(one.keys, one.refused) for one in filled] == [(KEYS, 0)]

    def write_all(self) -> None:
        """Once more: version 2."""
        self.lane.fill(lambda _: None, Event())

    def put_back(self, number: int, version: int) -> None:
        self.store.frames[self.name(number)] = self.blocks.frame(number, version)

    def run(self) -> Counts:
        self.lane.run(time.monotonic(), Event())
        return total([one.counts for one in self.seen])

    def name(self, number: int) -> bytes:
        return bytes(self.blocks.key(number))


def test_what_is_as_it_was_written_is_right() -> None:
    played = Played()
    counts = played.run()
    assert counts.hits == counts.reads > KEYS
    assert (counts.lost, counts.stale, counts.wrong, played.lane.ledger.lost) == (0, 0, 0, [])
    assert played.lane.check().right == KEYS


def test_a_key_that_is_dropped_meanwhile_is_lost() -> None:
    played = Played()
    del played.store.frames[played.name(3)]
    counts = played.run()
    assert counts.missed["absent"] > 1
    assert (counts.lost, counts.stale, counts.wrong) == (1, 0, 0)
    assert [(one.number, one.version) for one in played.lane.ledger.lost] == [(3, 1)]
    checked = played.lane.check()
    assert (checked.right, checked.lost) == (KEYS - 1, 1)


def test_a_key_that_is_dropped_and_comes_back_has_returned() -> None:
    played = Played()
    frame = played.store.frames.pop(played.name(3))
    assert played.run().lost == 1
    played.store.frames[played.name(3)] = frame
    assert played.lane.check().right == KEYS
    assert (played.lane.ledger.returned, played.lane.ledger.lost) == (1, [])


def test_a_loss_that_the_cache_fills_again_is_a_loss() -> None:
    played = Played(refill=True)
    del played.store.frames[played.name(3)]
    played.run()
    assert [(one.number, one.version) for one in played.lane.ledger.lost] == [(3, 1)]
    assert played.lane.check().right == KEYS


def test_an_older_block_is_a_lost_write() -> None:
    played = Played()
    played.write_all()
    played.put_back(5, 1)
    counts = played.run()
    assert (counts.stale, counts.wrong) == (1, 0)
    assert [(one.number, one.version) for one in played.lane.ledger.lost] == [(5, 2)]


def test_an_older_block_is_seen_at_the_end_too() -> None:
    played = Played()
    played.write_all()
    played.put_back(5, 1)
    checked = played.lane.check()
    assert (checked.right, checked.stale, checked.lost) == (KEYS - 1, 1, 0)
    assert [(one.number, one.version) for one in played.lane.ledger.lost] == [(5, 2)]


def test_what_nobody_wrote_yet_and_what_is_another_s_is_wrong() -> None:
    played = Played()
    played.put_back(5, 2)
    played.store.frames[played.name(6)] = played.store.frames[played.name(7)]
    counts = played.run()
    assert counts.wrong > 1
    assert (counts.lost, counts.stale) == (0, 0)
    checked = played.lane.check()
    assert (checked.right, checked.wrong) == (KEYS - 2, 2)


def test_what_a_probe_finds_is_told_though_nothing_was_asked() -> None:
    """A key without an answer is asked again, also while no request comes."""
    played = Played()
    played.lane.ledger.unanswered(3, 0.0)
    del played.store.frames[played.name(3)]
    played.lane._probe(time.monotonic())
    played.lane._report(1)
    assert [one.counts.lost for one in played.seen] == [1]
    assert played.seen[0].counts.requests == 0


def test_what_has_no_answer_is_neither_lost_nor_right() -> None:
    played = Played()
    played.store.mute = {played.name(3)}
    counts = played.run()
    assert counts.failed == counts.missed["timeout"] == counts.reads - counts.hits > 0
    assert played.lane.ledger.lost == []
    assert played.lane.ledger.silent(10) == [3]
