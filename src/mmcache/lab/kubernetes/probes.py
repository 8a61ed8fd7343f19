"""A container's probes, run for real, without anybody waiting for them."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

Json = Mapping[str, Any]
Run = Callable[[list[str]], "subprocess.Popen[bytes]"]
_EAGER_SECONDS = 0.25
"""Between two tries of a probe that has not succeeded yet, or as long as the last one took: nobody wants to wait for a
whole period after a start, nor that a busy machine does nothing but try."""


class Probe:
    """One probe; `outcome` is None until it has one, then True or False, with thresholds counted in."""

    def __init__(self, told: Json, address: str, ports: Mapping[str, int], run: Run, pool: Executor) -> None:
        self._told, self._address, self._ports, self._run, self._pool = told, address, ports, run, pool
        self.outcome: bool | None = None
        self._asking: subprocess.Popen[bytes] | Future[bool] | None = None
        self._since = 0.0
        self._next: float | None = None
        self._first = 0.0
        self._row = (False, 0)
        """The last answer, and how often in a row."""

    def tick(self, now: float) -> None:
        """Start a try that is due, or fetch the answer of one that is under way."""
        if self._next is None:
            self._next = self._first = now + float(self._told.get("initialDelaySeconds", 0))
        if self._asking is not None:
            answer = self._answer(now)
            if answer is None:
                return
            self._asking = None
            period = float(self._told.get("periodSeconds", 10))
            self._count(answer, now, period)
            self._next = now + (period if self.outcome else min(period, max(_EAGER_SECONDS, now - self._since)))
        elif now >= self._next:
            self._since = now
            self._asking = self._start()

    def stop(self) -> None:
        """Nobody waits for the answer any more."""
        if isinstance(self._asking, subprocess.Popen):
            with suppress(ProcessLookupError):
                os.killpg(self._asking.pid, signal.SIGKILL)
            self._asking.wait()
        self._asking = None

    def _count(self, answer: bool, now: float, period: float) -> None:
        self._row = (answer, self._row[1] + 1 if self._row[0] == answer else 1)
        if answer:
            self.outcome = self.outcome or self._row[1] >= self._told.get("successThreshold", 1)
            return
        threshold = self._told.get("failureThreshold", 3)
        if self._row[1] >= threshold if self.outcome is not None else now - self._first >= threshold * period:
            self.outcome = False

    def _start(self) -> subprocess.Popen[bytes] | Future[bool]:
        told = self._told
        if "exec" in told:
            return self._run(list(told["exec"]["command"]))
        limit = float(told.get("timeoutSeconds", 1))
        asked = told.get("tcpSocket") or told.get("httpGet") or {}
        host, port = asked.get("host") or self._address, self._port(asked.get("port", 0))
        if "httpGet" in told:
            return self._pool.submit(_http, host, port, asked.get("path", "/"), limit)
        return self._pool.submit(_tcp, host, port, limit)

    def _answer(self, now: float) -> bool | None:
        asking = self._asking
        if isinstance(asking, subprocess.Popen):
            if asking.poll() is None:
                if now - self._since < float(self._told.get("timeoutSeconds", 1)):
                    return None
                self.stop()
                return False
            return asking.returncode == 0
        assert asking is not None
        return asking.result() if asking.done() else None

    def _port(self, port: int | str) -> int:
        return port if isinstance(port, int) else self._ports.get(port, 0)


def _tcp(host: str, port: int, limit: float) -> bool:
    try:
        socket.create_connection((host, port), limit).close()
    except OSError:
        return False
    return True


def _http(host: str, port: int, path: str, limit: float) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=limit)
    try:
        connection.request("GET", path)
        return 200 <= connection.getresponse().status < 400
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
