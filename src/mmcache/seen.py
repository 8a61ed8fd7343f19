"""Which signatures were seen for a content: only to name the miss reason `signature`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mmcache.forks import Lock

CAPACITY = 65_536


class SignatureIndex(Protocol):
    """The disk tier has a persistent one."""

    def seen(self, content_id: bytes) -> Iterable[bytes]: ...
    def note(self, content_id: bytes, signature: bytes) -> None: ...


class RecentSignatures:
    """The index of this process; the oldest contents are forgotten."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._lock = Lock()
        self._seen: dict[bytes, frozenset[bytes]] = {}

    def seen(self, content_id: bytes) -> Iterable[bytes]:
        return self._seen.get(content_id, ())

    def note(self, content_id: bytes, signature: bytes) -> None:
        with self._lock:
            self._seen[content_id] = self._seen.pop(content_id, frozenset()) | {signature}
            while len(self._seen) > self._capacity:
                del self._seen[next(iter(self._seen))]
