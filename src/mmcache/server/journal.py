"""The access log: one line a request, with nothing of what was asked, by whom, or with which key."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any

import msgspec

from mmcache.server.exchange import Verdict

FLUSH_SECONDS = 0.2
MOST_WAITING = 10_000
_WORDS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


class Journal:
    """Lines are gathered and written together: a write for each would cost more than a hit."""

    def __init__(self, write: Callable[[str], Any] | None = None, *, as_json: bool = False, on: bool = True) -> None:
        self._write = write or _to_stderr
        self._as_json, self.on = as_json, on
        self._waiting: list[tuple[float, str, str, int, Verdict | None, float]] = []
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, method: str, path: str, status: int, verdict: Verdict | None, seconds: float) -> None:
        """A request was answered. path: a route's, never what a client wrote."""
        if not self.on:
            return
        self._waiting.append((time.time(), method, path, status, verdict, seconds))
        if len(self._waiting) >= MOST_WAITING:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def say(self, what: str, **facts: Any) -> None:
        """Something else has happened; also where requests are not logged."""
        self.flush()
        line = {"time": round(time.time(), 3), "event": what} | facts
        self._write(msgspec.json.encode(line).decode() if self._as_json else _plain(time.time(), what, facts))

    def trouble(self, path: str, error: BaseException) -> None:
        """A bug or a fault of ours; by kind and place only, since its words may hold what was asked."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].name}:{frames[-1].lineno}" if frames else "?"
        self.say("failed", route=path, error=type(error).__name__, place=place)

    @contextmanager
    def listening(self, name: str) -> Iterator[None]:
        """Meanwhile, what this logger and those below it warn of is told as events, too; from whatever thread."""
        logger, handler = logging.getLogger(name), _Warnings(self._write, self._as_json)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)

    def flush(self) -> None:
        """Write what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._write("\n".join([self._line(*each) for each in waiting]))

    def _line(self, when: float, method: str, path: str, status: int, verdict: Verdict | None, seconds: float) -> str:
        outcome, reason = ("gone", "") if verdict is None else (verdict.outcome, verdict.reason)
        told = _told(method, path, status, outcome, reason, self._as_json)
        if self._as_json:
            return f'{{"time":{when:.3f},{told},"ms":{seconds * 1e3:.3f}}}'
        return f"{_stamp(int(when))} {told} {seconds * 1e3:.1f} ms"


class _Warnings(logging.Handler):
    """Writes by itself: the journal's lines wait in the loop's thread."""

    def __init__(self, write: Callable[[str], Any], as_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._told, self._as_json = write, as_json

    def emit(self, record: logging.LogRecord) -> None:
        try:
            facts = {"logger": record.name, "message": " ".join(record.getMessage().splitlines())}
        except (TypeError, ValueError):  # its arguments do not fit its text
            return
        line = {"time": round(record.created, 3), "event": "warning"} | facts
        self._told(msgspec.json.encode(line).decode() if self._as_json else _plain(record.created, "warning", facts))


@lru_cache(maxsize=4096)
def _told(method: str, path: str, status: int, outcome: str, reason: str, as_json: bool) -> str:
    """What most lines have in common with others."""
    if reason and not _WORDS.issuperset(reason):
        reason = "?"
    if as_json:
        line = {"method": method, "route": path, "status": status, "outcome": outcome, "reason": str(reason)}
        return msgspec.json.encode(line).decode()[1:-1]
    return f"{method} {path} {status} {outcome}" + (f" ({reason})" if reason else "")


@lru_cache(maxsize=8)
def _stamp(when: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


def _plain(when: float, what: str, facts: dict[str, Any]) -> str:
    return " ".join([_stamp(int(when)), what, *(f"{name}={value}" for name, value in facts.items())])


def _to_stderr(line: str) -> None:
    with suppress(OSError, ValueError):  # where nobody reads the log any more, requests and the end must go on
        print(line, file=sys.stderr, flush=True)
