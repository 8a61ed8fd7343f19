"""Commands that are run to their end."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from mmcache.model.errors import AssetError


def call(order: Sequence[str], where: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """What it printed. Raises `AssetError` with the end of what it said, where it cannot run or fails."""
    try:
        done = subprocess.run(order, cwd=where, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise AssetError(f"`{order[0]}` cannot run: {error.strerror}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-1500:]
        raise AssetError(f"`{' '.join(order)[:120]}` failed: {said or 'no message'}")
    return done.stdout
