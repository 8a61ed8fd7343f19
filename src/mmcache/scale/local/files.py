"""The files of a cluster's folder. Only their owner reads them (0600, folders 0700); they are replaced whole."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from mmcache.model.errors import ScaleError
from mmcache.scale.local.locks import held_by_us
from mmcache.scale.local.ports import LAST
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Status

EVENT_BYTES = 128 << 10
"""Of the log of events; then its older half goes."""
_T = TypeVar("_T")
Port = Annotated[int, msgspec.Meta(ge=1, le=LAST)]


class Wanted(msgspec.Struct, frozen=True):
    """`spec.json`: what a user wants."""

    spec: ClusterSpec
    generation: int = 1
    """One more with every change."""
    first_port: Port = 7001
    """Members listen on the first free ones from here on."""


class Told(msgspec.Struct, frozen=True):
    """`status.json`: what the supervisor found in its last turn."""

    at: float
    """Unix seconds."""
    pid: int
    generation: int
    """Of the spec that the turn went by."""
    status: Status | None = None
    """None: no turn was made yet."""
    trouble: str = ""
    """Why the last turn could not be made, or a member does not start."""

    @property
    def failing(self) -> str:
        """What is in the way, a step that fails included; "" = nothing."""
        conditions = self.status.conditions if self.status else ()
        failed = [
            one.message for one in conditions if (one.type, one.status, one.reason) == ("Degraded", True, "Failed")
        ]
        return "; ".join(text for text in (self.trouble, *failed) if text)


class Event(msgspec.Struct, frozen=True):
    """A line of `events.jsonl`."""

    at: float
    reason: str
    message: str
    warning: bool = False


class MemberFile(msgspec.Struct, frozen=True):
    """`members/SHARD-PLACE/member.json`: what the platform remembers of a member."""

    shard: int
    place: int
    port: Port
    boot: str = ""
    """Of the machine, when it was started last."""
    path: str = ""
    """Of the server that was started last."""
    server: str = ""
    """Such as `valkey 9.1.2`."""
    memory_bytes: int = 0
    leaving: bool = False
    """It is to end, and its folder to go."""
    replacing: bool = False
    """It is to end, and to be started again."""


class Files:
    """Paths, and what is read and written at them. A damaged file raises `ScaleError`, which names it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members = folder / "members"
        self.spec = folder / "spec.json"
        self.status = folder / "status.json"
        self.saved = folder / "saved.json"
        self.events = folder / "events.jsonl"
        self.password_file = folder / "password"
        self.log = folder / "supervisor.log"
        self.supervisor_lock = folder / "supervisor.lock"
        self.command_lock = folder / "command.lock"

    def make(self) -> None:
        """The folder, and the password of the cluster. Raises `OSError`, `ScaleError` where it is another's."""
        for folder in (self.folder, self.members):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.require_owner(folder)
            folder.chmod(0o700)
        if not self.password_file.exists():
            write(self.password_file, secrets.token_urlsafe(24).encode(), durable=True)

    def require_owner(self, folder: Path) -> None:
        """Raises `ScaleError` where a folder is another user's, root's too."""
        if folder.stat().st_uid != os.geteuid():
            raise ScaleError(f"{folder} belongs to another user: give --folder one of your own")

    @property
    def password(self) -> str:
        """That servers ask for. Raises `ScaleError` where there is none."""
        try:
            found = self.password_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ScaleError(f"cannot read the cluster's password: {error}") from error
        if not found:
            raise ScaleError(f"{self.password_file} is empty, and servers without a password are everybody's")
        return found

    @property
    def is_clusters(self) -> bool:
        """Whether the folder is a cluster's. One that only has names in it as ours have is not to be emptied."""
        try:
            self.wanted()
        except ScaleError:
            return self.spec.exists() and self.command_lock.exists()
        return True

    def strangers(self) -> list[str]:
        """What a folder has in it that is no beginning of a cluster's."""
        begun = {self.password_file.name, self.command_lock.name, self.members.name}
        found = [path.name for path in self.folder.iterdir() if path.name not in begun and not self._is_draft(path)]
        if self.members.is_dir():
            found += [f"{self.members.name}/{path.name}" for path in self.members.iterdir()]
        return sorted(found)

    def remove(self) -> None:
        """All that is of the cluster, its members' folders excepted; what shows that it is one goes last."""
        ours = (self.status, self.saved, self.events, self.log, self.password_file, self.supervisor_lock)
        for path in (*ours, *filter(self._is_draft, self.folder.iterdir()), self.spec, self.command_lock):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # there are other things in it, or somebody begins anew
            self.folder.rmdir()

    def _is_draft(self, path: Path) -> bool:
        """Whether it was left by one of us who was killed while he wrote."""
        names = {one.name for one in vars(self).values()}
        match = re.fullmatch(r"\.(.+)\.\d+", path.name)
        return match is not None and match[1] in names

    @contextmanager
    def commanded(self) -> Iterator[None]:
        """One command at a time changes what is wanted."""
        with held_by_us(self.command_lock, patience=60.0, whose="another `mmcache cluster` command"):
            yield

    def wanted(self) -> Wanted:
        """Raises `ScaleError`."""
        try:
            return _read(self.spec, Wanted)
        except ScaleError as error:
            raise ScaleError(f"{error} (mmcache cluster down ends what is there)") from error

    def told(self) -> Told | None:
        """None where nothing was told yet, or what is there cannot be read."""
        try:
            return _read(self.status, Told)
        except ScaleError:
            return None

    def baseline(self) -> Any:
        """What the burst detector knew; None where that is lost: it learns anew."""
        try:
            return msgspec.json.decode(self.saved.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None

    def member(self, name: str) -> MemberFile | None:
        """None where there is none, or what is there cannot be read."""
        try:
            return _read(self.members / name / "member.json", MemberFile)
        except ScaleError:
            return None

    def member_names(self) -> list[str]:
        """Of all folders, by shard and place."""
        try:
            found = [path.name for path in self.members.iterdir() if path.is_dir()]
        except FileNotFoundError:
            return []
        numbered = (tuple(name.split("-")) for name in found)
        return [f"{a}-{b}" for a, b in sorted((int(n[0]), int(n[1])) for n in numbered if _numbers(n))]

    def append(self, event: Event) -> None:
        """To the log of events, which stays small."""
        line = msgspec.json.encode(event) + b"\n"
        try:
            old = self.events.read_bytes()
        except FileNotFoundError:
            old = b""
        if len(old) + len(line) > EVENT_BYTES:
            old = old[-EVENT_BYTES // 2 :].partition(b"\n")[2]
            write(self.events, old + line)
            return
        descriptor = os.open(self.events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def last_events(self, count: int) -> list[Event]:
        """The newest last; a line that was cut off is left out."""
        try:
            lines = self.events.read_bytes().splitlines()
        except OSError:
            return []
        found = []
        for line in lines[-count - 1 :]:
            try:
                found.append(msgspec.json.decode(line, type=Event))
            except msgspec.MsgspecError:
                continue
        return found[-count:]


def write(path: Path, data: bytes | object, *, durable: bool = False) -> None:
    """Replace a file whole; what is not bytes becomes JSON. durable: also when the power is cut. Raises `OSError`."""
    raw = data if isinstance(data, bytes) else msgspec.json.encode(data)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(raw)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _read(path: Path, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise ScaleError(f"there is no {path}") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise ScaleError(f"cannot read {path}: {error}") from error


def _numbers(parts: tuple[str, ...]) -> bool:
    return len(parts) == 2 and all(part.isascii() and part.isdigit() for part in parts)
