"""Where a `HotView` goes: a file in the cache's folder, for `mmcache hot`, and a receiver of OTLP logs."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import secrets
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from mmcache import forks
from mmcache.hotkeys.view import EVENT_NAME, MOST_BYTES, HotView, decode, encode
from mmcache.settings import TelemetrySettings

FOLDER = "hot"
"""Under the cache's root."""
OLD_SECONDS = 180.0
"""What was last written so long ago is nobody's any more, whichever machine or container wrote it, and whoever has its
process's number now: who lives writes once a minute at least."""
DEAD_SECONDS = 30.0
"""The same where its process is not to be seen here: it may be another container's."""
_PATIENCE_SECONDS = 5.0

_taken: set[tuple[int, int]] = set()
"""Pids and numbers; a forked child's are its own."""
_lock = forks.Lock()


class Instance:
    """Whose views they are: host and pid, as telemetry says it of a process' first cache. From the second one that
    lives in a process on with a number, so that one's views do not stand for another's."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        with _lock:
            self._number = next(number for number in itertools.count(1) if (self._pid, number) not in _taken)
            _taken.add((self._pid, self._number))
        self.name = f"{socket.gethostname()}-{self._pid}{f'-{self._number}' if self._number > 1 else ''}"

    def close(self) -> None:
        """Another may have its number."""
        with _lock:
            _taken.discard((self._pid, self._number))


class HotFile:
    """`root/hot/hot-PID-RANDOM.json`, readable by its owner: written whole or not at all, removed by `close`. Failures
    are counted: it is only news. The random part tells containers apart, whose first process is 1 in each."""

    def __init__(self, root: Path) -> None:
        self.path = root / FOLDER / f"hot-{os.getpid()}-{secrets.token_hex(4)}.json"
        self._owner, self._closed = os.getpid(), False
        self.failed = 0
        atexit.register(self.close)

    def write(self, view: HotView) -> bool:
        """Replace it; whether that worked. Nothing after `close`."""
        if self._closed:
            return False
        try:
            self.path.parent.mkdir(mode=0o700, exist_ok=True)  # never the root itself: it may be gone on purpose
            handle, draft = tempfile.mkstemp(prefix=f".{self.path.stem}-", suffix=".draft", dir=self.path.parent)
            try:
                with os.fdopen(handle, "wb") as file:  # of mode 0600
                    file.write(encode(view))
                os.replace(draft, self.path)
                if self._closed:  # meanwhile
                    self.close()
            except BaseException:
                with suppress(OSError):
                    os.unlink(draft)
                raise
        except OSError:
            self.failed += 1
            return False
        return True

    def close(self) -> None:
        """Take it away, also where a process ends that closed nothing; a forked child leaves its parent's."""
        self._closed = True
        atexit.unregister(self.close)
        if os.getpid() == self._owner:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


def sweep(root: Path, now: float | None = None) -> int:
    """Take away what processes left that are gone; how many files. now: Unix seconds."""
    swept = 0
    for path, pid, age in _files(root, time.time() if now is None else now, (".json", ".draft")):
        if _gone(pid, age):
            with suppress(OSError):
                path.unlink()
                swept += 1
    return swept


def published(root: Path, now: float | None = None) -> tuple[list[HotView], list[str]]:
    """What the processes that use `root` say, by instance; and of which files nothing could be read, and why."""
    found, damaged = [], []
    for path, pid, age in _files(root, time.time() if now is None else now, (".json",)):
        if _gone(pid, age):
            continue
        try:
            found.append(_read(path))
        except FileNotFoundError:
            continue
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            damaged.append(f"{path.name}: {error}")
    return sorted(found, key=lambda view: view.instance), damaged


def _read(path: Path) -> HotView:
    # not to wait for somebody who writes to it, where it is a pipe, nor to be led away by a link
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        return decode(file.read(MOST_BYTES + 1))


def _files(root: Path, now: float, kinds: tuple[str, ...]) -> list[tuple[Path, int, float]]:
    """Path, pid and age in seconds."""
    found = []
    with suppress(OSError):
        for path in sorted((root / FOLDER).iterdir()):
            name, pid = path.name.lstrip("."), 0
            if path.suffix not in kinds or not name.startswith("hot-"):
                continue
            with suppress(ValueError, OSError):
                pid = int(name.removeprefix("hot-").split(".")[0].split("-")[0])
                found.append((path, pid, now - path.lstat().st_mtime))
    return found


def _gone(pid: int, age: float) -> bool:
    return age > OLD_SECONDS or (age > DEAD_SECONDS and not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except PermissionError:
        return True
    return pid > 0


def as_logs(view: HotView) -> dict[str, Any]:
    """The body of an OTLP/HTTP request in JSON, with one log record (OpenTelemetry, logs data model)."""
    at = str(int(view.at * 1e9))
    record = {
        "timeUnixNano": at,
        "observedTimeUnixNano": at,
        "severityNumber": 9,
        "severityText": "INFO",
        "eventName": EVENT_NAME,
        "attributes": [_attribute("event.name", EVENT_NAME)],  # for who reads what was before OTLP 1.5
        "body": {"stringValue": encode(view).decode()},
    }
    resource = [_attribute("service.name", view.service), _attribute("service.instance.id", view.instance)]
    scope = {"scope": {"name": "mmcache.hotkeys"}, "logRecords": [record]}
    return {"resourceLogs": [{"resource": {"attributes": resource}, "scopeLogs": [scope]}]}


def _attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


class HotSender:
    """Sends views to `POST {otlp}/v1/logs`, in a thread of its own: what comes while one is under way replaces what
    waits, and what does not arrive is dropped and counted."""

    def __init__(self, otlp: str, headers: Mapping[str, str] | None = None) -> None:
        """otlp: base address of a receiver. headers: sent with each request. Raises `SettingsError`."""
        settings = TelemetrySettings(otlp, headers)
        self._address = f"{otlp.rstrip('/')}/v1/logs"
        self._headers = {"content-type": "application/json"} | dict(settings.headers or {})
        self._waiting: deque[HotView] = deque(maxlen=1)
        self._wake, self._over = threading.Event(), False
        self._thread: threading.Thread | None = None
        self.sent = self.lost = 0

    def offer(self, view: HotView) -> None:
        """Send it soon; never waits."""
        if self._over:
            return
        self.lost += len(self._waiting)
        self._waiting.append(view)
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mmcache-hot-sender", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._over:
            self._wake.wait()
            self._wake.clear()
            with suppress(IndexError):
                self.send(self._waiting.popleft())

    def send(self, view: HotView) -> bool:
        """Send it now; whether the receiver took it. Waits for it `_PATIENCE_SECONDS` at most at a time."""
        from http.client import HTTPException
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class Stay(HTTPRedirectHandler):
            """What proves who tells goes to nobody else."""

            def redirect_request(self, *_: Any) -> None:
                return None

        try:
            body = json.dumps(as_logs(view)).encode()
            request = Request(self._address, body, self._headers, method="POST")
            with build_opener(Stay).open(request, timeout=_PATIENCE_SECONDS) as answer:
                taken = 200 <= int(answer.status) < 300
        except (OSError, HTTPException, ValueError):
            taken = False
        self.sent, self.lost = self.sent + taken, self.lost + (not taken)
        return taken

    def close(self) -> None:
        """Send no more; what is under way is left to itself."""
        self._over = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)
