"""The folder: which files there are, their modes, their version, and the lock that changes of the layout take.

FORMAT          `mmcache-disk <version>`
lock            flock'ed while the layout changes (first use, a new index)
CURRENT         name of the index folder in use
index-<n>/      LMDB
segments/       <16 hex digits>.seg: frames, each at a multiple of 64
claims          byte-range locks, no content
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmcache.model.errors import FormatVersionError, TierError

FORMAT_VERSION = 1
_FORMAT = re.compile(rb"mmcache-disk (\d+)\n")


class Layout:
    """Paths of one cache folder."""

    def __init__(self, root: Path) -> None:
        """Create or check the folder.

        Raises `FormatVersionError` for a folder of a newer version, `TierError` when it cannot be read.
        A folder that cannot be written, or that does not exist and cannot be made, is `read_only`.
        """
        self.root = root.expanduser().absolute()
        self.segments = self.root / "segments"
        self.claims = self.root / "claims"
        self._mine, self._depth = threading.RLock(), 0
        self.set_aside: list[str] = []
        """What the constructor moved out of the way, for an event."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            if self.root.exists():
                raise TierError(f"{self.root} is not a folder; give another one") from error
        self.read_only = not os.access(self.root, os.W_OK)
        if self.read_only:
            self._version()
            return
        try:
            with self.changing():
                self._prepare()
        except OSError as error:
            raise TierError(f"cannot use {self.root} as a cache folder: {error}") from error

    def _version(self) -> int | None:
        try:
            text = (self.root / "FORMAT").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TierError(f"cannot read {self.root}: {error}; check its owner and mode") from error
        match = _FORMAT.fullmatch(text)
        version = int(match[1]) if match else 0
        if version > FORMAT_VERSION:
            raise FormatVersionError(
                f"{self.root} was written by a newer mmcache (format {version}, this one knows {FORMAT_VERSION}); "
                "upgrade mmcache or give another folder"
            )
        return version

    def _prepare(self) -> None:
        version = self._version()
        if version is not None and version < FORMAT_VERSION:
            for path in [*self.root.glob("index-*"), self.segments, self.root / "CURRENT"]:
                if path.exists() and ".corrupt-" not in path.name and ".old-" not in path.name:
                    self.set_aside.append(str(self.aside(path, "old")))
            version = None
        self._remove("dead-index-*")
        self.segments.mkdir(mode=0o700, exist_ok=True)
        if version is None:
            self.write(self.root / "FORMAT", b"mmcache-disk %d\n" % FORMAT_VERSION)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the folder's lock against all other users of it; the same thread may take it again."""
        with self._mine:
            self._depth += 1
            try:
                if self._depth > 1:
                    yield
                else:
                    yield from self._locked()
            finally:
                self._depth -= 1

    def _locked(self) -> Iterator[None]:
        fd = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing alone leaves it to a child that was forked meanwhile
            os.close(fd)

    def write(self, path: Path, content: bytes) -> None:
        """Replace a small file atomically."""
        fresh = path.with_name(path.name + ".new")
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, content)
            os.fsync(fd)
        finally:
            os.close(fd)
        fresh.replace(path)

    def aside(self, path: Path, why: str) -> Path:
        """Rename `path` to the first free `<path>.<why>-<n>`."""
        number = 1
        while (target := path.with_name(f"{path.name}.{why}-{number}")).exists():
            number += 1
        return path.rename(target)

    def _remove(self, pattern: str) -> None:
        for path in self.root.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def remove_set_aside(self) -> None:
        """Delete what `aside` has moved away: it may hold bytes and names that must go."""
        self._remove("*.corrupt-*")
        self._remove("*.old-*")

    def current(self) -> Path | None:
        """The index folder in use, None when there is none yet. An unreadable pointer counts as none."""
        try:
            name = (self.root / "CURRENT").read_text("ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        path = self.root / name
        return path if re.fullmatch(r"index-\d+", name) and path.is_dir() else None

    def new_index(self) -> Path:
        """A new, empty index folder; `use` makes it the current one. Call while `changing`."""
        numbers = [int(m[1]) for path in self.root.glob("index-*") if (m := re.match(r"index-(\d+)", path.name))]
        path = self.root / f"index-{max(numbers, default=0) + 1}"
        path.mkdir(mode=0o700)
        return path

    def use(self, path: Path) -> None:
        """Make `path` the current index and delete those that it replaces. Call while `changing`."""
        self.write(self.root / "CURRENT", path.name.encode() + b"\n")
        for old in self.root.glob("index-*"):
            if re.fullmatch(r"index-\d+", old.name) and old != path:
                # Renamed first: whoever opens it by name right now must not create a fresh file in it.
                shutil.rmtree(old.rename(old.with_name(f"dead-{old.name}")), ignore_errors=True)

    def segment(self, number: int) -> Path:
        """The file of a segment."""
        return self.segments / f"{number:016x}.seg"

    def sync(self) -> None:
        """Make renames, creations and unlinks durable."""
        for path in (self.root, self.segments):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
