"""Finding a source checkout: benchmarks and published results live there, not in the installed package."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import mmcache


def _is_ours(folder: Path) -> bool:
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False
    return bool(project.get("project", {}).get("name") == "mmcache")


def _places() -> Iterator[Path]:
    here = Path.cwd()
    yield here
    yield from here.parents
    if mmcache.__file__ is not None:  # an editable install: src/mmcache/__init__.py
        yield Path(mmcache.__file__).resolve().parents[2]


def find() -> Path | None:
    """The checkout around the working folder or around this very package, if any."""
    return next(filter(_is_ours, _places()), None)
