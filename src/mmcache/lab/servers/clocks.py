"""Clocks that can be set: of a process, by libfaketime (Debian's package `faketime`), and imitated in this one.

libfaketime reads its offset from a file whenever the process asks for the time; the monotonic clock stays real.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from mmcache.model.errors import AssetError

_LIBRARIES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")


def faketime() -> Path:
    """The library that fakes a process's clock. Raises `AssetError` where it is not installed."""
    for pattern in _LIBRARIES:
        for found in sorted(Path("/").glob(pattern.lstrip("/"))):
            return found
    raise AssetError("no libfaketime here: apt-get install faketime")


def clock_of(offset_file: Path, ahead: float) -> dict[str, str]:
    """What the environment of a process must hold to give it a wall clock of its own. Raises `AssetError`."""
    library = faketime()
    set_clock(offset_file, ahead)
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(offset_file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def set_clock(offset_file: Path, ahead: float) -> None:
    """Set the clock of the process that reads this file; whole or not at all."""
    fresh = offset_file.with_suffix(".new")
    fresh.write_text(f"{ahead:+.6f}\n", encoding="ascii")
    os.replace(fresh, offset_file)


class Elsewhere:
    """The clocks of another machine, imitated on this one: they began elsewhere, and `advance` makes them jump.

    `Clock`. `monotonic` began `began` seconds apart, `wall` is `skew` seconds off. What is advanced passes for all
    that the list `passed` is shared with.
    """

    def __init__(self, began: float = 0.0, skew: float = 0.0, passed: list[float] | None = None) -> None:
        self.began, self.skew = began, skew
        self.passed = [0.0] if passed is None else passed

    def monotonic(self) -> float:
        """Seconds; see `Clock.monotonic`."""
        return time.monotonic() + self.began + self.passed[0]

    def wall(self) -> float:
        """Unix seconds; see `Clock.wall`."""
        return time.time() + self.skew + self.passed[0]
