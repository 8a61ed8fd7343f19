"""How many parts a body has, before it is read: a few kilobytes of gzip may hold millions of empty spans.

A message of two bytes takes more than a hundred in memory. Bodies of usual sizes are not looked at.
"""

from __future__ import annotations

LIGHT = 2 << 20
"""Bytes that are read whatever is in them."""
SPANS = 100_000
"""Resources, scopes, spans (metrics, records) of one body."""
PARTS = 1_000_000
"""Of those and their fields; of JSON, objects and lists."""
_LEVELS = (1, 2, 2)
"""Numbers of the fields that hold resources, their scopes, and their spans: the same of all three signals."""


def heavy(body: bytes, json: bool) -> bool:
    """Whether it has more parts than anybody sends at once."""
    if len(body) <= LIGHT:
        return False
    if json:
        return body.count(b"{") + body.count(b"[") > PARTS
    try:
        return _more(body)
    except (IndexError, ValueError):  # it is cut off: its reader says so
        return False


def _more(body: bytes) -> bool:
    """Protobuf's wire format: a tag, and by its last three bits a number, 8 bytes, a length and so many, 4 bytes."""
    spans = parts = 0
    waiting = [(0, len(body), 0)]
    while waiting:
        at, end, depth = waiting.pop()
        while at < end:
            tag, at = _number(body, at)
            parts += 1
            kind = tag & 7
            if kind == 2:
                size, at = _number(body, at)
                if depth < len(_LEVELS) and tag >> 3 == _LEVELS[depth]:
                    spans += 1
                    waiting.append((at, min(at + size, end), depth + 1))
                at += size
            elif kind == 0:
                _, at = _number(body, at)
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            else:
                raise ValueError("no such kind")
            if spans > SPANS or parts > PARTS:
                return True
    return False


def _number(body: bytes, at: int) -> tuple[int, int]:
    """A varint, and where it ends."""
    byte = body[at]
    if byte < 128:
        return byte, at + 1
    found, shift = byte & 127, 7
    while shift < 70:
        at += 1
        byte = body[at]
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at + 1
        shift += 7
    raise ValueError("a number has ten bytes at most")
