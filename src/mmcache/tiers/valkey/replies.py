"""What is answered: a parser of RESP2 that can be stopped at any byte, and allocates nothing before it has looked."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmcache.model.errors import TierError

LARGE = 16 << 10
"""Bytes; a larger string is received into memory of its own, and handed over as a `memoryview`."""
_LONGEST_LINE = 64 << 10
_MOST_ITEMS = 1 << 20
_DEEPEST = 8
_SLACK = 16 << 20
"""By how much all strings of one reply may exceed the largest single one."""
_ITEM = 16
"""Bytes that an item costs, however short it is."""
_SIMPLE, _ERROR, _INTEGER, _BULK, _ARRAY = b"+-:$*"


class Refusal(str):
    """What a server said instead of a reply; begins with its code (OOM, NOPERM…)."""

    __slots__ = ()


class Down(str):
    """Why no server answered this request: a timeout, a refused connection, a node that rests, nonsense."""

    __slots__ = ()


class Replies:
    """Replies as they come in: `bytes` (also for status lines), `int`, None, lists, `Refusal`s.

    Strings of `LARGE` bytes or more are read-only `memoryview`s. Raises `TierError` for what is no reply, or too large;
    then nothing more from that connection can be trusted.
    """

    __slots__ = ("_at", "_bulk", "_data", "_due", "_filled", "_largest", "_open", "_spent", "done")

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._data, self._at = b"", 0
        self._open: list[tuple[list[Any], int]] = []
        """Arrays that are not whole yet, the outermost first."""
        self._bulk: memoryview | None = None
        """A large string that is not whole yet, with its end of line."""
        self._filled = self._spent = self._due = 0
        self.done: list[Any] = []

    def expect(self, count: int) -> None:
        """Begin anew with `done`, which is whole with so many."""
        self.done, self._due = [], count

    @property
    def room(self) -> memoryview | None:
        """Where the next bytes belong, where that is known; tell `filled`, else `feed`."""
        return None if self._bulk is None else self._bulk[self._filled :]

    def filled(self, count: int) -> bool:
        """So many bytes are in `room` now. Whether all replies are whole."""
        assert self._bulk is not None
        self._filled += count
        if self._filled < len(self._bulk):
            return False
        self._place(_sealed(self._bulk))
        self._bulk = None
        return self._parse()

    def feed(self, data: bytes) -> bool:
        """The next bytes. Whether all replies are whole."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0
        return self._parse()

    def _parse(self) -> bool:
        data, at, done, due = self._data, self._at, self.done, self._due
        while len(done) < due:
            end = data.find(b"\r\n", at)
            if end <= at:
                self._check_line(data, at, end == at)
                break
            kind = data[at]
            if kind == _BULK:
                size = _count(data[at + 1 : end], self._largest)
                start = end + 2
                stop = start + size
                if size < 0:
                    value: Any = None
                    at = start
                elif size < LARGE:
                    if len(data) < stop + 2:
                        break
                    if data[stop : stop + 2] != b"\r\n":
                        raise TierError("a string that it sends is longer than it says")
                    value = data[start:stop]
                    at = stop + 2
                else:
                    self._spend(size)
                    bulk = np.empty(size + 2, np.uint8).data
                    have = min(size + 2, len(data) - start)
                    bulk[:have] = memoryview(data)[start : start + have]
                    at = start + have
                    if have < size + 2:
                        self._bulk, self._filled = bulk, have
                        break
                    value = _sealed(bulk)
                if self._open:
                    if size < LARGE:
                        self._spend(max(0, size) + _ITEM)
                    self._place(value)
                else:
                    done.append(value)
                    self._spent = 0
                continue
            if self._open:
                self._spend(end - at + _ITEM)
            self._place_line(kind, data[at + 1 : end])
            at = end + 2
        self._at = at
        if len(done) < due:
            return False
        if at < len(data):
            raise TierError("it answers more than it was asked")
        return True

    def _place_line(self, kind: int, line: bytes) -> None:
        if kind == _SIMPLE:
            self._place(line)
        elif kind == _ERROR:
            self._place(Refusal(line.decode("utf-8", "replace")))
        elif kind == _INTEGER:
            if not (line.isdigit() or (line[:1] == b"-" and line[1:].isdigit())) or len(line) > 20:
                raise TierError(f"it answers the number {line[:20]!r}")
            self._place(int(line))
        elif kind == _ARRAY:
            count = _count(line, _MOST_ITEMS)
            if count <= 0:
                self._place([] if count == 0 else None)
            elif len(self._open) == _DEEPEST:
                raise TierError(f"it answers with lists more than {_DEEPEST} deep")
            else:
                self._open.append(([], count))
        else:
            raise TierError(f"it answers {bytes([kind]) + line[:20]!r}, which is no reply")

    def _place(self, value: Any) -> None:
        """Into the innermost open array; what becomes whole by it goes up."""
        while self._open:
            items, count = self._open[-1]
            items.append(value)
            if len(items) < count:
                return
            value = items
            self._open.pop()
        self._spent = 0
        self.done.append(value)

    def _spend(self, size: int) -> None:
        self._spent += size
        if self._spent > self._largest + _SLACK:
            raise TierError(f"one reply of it has more than {self._largest + _SLACK} bytes")

    @staticmethod
    def _check_line(data: bytes, at: int, empty: bool) -> None:
        """It has no end yet: can it still become one?"""
        start = data[at : at + 20]
        if start[:2] in (b"\x15\x03", b"\x16\x03"):
            raise TierError("it speaks TLS: write valkeys:// before the address")
        if empty or len(data) - at > _LONGEST_LINE or (start and start[0] not in b"+-:$*"):
            raise TierError(f"it answers {start!r}, which is no reply")


def _count(digits: bytes, most: int) -> int:
    """A length; -1 = nothing is there."""
    if digits.isdigit() and len(digits) <= 20:
        count = int(digits)
        if count > most:
            raise TierError(f"it answers with {count} bytes or items, more than the {most} allowed")
        return count
    if digits == b"-1":
        return -1
    raise TierError(f"it answers the length {digits[:20]!r}")


def _sealed(bulk: memoryview) -> memoryview:
    """Without its end of line."""
    if bytes(bulk[-2:]) != b"\r\n":
        raise TierError("a string that it sends is longer than it says")
    return bulk[:-2].toreadonly()
