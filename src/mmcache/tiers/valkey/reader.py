"""`Reader`: how the shared tier finds blocks. One round trip a node for heads and small blocks, one more for pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mmcache.forks import Lock
from mmcache.model.clock import Clock
from mmcache.model.errors import CorruptFrameError
from mmcache.model.event import Event, Failed, MissReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.settings import SharedSettings
from mmcache.tiers.base import Deadline, Found
from mmcache.tiers.valkey.chunks import UNREADABLE, Large, parsed
from mmcache.tiers.valkey.client import Client
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.record import Record
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.watch import ClockWatch
from mmcache.tiers.valkey.words import Request

MOST_LATELY = 16_384
"""Keys that are read from primaries since they were dropped; by the time that so many more were, replicas know."""
LATELY_SECONDS = 60.0
"""All are, for so long, where nobody knows which were dropped."""
_ROUND_BYTES = 32 << 20
"""Of pieces, fetched in one round trip a node."""
_LATE, _RESTS = " in time", " is left alone "
"""What a `Down` says when time was up just now, and when that was earlier."""


class Reader:
    """What is missed says why: nothing in here raises for a server's fault."""

    def __init__(
        self,
        client: Client,
        names: Names,
        watch: ClockWatch,
        settings: SharedSettings,
        clock: Clock,
        where: str,
        emit: Callable[[Event], None],
    ) -> None:
        self._client, self._names, self._watch, self._where, self._emit = client, names, watch, where, emit
        self._largest, self._replica = settings.largest_bytes, settings.replica_reads
        self._monotonic = clock.monotonic
        self._lock = Lock()
        self._lately: dict[Key, None] = {}
        self._all_until = float("-inf")

    def dropped(self, keys: Iterable[Key] | None) -> None:
        """A replica that lags still has `keys` (None = any): what it gives would stay in memory for good."""
        if not self._replica:
            return
        with self._lock:
            if keys is None:
                self._all_until = self._monotonic() + LATELY_SECONDS
            for key in keys or ():
                self._lately.pop(key, None)
                self._lately[key] = None
            while len(self._lately) > MOST_LATELY:
                del self._lately[next(iter(self._lately))]

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`."""
        heads = [self._names.head(key) for key in keys]
        found = self._heads(keys, heads)
        large = [place for place, one in enumerate(found) if type(one) is Large]
        if large:
            self._fetch_all(found, large)
            torn = [place for place in large if found[place] is MissReason.ABSENT]
            if torn:  # replaced between the two round trips, or pieces were evicted: once more
                again = self._heads([keys[place] for place in torn], [heads[place] for place in torn])
                self._fetch_all(again, [place for place, one in enumerate(again) if type(one) is Large])
                for place, one in zip(torn, again, strict=True):
                    found[place] = one
        return found  # type: ignore[return-value]  # no Large is left

    def _heads(self, keys: Sequence[Key], heads: Sequence[bytes]) -> list[Found | MissReason | Large]:
        last, lately, now = self._largest - 1, self._lately, self._monotonic()
        replica = self._replica and now >= self._all_until
        raws = self._watch.ask(
            [
                Request(head, ("GETRANGE", head, 0, last), replica and key not in lately)
                for key, head in zip(keys, heads, strict=True)
            ]
        )
        now = self._monotonic()
        found = [self._found(key, head, raw, now) for key, head, raw in zip(keys, heads, raws, strict=True)]
        missed = [place for place, one in enumerate(found) if one.__class__ is MissReason]
        if missed:
            self._look_closer(missed, found, keys, heads, raws, now)
        return found

    def _look_closer(
        self,
        missed: Sequence[int],
        found: list[Found | MissReason | Large],
        keys: Sequence[Key],
        heads: Sequence[bytes],
        raws: Sequence[Any],
        now: float,
    ) -> None:
        """Ask about machines that nobody here had heard of yet; tell once of nodes that are down."""
        unknown = [place for place in missed if found[place] is MissReason.ABSTAINED]
        if unknown and self._watch.look_again():
            for place in unknown:
                found[place] = self._found(keys[place], heads[place], raws[place], now)
        for reason in {str(raws[place]) for place in missed if isinstance(raws[place], Down)}:
            self._emit(Failed(self._where, f"a node does not serve: {reason}"))

    def _found(self, key: Key, head: bytes, raw: Any, now: float) -> Found | MissReason | Large:
        if not raw:
            return MissReason.ABSENT
        if isinstance(raw, str):
            return self._not_told(key, raw)
        try:
            if not isinstance(raw, bytes | memoryview):
                raise CorruptFrameError(f"the server answers {raw!r:.40}")
            record = Record.decode(raw)
            deadline: Deadline = None
            if record.until is not None:
                deadline = self._watch.local(record.machine, record.until)
                if deadline is None:
                    return MissReason.ABSTAINED
                if deadline <= now:
                    return MissReason.EXPIRED
            if record.chunks:
                large = Large.of(key, head, raw, record, deadline)
                if large.total > self._largest:
                    raise CorruptFrameError(f"a stored value has more than {self._largest} bytes")
                return large
            return Found(parsed(memoryview(raw)[record.length :], key), deadline)
        except UNREADABLE as error:
            self._emit(Failed(self._where, str(error), key))
            return MissReason.CORRUPT

    def _not_told(self, key: Key, raw: str) -> MissReason:
        """For a `Refusal`, or a `Down`, which is told once for all."""
        if isinstance(raw, Refusal):
            self._emit(Failed(self._where, f"the server refused to read: {raw}", key))
            return MissReason.DENIED if raw.startswith("NOPERM") else MissReason.CORRUPT
        return MissReason.TIMEOUT if raw.endswith(_LATE) and _RESTS not in raw else MissReason.TIER_DOWN

    def _fetch_all(self, found: list[Found | MissReason | Large], places: Sequence[int]) -> None:
        """Put frames, or why they are missed, in the place of heads."""
        for some in self._rounds(found, places):
            requests = [request for _, large in some for request in large.requests(self._replica)]
            replies = iter(self._client.ask(requests))
            for place, large in some:
                found[place] = self._joined(large, [next(replies) for _ in range(large.cut.count)])

    @staticmethod
    def _rounds(
        found: Sequence[Found | MissReason | Large], places: Sequence[int]
    ) -> Iterator[list[tuple[int, Large]]]:
        some: list[tuple[int, Large]] = []
        held = 0
        for place in places:
            large = found[place]
            assert isinstance(large, Large)
            if some and held + large.total > _ROUND_BYTES:
                yield some
                some, held = [], 0
            some.append((place, large))
            held += large.total
        if some:
            yield some

    def _joined(self, large: Large, pieces: Sequence[Any]) -> Found | MissReason:
        down = next((piece for piece in pieces if isinstance(piece, Down)), None)
        if down is not None:
            return self._not_told(large.key, down)
        try:
            frame = large.joined(pieces)
        except UNREADABLE as error:
            self._emit(Failed(self._where, str(error), large.key))
            return MissReason.CORRUPT
        return Found(frame, large.deadline, verified=True) if isinstance(frame, Frame) else frame
