"""Waiting for what will happen, on a machine that may be busy: for long, and no longer than needed."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds."""


def until(met: Callable[[], object], what: str = "what is waited for") -> None:
    """Return when `met()` is true. Raises `AssertionError`."""
    end = time.monotonic() + PATIENCE
    while not met():
        assert time.monotonic() < end, f"never {what}"
        time.sleep(0.01)
