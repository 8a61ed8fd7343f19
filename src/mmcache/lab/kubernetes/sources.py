"""Debian's packages and their sources, fetched by apt with settings of its own: nothing of the machine is changed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from mmcache.lab.kubernetes.calls import call
from mmcache.model.errors import AssetError

_APT = Path("/etc/apt")
_TOOLS = ("apt-get", "dpkg-deb", "dpkg-source", "tar", "patch")
_SUITE = re.compile(r"^Suites:\s*(.*)$", re.MULTILINE)
_LINE = re.compile(r"^deb\s+(\[[^\]]*\]\s+)?\S+\s+(\S+)", re.MULTILINE)


def check() -> None:
    """Raises `AssetError`, which says what is missing."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise AssetError(
            f"Kubernetes is built from Debian's source packages, by {', '.join(missing)}, which "
            f"{'is' if len(missing) == 1 else 'are'} not here: use Debian 12, and apt-get install dpkg-dev patch"
        )
    if not machine_lists():
        raise AssetError("apt has no source of this Debian's own packages: see /etc/apt/sources.list.d")


def fetch(folder: Path, source: str, packages: Sequence[str]) -> list[Path]:
    """The files of the source package and the packages, in `folder`; apt checks their signatures. `AssetError`."""
    for part in ("parts", "lists/partial", "archives/partial"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name, text in machine_lists().items():
        (folder / "parts" / name).write_text(text)
    apt = [
        "apt-get", "-qq", "-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={folder}/parts",
        "-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}", "-o", "APT::Sandbox::User=root",
        "-o", "Acquire::Retries=3", "-o", "Acquire::Languages=none",
    ]  # fmt: skip
    call([*apt, "update"], folder)
    call([*apt, "source", "--download-only", source], folder)
    call([*apt, "download", *packages], folder)
    found = [file for file in folder.iterdir() if file.is_file()]
    for name in (source, *packages):
        if not any(file.name.startswith(f"{name}_") for file in found):
            raise AssetError(f"apt left no file of {name}")
    return found


def machine_lists() -> dict[str, str]:
    """The machine's lists of this release's own packages, with the sources asked for as well."""
    release = _release()
    lists: dict[str, str] = {}
    for file in (_APT / "sources.list", *sorted((_APT / "sources.list.d").glob("*"))):
        if not file.is_file():
            continue
        text = file.read_text(errors="replace")
        if file.suffix == ".sources":
            stanzas = [part for part in re.split(r"\n\s*\n", text) if _belongs(_SUITE.search(part), 1, release)]
            kept = "\n\n".join(re.sub(r"(?m)^Types:.*$", "Types: deb deb-src", part) for part in stanzas)
        elif file.suffix == ".list":
            lines = [line for line in text.splitlines() if _belongs(_LINE.match(line), 2, release)]
            kept = "\n".join(f"{line}\n{line.replace('deb', 'deb-src', 1)}" for line in lines)
        else:
            continue
        if kept:
            lists[file.name] = kept + "\n"
    return lists


def _belongs(found: re.Match[str] | None, group: int, release: str) -> bool:
    return found is not None and any(
        suite in (release, f"{release}-updates", f"{release}-security") for suite in found[group].split()
    )


def _release() -> str:
    try:
        told = Path("/etc/os-release").read_text()
    except OSError:
        return ""
    found = re.search(r"^VERSION_CODENAME=(\w+)", told, re.MULTILINE)
    return found[1] if found else ""
