"""What a prefetcher says of itself, and the file in the cache's folder by which `mmcache prefetch status` sees it.

It holds counts and times: no key, no session, no tenant.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import tempfile
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

FOLDER = "prefetch"
"""Under the cache's root."""
OLD_SECONDS = 10.0
"""What another host wrote last so long ago is taken for gone."""
FORGOTTEN_SECONDS = 86_400.0
LATEST = 2.0**37
"""Unix seconds, some four thousand years on."""
MOST_BYTES = 1 << 16
"""Of a file; a longer one is not read."""
MOST_FILES = 1024
"""Of a folder; more are not looked at."""
_OURS = re.compile(r"\d+\.\d+\.json|\..*\.new")
"""Names of what this module writes: it takes nothing else away."""


class Moved(msgspec.Struct, frozen=True):
    """A transition of the controller."""

    at: float
    """Unix seconds."""
    was: str
    state: str
    reason: str


class PrefetchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One process's prefetcher."""

    state: str
    """`idle`, `evaluating` or `preloading`; `stopped`."""
    reason: str
    """Why it is idle; `misses` when it is not. See `controller.Reason`; `unused`: paused, as too little of what was
    brought was used; `sample`: what was brought is watched before more is."""
    since: float
    """Unix seconds."""
    trust: str
    """`proving`, `trusted` or `paused`."""
    paused_seconds: float
    """That are left of a pause."""
    sessions: int
    nodes: int
    edges: int
    remembered: int
    """Inputs that can be computed again."""
    remembered_bytes: int
    visits: int
    lost: int
    """Visits that were not looked at, for there were too many."""
    promoted: int
    """Blocks brought from lower tiers."""
    computed: int
    failed: int
    cancelled: int
    used: int
    """Of what was brought: asked for, by anybody."""
    wasted: int
    """Of what was brought: not asked for in time. The rest is not known yet."""
    share_used: float | None
    """Of what is used or wasted; None: nothing is yet."""
    share_low: float
    """Wilson's interval of that, 95 %."""
    share_high: float
    share_foreseen: float | None
    """Of the last that were settled, those that were asked for by whom they were brought for: by this it is judged
    whether it pays. What is brought at random is used, too, where there are few keys."""
    bytes: int
    seconds_saved: float
    """Of computing, that those who asked did not wait for."""
    seconds_spent: float
    """Of computing speculatively."""
    bytes_left: float
    """Of the budget now; below 0: owed."""
    computations_left: float
    queued: int
    under_way: int
    pauses: int
    last_failure: str
    """Type of the last error."""
    moves: list[Moved]
    """The last transitions, oldest first; at most 32."""


class Published(msgspec.Struct, frozen=True):
    """A status, whose it is, and when it was written."""

    at: float
    """Unix seconds."""
    host: str
    pid: int
    started: str
    """When that process began, as its kernel says: a pid is given out again."""
    status: PrefetchStatus


class Publisher:
    """Writes one process's status. Failures are nobody's business: it is only news."""

    def __init__(self, root: Path, number: int) -> None:
        """number: which of this process's prefetchers."""
        self.path = root / FOLDER / f"{os.getpid()}.{number}.json"
        self._host, self._started = socket.gethostname(), started(os.getpid())

    def publish(self, status: PrefetchStatus) -> bool:
        """Replace the file, whole or not at all; whether that worked."""
        shown = Published(time.time(), self._host, os.getpid(), self._started, status)
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            if self.path.parent.is_symlink():  # to where nobody said that this may write
                return False
            handle, temporary = tempfile.mkstemp(prefix=".", suffix=".new", dir=self.path.parent)  # mode 0600
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.encode(shown))
                os.replace(temporary, self.path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            return True
        return False


def remove(path: Path) -> None:
    """Take one's own file away."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def sweep(root: Path) -> None:
    """Take away what processes of this machine left when they died, and what is a day old."""
    now = time.time()
    for path in _files(root):
        with suppress(OSError):
            found = _read(path) if path.suffix == ".json" else None
            age = now - path.lstat().st_mtime
            if age > FORGOTTEN_SECONDS or (found is not None and _ours(found) and not _alive(found)):
                path.unlink()


def seen(root: Path) -> list[Published]:
    """What the prefetchers of the processes that live say, the newest first."""
    found = []
    for path in _files(root):
        one = _read(path) if path.suffix == ".json" else None
        if one is not None and (_alive(one) if _ours(one) else abs(time.time() - one.at) <= OLD_SECONDS):
            found.append(one)
    return sorted(found, key=lambda one: -one.at)


def _files(root: Path) -> list[Path]:
    """What is named as this module names its files; none where the folder is a link to elsewhere."""
    folder = root / FOLDER
    try:
        with os.scandir(folder) as entries:
            known = (Path(entry.path) for entry in entries if _OURS.fullmatch(entry.name))
            return [] if folder.is_symlink() else sorted(islice(known, MOST_FILES))
    except OSError:
        return []


def _read(path: Path) -> Published | None:
    """None: of another version, or no status at all. Never waits, as for a pipe, and follows no link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            raw = file.read(MOST_BYTES + 1)
        found = msgspec.json.decode(raw, type=Published) if len(raw) <= MOST_BYTES else None
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return found if found is None or _sane(found) else None


def _sane(one: Published) -> bool:
    """Whether it can be shown: a screen takes some characters for orders, and no calendar has the year 10^300."""
    times = (one.at, one.status.since, *(move.at for move in one.status.moves))
    shown = [one.host, one.status.state, one.status.reason, one.status.trust, one.status.last_failure]
    shown += [text for move in one.status.moves for text in (move.was, move.state, move.reason)]
    return all(0 <= at < LATEST for at in times) and all(text.isprintable() for text in shown)


def _ours(one: Published) -> bool:
    return one.host == socket.gethostname()


def _alive(one: Published) -> bool:
    if one.pid <= 0:
        return False
    try:
        os.kill(one.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's
        pass
    return started(one.pid) == one.started


def started(pid: int) -> str:
    """When process `pid` began, in clock ticks since boot; empty where nobody says."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
