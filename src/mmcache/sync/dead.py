"""Dead letters: messages that could not be applied, with the reason, in a bounded stream on the shared tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from mmcache.model.errors import SyncError, TierError
from mmcache.sync.envelope import Message
from mmcache.sync.link import Keeper, paired

NAME = "dead"
LENGTH = 10_000
"""About so many are kept, the latest."""
LARGEST_BYTES = 64 << 10
"""Of a payload; a longer one is cut, and cannot be retried."""
_PAGE = 50


@dataclass(frozen=True)
class DeadLetter:
    """One of them."""

    id: str
    reason: str
    """`poison`: not understood; `refresh`: its editions moved, and recomputing failed."""
    error: str
    message: Message
    whole: bool
    """Whether the payload is kept whole."""


class DeadLetters:
    """All of them. Methods raise `TierError`."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def add(self, reason: str, error: str, message: Message) -> None:
        """Append one. Done again after a death in between, it stands there twice."""
        parts = {"key": message.key, "value": message.value}
        whole = all(part is None or len(part) <= LARGEST_BYTES for part in parts.values())
        words: list[str | bytes | int] = []
        for name, part in parts.items():
            if part is not None:
                words += [name, part[:LARGEST_BYTES]]
        headers = {name: value for name, value in message.headers.items() if value is None or len(value) <= 1 << 10}
        self._keeper.ask(
            NAME, "XADD", "MAXLEN", "~", LENGTH, "*", "reason", reason, "error", error[:1000], "topic", message.topic,
            "partition", message.partition, "offset", message.offset, "whole", int(whole),
            "headers", msgspec.json.encode(headers), *words,
        )  # fmt: skip

    def count(self) -> int:
        """How many there are."""
        return int(self._keeper.ask(NAME, "XLEN"))

    def latest(self, count: int) -> list[DeadLetter]:
        """The latest first."""
        found: list[DeadLetter] = []
        while len(found) < count:
            before = f"({found[-1].id}" if found else "+"
            some = _letters(self._keeper.ask(NAME, "XREVRANGE", before, "-", "COUNT", min(_PAGE, count - len(found))))
            if not some:
                break
            found += some
        return found

    def find(self, id: str) -> DeadLetter:
        """The one of that id. Raises `SyncError` where there is none."""
        if not _is_id(id):
            raise SyncError(f"{id!r} is no id of a dead letter; `mmcache sync dead` lists them")
        found = _letters(self._keeper.ask(NAME, "XRANGE", id, id))
        if not found:
            raise SyncError(f"there is no dead letter {id}; `mmcache sync dead` lists them")
        return found[0]

    def drop(self, id: str) -> None:
        """Remove one."""
        self._keeper.ask(NAME, "XDEL", id)

    def drop_all(self) -> int:
        """Remove all; how many there were."""
        count = self.count()
        self._keeper.ask(NAME, "UNLINK")
        return count


def _is_id(text: str) -> bool:
    first, mark, second = text.partition("-")
    return bool(mark) and first.isascii() and second.isascii() and first.isdigit() and second.isdigit()


def _letters(reply: Any) -> list[DeadLetter]:
    found = []
    try:
        for id, fields in reply or ():
            kept = paired(fields)
            message = Message(
                kept["topic"].decode(), int(kept["partition"]), int(kept["offset"]), kept.get("key"), kept.get("value"),
                msgspec.json.decode(kept["headers"], type=dict[str, bytes | None]),
            )  # fmt: skip
            reason, error = (kept[name].decode("utf-8", "replace") for name in ("reason", "error"))
            found.append(DeadLetter(bytes(id).decode(), reason, error, message, kept["whole"] == b"1"))
    except (TypeError, ValueError, LookupError) as error:
        raise TierError(f"dead letters cannot be read: {error!r}") from error
    return found
