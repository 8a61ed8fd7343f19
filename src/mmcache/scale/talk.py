"""Plain words to a server, over a connection of their own: for those who run it, not for those who use it."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any

from mmcache.model.errors import TierError

Word = str | bytes | int
Command = tuple[Word, ...]
_PATIENCE_SECONDS = 10.0
_MOST_BYTES = 1 << 30
_LONGEST_LINE, _DEEPEST = 64 << 10, 8
_AT_ONCE = 64 << 10
_HIDDEN, _LONGEST_SHOWN = "***", 400


class Wire:
    """One connection. Commands go out together, and their replies are read in order.

    It is one thread's. After an `OSError` it must be closed: what comes on it answers nobody.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        user: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_seconds: float = _PATIENCE_SECONDS,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        """Connect and say who we are. Raises `OSError`; `TierError` when the server does not know us."""
        self._secret, self._seconds, self._most = password, timeout_seconds, most_bytes
        self._got = bytearray()
        self._left = 0
        self._until = time.monotonic() + timeout_seconds
        plain = socket.create_connection((host, port), timeout_seconds)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.settimeout(self._patience())
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
            if password is not None:
                login = (password,) if user is None else (user, password)
                (said,) = self.call([("AUTH", *login)])
                if isinstance(said, TierError):
                    raise said
        except BaseException:
            plain.close()  # wrapped, it is closed already
            if hasattr(self, "_socket"):
                self._socket.close()
            raise

    def call(self, commands: Sequence[Command], seconds: float | None = None) -> list[Any]:
        """The replies in order; an error reply is a `TierError` in its place.

        All of it ends within `seconds`, by default those of the connection. Raises `OSError`.
        """
        self.send(commands, seconds)
        return self.receive(len(commands))

    def send(self, commands: Sequence[Command], seconds: float | None = None) -> None:
        """To be followed by `receive`. Raises `OSError`."""
        self._until = time.monotonic() + (self._seconds if seconds is None else seconds)
        self._left = self._most
        self._socket.settimeout(self._patience())
        self._socket.sendall(b"".join(map(_framed, commands)))

    def receive(self, count: int) -> list[Any]:
        """The replies to what was sent. Raises `OSError`."""
        return [self._reply(0) for _ in range(count)]

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _patience(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def _more(self) -> None:
        self._socket.settimeout(self._patience())
        data = self._socket.recv(_AT_ONCE)
        if not data:
            raise ConnectionError("the server hung up")
        self._left -= len(data)
        if self._left < 0:
            raise ConnectionError(f"a reply of more than {self._most} bytes")
        self._got += data

    def _line(self) -> bytes:
        start = 0
        while (end := self._got.find(b"\r\n", start)) < 0:
            if len(self._got) > _LONGEST_LINE:
                raise ConnectionError(f"no reply of a server: {self._shown(bytes(self._got[:400]))[:40]}")
            start = max(0, len(self._got) - 1)
            self._more()
        line = bytes(self._got[:end])
        del self._got[: end + 2]
        return line

    def _bytes(self, size: int) -> bytes:
        if size > self._most:
            raise ConnectionError(f"a reply of more than {self._most} bytes")
        while len(self._got) < size + 2:
            self._more()
        data = bytes(self._got[:size])
        del self._got[: size + 2]
        return data

    def _reply(self, depth: int) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return self._shown(rest)
        if kind == b"-":
            return TierError(self._shown(rest))
        number = _number(rest)
        if number is not None:
            if kind == b":":
                return number
            if kind in b"$*" and number == -1:
                return None
            if kind == b"$" and number >= 0:
                return self._bytes(number)
            if kind == b"*" and number >= 0 and depth < _DEEPEST:
                return [self._reply(depth + 1) for _ in range(number)]
        raise ConnectionError(f"no reply of a server: {self._shown(line)[:40]}")

    def _shown(self, line: bytes) -> str:
        """For people. A server that does not know a command repeats its words, and a terminal obeys some."""
        text = line.decode(errors="replace")
        text = text.replace(self._secret, _HIDDEN) if self._secret else text
        return "".join(sign if sign.isprintable() else "?" for sign in text[:_LONGEST_SHOWN])


def talk(
    port: int,
    *commands: Command,
    host: str = "127.0.0.1",
    password: str | None = None,
    timeout_seconds: float = _PATIENCE_SECONDS,
) -> list[Any]:
    """The replies in order; an error reply is a `TierError` in its place. Raises `OSError` when nobody answers."""
    with Wire(host, port, timeout_seconds=timeout_seconds) as wire:
        first: list[Command] = [] if password is None else [("AUTH", password)]
        return wire.call([*first, *commands])[len(first) :]


def ask(port: int, *words: Word, host: str = "127.0.0.1", password: str | None = None) -> Any:
    """One command. Raises `TierError` for an error reply, `OSError` when nobody answers."""
    (reply,) = talk(port, words, host=host, password=password)
    if isinstance(reply, TierError):
        raise reply
    return reply


def _framed(words: Command) -> bytes:
    raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in raw)


def _number(digits: bytes) -> int | None:
    plain = digits[1:] if digits[:1] == b"-" else digits
    return int(digits) if 0 < len(plain) < 20 and plain.isdigit() else None
