"""Bytes over a socket, with and without TLS. What goes wrong is an `OSError`; `TimeoutError` when time is up."""

from __future__ import annotations

import select
import socket
import ssl
import struct
from collections.abc import Sequence
from contextlib import suppress

from mmcache.tiers.valkey.words import Buffer

PIECE = 64 << 10
"""Bytes read at once where it is not known how many come."""
_NEAR_ENOUGH = 0.02
"""The share of a time limit by which the kernel's may differ: setting it costs a system call."""
_MOST_PARTS = 512


class Stream:
    """A connected socket. Whoever may wait says so; who may not gets None instead of a wait."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._patience = 0.0
        self._idle = select.poll()
        self._idle.register(connected, select.POLLIN)
        self.fileno = connected.fileno()

    def patience(self, seconds: float) -> None:
        """How long the next calls that may wait do so. Raises `TimeoutError` where nothing is left."""
        if abs(seconds - self._patience) > _NEAR_ENOUGH * self._patience or self._patience == 0.0:
            if seconds <= 0:
                raise TimeoutError
            self._wait(seconds)
            self._patience = seconds

    def _wait(self, seconds: float) -> None:
        micros = max(1, int(seconds * 1e6))
        raw = struct.pack("@ll", micros // 1_000_000, micros % 1_000_000)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, raw)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, raw)

    def send(self, parts: Sequence[Buffer], wait: bool) -> int | None:
        """Send of `parts` what there is room for: how many bytes."""
        try:
            if len(parts) == 1:
                return self._socket.send(parts[0], 0 if wait else socket.MSG_DONTWAIT)
            return self._socket.sendmsg(parts[:_MOST_PARTS], (), 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return self._nothing(wait)

    def receive(self, wait: bool) -> bytes | None:
        """What is there; empty when the other side has closed."""
        try:
            return self._socket.recv(PIECE, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            self._nothing(wait)
            return None

    def receive_into(self, room: memoryview, wait: bool) -> int | None:
        """Fill `room` with what is there, or whole when it may wait: how many bytes; 0 = closed."""
        try:
            return self._socket.recv_into(room, 0, socket.MSG_WAITALL if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return self._nothing(wait)

    @staticmethod
    def _nothing(wait: bool) -> None:
        if wait:
            raise TimeoutError

    def pending(self) -> bool:
        """Whether bytes are here that the socket does not show any more."""
        return False

    def quiet(self) -> bool:
        """Whether nothing has come, and the other side has not closed: as it must be before a question."""
        return not self._idle.poll(0)

    def close(self) -> None:
        """Also ends the wait of another thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def forget(self) -> None:
        """Close this process's copy only: another process may go on with it."""
        self._socket.close()


class SecureStream(Stream):
    """The same inside TLS, where a wait is Python's own and parts are sent one by one."""

    _socket: ssl.SSLSocket

    def _wait(self, seconds: float) -> None:
        self._seconds = seconds

    def _set(self, wait: bool) -> None:
        self._socket.settimeout(self._seconds if wait else 0.0)

    def send(self, parts: Sequence[Buffer], wait: bool) -> int | None:
        """See `Stream.send`."""
        self._set(wait)
        sent = 0
        try:
            for part in parts:
                count = self._socket.send(part)
                sent += count
                if count < len(part):
                    break
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return sent or None
        return sent

    def receive(self, wait: bool) -> bytes | None:
        """See `Stream.receive`."""
        self._set(wait)
        try:
            return self._socket.recv(PIECE)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLEOFError:
            return b""

    def receive_into(self, room: memoryview, wait: bool) -> int | None:
        """See `Stream.receive_into`; may fill less."""
        self._set(wait)
        try:
            return self._socket.recv_into(room)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLEOFError:
            return 0

    def pending(self) -> bool:
        """See `Stream.pending`."""
        return self._socket.pending() > 0

    def quiet(self) -> bool:
        """See `Stream.quiet`."""
        return not self.pending() and super().quiet()
