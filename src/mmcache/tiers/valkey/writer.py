"""`Writer`: how the shared tier stores blocks and forgets them; what was not done is said, key by key."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from mmcache.tiers.valkey.fence import Tokens
from mmcache.tiers.valkey.names import Names, chunk_names
from mmcache.tiers.valkey.record import Record
from mmcache.tiers.valkey.replies import Down, Refusal
from mmcache.tiers.valkey.scripts import COMMIT, DROP, RELEASE
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
    """What stores one frame: commands, of which the last says what became of it; or what gives its lease back."""

    requests: list[Request]
    size: int
    token: bytes
    refused: Why | None = None
    """Why it is not stored, whatever the server says."""


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
        self._spare = settings.spare_seconds
        self._monotonic = clock.monotonic
        self.lost = 0
        """Blocks that were not stored because a node was down, full or unwilling."""
        self.overtaken = 0
        """Blocks that were not stored because something newer had overtaken their computation."""

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`."""
        self._watch.own()
        refused: list[Why | None] = [None] * len(frames)
        some: list[tuple[int, _Put]] = []
        held = 0
        for place, (frame, deadline) in enumerate(zip(frames, deadlines, strict=True)):
            put = self._prepare(frame, deadline)
            if isinstance(put, RefuseReason):
                refused[place] = put, "its computation began when no token could be had, or was overtaken"
                continue
            if some and held + put.size > _ROUND_BYTES:
                self._send(frames, some, refused)
                some, held = [], 0
            some.append((place, put))
            held += put.size
        if some:
            self._send(frames, some, refused)
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
            self._tokens.settled(frame.key, token)
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
            return self._hopeless(block, token, RefuseReason.UNSUPPORTED, "its names are too long")
        if size > self._largest:
            return self._hopeless(block, token, RefuseReason.TOO_LARGE, f"{size} bytes")
        if cut.count:
            value = head + prefix
            staged = chunk_names(block[0], cut.chunk_id, cut.count)
            pieces: Sequence[bytes | memoryview] = cut.pieces(payload)
        elif size > _COPIED_TWICE:
            value, pieces = b"", [b"".join((head, prefix, payload))]
            staged = chunk_names(block[0], draw_id(), 1)
        else:
            value, pieces, staged = b"".join((head, prefix, payload)), [], []
        requests = [
            Request(name, ("SET", name, piece, "PX", STAGED_MS)) for name, piece in zip(staged, pieces, strict=True)
        ]
        words = COMMIT.words((*block, *staged), (token, self._left(deadline), value))
        return _Put([*requests, Request(block[0], words)], size, token)

    @staticmethod
    def _hopeless(block: Sequence[bytes], token: bytes, reason: RefuseReason, why: str) -> _Put:
        lease = [Request(block[0], RELEASE.words(block, (token,)))] if token else []
        return _Put(lease, 0, token, (reason, why))

    def _left(self, deadline: Deadline) -> int:
        """Milliseconds after which the server may collect a block; 0 = never."""
        left = math.inf if deadline is None else deadline - self._monotonic()
        return 0 if left > _FOR_EVER else max(1, math.ceil((left + self._spare) * 1000))

    def _send(self, frames: Sequence[Frame], some: Sequence[tuple[int, _Put]], refused: list[Why | None]) -> None:
        replies = iter(self._watch.ask([request for _, put in some for request in put.requests]))
        for place, put in some:
            judged = [next(replies) for _ in put.requests]
            refused[place] = put.refused or _judged(judged)
            self._tokens.settled(frames[place].key, put.token)

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
    code = str(said).partition(" ")[0]
    reason = RefuseReason.TIER_DOWN if isinstance(said, Down) else _REASONS.get(code, RefuseReason.TIER_DOWN)
    return reason, str(said)[:200]
