"""What is asked: requests, scripts, and how they look on the wire (RESP)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

Buffer = bytes | bytearray | memoryview
Word = str | int | Buffer
Command = tuple[Word, ...]
"""The name first."""

LARGE = 16 << 10
"""Bytes; a larger argument goes out from where it lies, without a copy."""


@dataclass(frozen=True, slots=True)
class Request:
    """One command, and where it belongs. It may be sent twice: after a lost connection nobody knows if it was done."""

    key: bytes | None
    """What chooses the node; None = any."""
    words: Command
    replica: bool = False
    """Whether a replica may answer; only where the settings allow it."""


class Script:
    """A script in the server's own language (Lua). Sent by its digest; the client sends the source where it is new."""

    def __init__(self, source: str) -> None:
        self._digest = Digest(hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
        self._digest.source = source

    def words(self, keys: Sequence[Word], args: Sequence[Word] = ()) -> Command:
        """The command that runs it."""
        return ("EVALSHA", self._digest, len(keys), *keys, *args)


class Digest(str):
    """Of a script; knows the script."""

    __slots__ = ("source",)
    source: str


def in_full(words: Command) -> Command | None:
    """The command that sends the source, for one that a `Script` made; else None."""
    return ("EVAL", words[1].source, *words[2:]) if len(words) > 1 and isinstance(words[1], Digest) else None


def encode(commands: Sequence[Command]) -> list[Buffer]:
    """What to send: small things joined, large arguments as views. Raises `TypeError` for other words."""
    parts: list[Buffer] = []
    small: list[bytes] = []
    for words in commands:
        small.append(b"*%d\r\n" % len(words))
        for word in words:
            if word.__class__ is bytes:  # the most frequent first, and quickly
                raw: Buffer = word
            elif isinstance(word, str):
                raw = word.encode()
            elif isinstance(word, int):
                raw = b"%d" % word
            elif isinstance(word, bytes | bytearray | memoryview):
                raw = memoryview(word).cast("B")
            else:
                raise TypeError(f"a word of a command is text, bytes or an integer, not {word!r:.40}")
            size = len(raw)
            if size < LARGE:
                small.append(b"$%d\r\n%b\r\n" % (size, raw))  # type: ignore[str-format]
            else:
                small.append(b"$%d\r\n" % size)
                parts += [b"".join(small), raw]
                small = [b"\r\n"]
    parts.append(b"".join(small))
    return parts
