"""Plain words to a server, over a connection of their own: for those who run it, not for those who use it."""

from __future__ import annotations

import socket
from typing import Any

from mmcache.model.errors import TierError

Word = str | bytes | int
_PATIENCE_SECONDS = 10.0


def talk(
    port: int,
    *commands: tuple[Word, ...],
    host: str = "127.0.0.1",
    password: str | None = None,
    timeout_seconds: float = _PATIENCE_SECONDS,
) -> list[Any]:
    """The replies in order; an error reply is a `TierError` in its place. Raises `OSError` when nobody answers."""
    first: list[tuple[Word, ...]] = [] if password is None else [("AUTH", password)]
    with socket.create_connection((host, port), timeout_seconds) as connection:
        connection.sendall(b"".join(map(_framed, [*first, *commands])))
        with connection.makefile("rb") as replies:
            return [_reply(replies) for _ in [*first, *commands]][len(first) :]


def ask(port: int, *words: Word, host: str = "127.0.0.1", password: str | None = None) -> Any:
    """One command. Raises `TierError` for an error reply, `OSError` when nobody answers."""
    (reply,) = talk(port, words, host=host, password=password)
    if isinstance(reply, TierError):
        raise reply
    return reply


def _framed(words: tuple[Word, ...]) -> bytes:
    raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in raw)


def _reply(stream: Any) -> Any:
    line = stream.readline()
    kind, rest = line[:1], line[1:-2]
    if kind == b"+":
        return rest.decode()
    if kind == b"-":
        return TierError(rest.decode(errors="replace"))
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else stream.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return None if rest == b"-1" else [_reply(stream) for _ in range(int(rest))]
    raise ConnectionError("the server hung up" if not line else f"no reply of a server: {line!r:.40}")
