"""Many commands to one node that makes each wait: over several connections, they wait side by side.

Valkey 8 and later answers CLUSTER SETSLOT when the replicas have heard of it: about ten milliseconds a slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from mmcache.scale.access import Access, Contact
from mmcache.scale.talk import Command

_VOICES = 32
_FEW = 4
"""Commands for which no connection is opened."""


class Chorus:
    """Of one node. Commands that belong together are heard in order, all others in any. Raises `ScaleError`."""

    def __init__(self, first: Contact, access: Access, host: str, port: int, *, waits: bool) -> None:
        """waits: the node makes commands wait; else one connection is the quickest."""
        self._access, self._at, self._waits = access, (host, port), waits
        self._voices = [first]
        self._opened = ExitStack()

    def tell(self, parts: Sequence[Sequence[Command]]) -> list[list[Any]]:
        """The replies to each part; an error reply is a `TierError` in its place."""
        if not parts:
            return []
        count = min(_VOICES, len(parts)) if self._waits and len(parts) > _FEW else 1
        while len(self._voices) < count:
            self._voices.append(self._opened.enter_context(self._access.to(*self._at)))
        shares = [parts[number::count] for number in range(count)]
        voices = self._voices[:count]
        seconds = self._access.timeout_seconds * (1 + max(map(len, shares)) / 10)
        for voice, share in zip(voices, shares, strict=True):
            voice.begin([command for part in share for command in part], seconds)
        answers: list[list[Any]] = [[] for _ in parts]
        for number, (voice, share) in enumerate(zip(voices, shares, strict=True)):
            replies = iter(voice.end())
            for at, part in enumerate(share):
                answers[number + at * count] = [next(replies) for _ in part]
        return answers

    def insist(self, parts: Sequence[Sequence[Command]]) -> list[list[Any]]:
        """As `tell`; raises `ScaleError` for an error reply."""
        answers = self.tell(parts)
        for part, replies in zip(parts, answers, strict=True):
            for words, reply in zip(part, replies, strict=True):
                self._voices[0].check(words, reply)
        return answers

    def close(self) -> None:
        """End all connections but the first."""
        self._opened.close()
