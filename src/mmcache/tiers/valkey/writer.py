"""`Writer`: how the shared tier stores blocks and forgets them; what was not done is said, key by key.

A connection that is given up does not take back what was sent: the server may do it much later. So each put proves by
a token, in the very script that stores it, that nothing was dropped or stored since.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mmcache.model.clock import Clock
from mmcache.model.errors import TierError
from mmcache.model.event import Event, Refused, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.settings import SharedSettings
from mmcache.tiers.base import Deadline
from mmcache.tiers.valkey.chunks import STAGED_MS, Cut, draw_id
from mmcache.tiers.valkey.client import Client
from mmcache.tiers.valkey.fence import FENCE_SECONDS, UNCONDITIONAL, Tokens
from mmcache.tiers.valkey.names import Names, chunk_names
from mmcache.tiers.valkey.record import Record
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.scripts import COMMIT, DROP, RELEASE, SEIZE
from mmcache.tiers.valkey.watch import ClockWatch
from mmcache.tiers.valkey.words import Request

_FOR_EVER = 10.0**9
"""Seconds; beyond, the server need not collect anything."""
_ROUND_BYTES = 16 << 20
"""Sent in one round trip a node: a batch of many large blocks must not look like a node that is slow."""
_AT_ONCE = 1000
"""Keys dropped in one round trip."""
_COPIED_TWICE = 16 << 10
"""Bytes; a script copies its arguments: a larger block is staged by a plain command, and renamed by the script."""
_REASONS = {
    "OOM": RefuseReason.QUOTA,
    "READONLY": RefuseReason.READ_ONLY,
    "NOPERM": RefuseReason.READ_ONLY,
    "MISCONF": RefuseReason.DISK_FULL,
    "NOSPACE": RefuseReason.DISK_FULL,
}  # fmt: skip

Why = tuple[RefuseReason, str]


@dataclass(frozen=True, slots=True)
class _Put:
    """What stores one frame."""

    block: tuple[bytes, bytes, bytes]
    """Head, lease, fence."""
    token: bytes
    head: bytes
    """Empty = what is staged becomes it."""
    staged: Sequence[bytes] = ()
    """Names."""
    pieces: Sequence[bytes | memoryview] = ()
    left_ms: int = 0
    """How long the server must keep it; 0 = for ever."""
    size: int = 0
    refused: Why | None = None
    """Why it is not stored: its lease is given back only."""

    def requests(self, token: bytes) -> list[Request]:
        """Commands, of which the last says what became of it."""
        name = self.block[0]
        if self.refused is not None:
            return [Request(name, RELEASE.words(self.block, (token,)))]
        pieces = zip(self.staged, self.pieces, strict=True)
        words = COMMIT.words(
            (*self.block, *self.staged), (token, self.left_ms, self.head, int(self.token == UNCONDITIONAL))
        )
        return [*(Request(at, ("SET", at, piece, "PX", STAGED_MS)) for at, piece in pieces), Request(name, words)]


class Writer:
    """Puts, with and without a token; drops."""

    def __init__(
        self,
        client: Client,
        names: Names,
        watch: ClockWatch,
        tokens: Tokens,
        settings: SharedSettings,
        clock: Clock,
        where: str,
        emit: Callable[[Event], None],
    ) -> None:
        self._client, self._names, self._watch, self._tokens = client, names, watch, tokens
        self._where, self._emit = where, emit
        self._largest, self._chunk_bytes = settings.largest_bytes, settings.chunk_bytes
        self._spare, self._lease_ms = settings.spare_seconds, max(3, round(settings.lease_seconds * 1000))
        self._monotonic = clock.monotonic
        self.lost = 0
        """Blocks that were not stored because a node was down, full or unwilling."""
        self.overtaken = 0
        """Blocks that were not stored because something newer had overtaken their computation."""

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`."""
        self._watch.own()
        refused: list[Why | None] = [None] * len(frames)
        some: dict[Key, tuple[int, _Put]] = {}
        held = 0
        for place, (frame, deadline) in enumerate(zip(frames, deadlines, strict=True)):
            put = self._prepare(frame, deadline)
            if isinstance(put, RefuseReason):
                refused[place] = put, "its computation began when no token could be had, or was overtaken"
                continue
            if put.refused is not None and put.token == UNCONDITIONAL:
                refused[place] = put.refused
                continue
            if some and (held + put.size > _ROUND_BYTES or frame.key in some):
                self._send(some, refused)
                some, held = {}, 0
            some[frame.key] = (place, put)
            held += put.size
        if some:
            self._send(some, refused)
        for frame, why in zip(frames, refused, strict=True):
            if why is not None:
                self._count(why[0])
                self._emit(Refused(frame.key, self._where, *why))
        return [why and why[0] for why in refused]

    def _count(self, reason: RefuseReason) -> None:
        if reason is RefuseReason.INVALIDATED:
            self.overtaken += 1
        elif reason not in (RefuseReason.TOO_LARGE, RefuseReason.UNSUPPORTED):
            self.lost += 1

    def _prepare(self, frame: Frame, deadline: Deadline) -> _Put | RefuseReason:
        token = self._tokens.of(frame)
        if isinstance(token, RefuseReason):
            return token
        prefix, payload = frame.prefix(), memoryview(frame.payload).cast("B")
        record = Record(self._watch.machine, self._watch.until(deadline), frame.header.created)
        cut = Cut()
        head = record.encode(frame.header)
        if head is not None and len(payload) and len(head) + len(prefix) + len(payload) > self._chunk_bytes:
            cut = Cut.of(len(payload), self._chunk_bytes)
            head = Record(record.machine, record.until, record.created, cut.chunk_id, cut.count, cut.size).encode(
                frame.header
            )
        size = len(head or b"") + len(prefix) + len(payload)
        block = self._names.block(frame.key)
        if head is None:
            return _Put(block, token, b"", refused=(RefuseReason.UNSUPPORTED, "its names are too long"))
        if size > self._largest:
            return _Put(block, token, b"", refused=(RefuseReason.TOO_LARGE, f"{size} bytes"))
        left_ms = self._left(deadline)
        if cut.count:
            staged = chunk_names(block[0], cut.chunk_id, cut.count)
            return _Put(block, token, head + prefix, staged, cut.pieces(payload), left_ms, size)
        whole = b"".join((head, prefix, payload))
        if size > _COPIED_TWICE:
            return _Put(block, token, b"", chunk_names(block[0], draw_id(), 1), [whole], left_ms, size)
        return _Put(block, token, whole, left_ms=left_ms, size=size)

    def _left(self, deadline: Deadline) -> int:
        """Milliseconds after which the server may collect a block; 0 = never."""
        left = math.inf if deadline is None else deadline - self._monotonic()
        if left > _FOR_EVER:
            return 0
        return math.ceil((left + self._spare) * 1000) if left > -self._spare else 1

    def _send(self, some: Mapping[Key, tuple[int, _Put]], refused: list[Why | None]) -> None:
        """One round trip a node, and one before it for those that have no token yet."""
        tokens = {key: put.token for key, (_, put) in some.items()}
        for key, said in self._seize([key for key, token in tokens.items() if token == UNCONDITIONAL], some):
            if isinstance(said, bytes):
                tokens[key] = said
            else:
                refused[some[key][0]] = said
                del tokens[key]
        sent = [(key, *some[key], some[key][1].requests(token)) for key, token in tokens.items()]
        replies = iter(self._watch.ask([one for *_, requests in sent for one in requests]) if sent else [])
        for _, place, put, requests in sent:
            judged = _judged([next(replies) for _ in requests])
            refused[place] = put.refused or judged
        for key, (_, put) in some.items():
            self._tokens.settled(key, put.token)

    def _seize(self, keys: Sequence[Key], some: Mapping[Key, tuple[int, _Put]]) -> Iterator[tuple[Key, bytes | Why]]:
        """A token for each, or why it cannot be had."""
        drawn = [self._tokens.draw() for _ in keys]
        requests = []
        for key, token in zip(keys, drawn, strict=True):
            block = some[key][1].block
            requests.append(Request(block[0], SEIZE.words(block, (token, self._lease_ms, FENCE_SECONDS * 1000))))
        for key, token, reply in zip(keys, drawn, self._client.ask(requests) if requests else [], strict=True):
            why = _judged([reply])
            yield key, token if why is None else why

    def drop(self, keys: Sequence[Key]) -> int:
        """See `Tier.drop`. Raises `TierError` where some were not dropped, after trying all."""
        keys = list(dict.fromkeys(keys))
        self._tokens.outdate(keys)
        dropped, failures = 0, list[Any]()
        for start in range(0, len(keys), _AT_ONCE):
            blocks = [self._names.block(key) for key in keys[start : start + _AT_ONCE]]
            for reply in self._client.ask([Request(block[0], DROP.words(block)) for block in blocks]):
                if isinstance(reply, int):
                    dropped += reply
                else:
                    failures.append(reply)
        if failures:
            raise TierError(f"{len(failures)} of {len(keys)} keys were not dropped: {str(failures[0])[:200]}")
        return dropped


def _judged(replies: Sequence[Any]) -> Why | None:
    """What became of one put; the last reply is the script's."""
    *staged, said = replies
    if said == 1:
        return None
    if said == 0:
        return RefuseReason.INVALIDATED, "something newer has overtaken its computation"
    if isinstance(said, int):  # something staged is not there: which of it was refused, and why?
        said = next((reply for reply in staged if isinstance(reply, Refusal | Down)), "its pieces were evicted")
    return RefuseReason.TIER_DOWN if isinstance(said, Down) else _reason(str(said)), str(said)[:200]


def _reason(said: str) -> RefuseReason:
    """The code comes first; older servers put a script's name before it, and a minus."""
    codes = {said.partition(" ")[0], *(word[1:] for word in said.split() if word.startswith("-"))}
    return next((reason for code, reason in _REASONS.items() if code in codes), RefuseReason.TIER_DOWN)
