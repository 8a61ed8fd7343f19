"""What a cache does with what it finds: a word that may change at run time, checked."""

from __future__ import annotations

from typing import Literal

from mmcache.model.errors import SettingsError

Mode = Literal["on", "shadow", "off"]


def checked_mode(mode: Mode) -> Mode:
    """Raises `SettingsError`."""
    if mode not in ("on", "shadow", "off"):
        raise SettingsError(f'mode is "on", "shadow" or "off", not {mode!r}')
    return mode


def checked_share(share: float) -> float:
    """Raises `SettingsError`."""
    if not (isinstance(share, int | float) and 0.0 <= share <= 1.0):
        raise SettingsError(f"verify_share is a share between 0 and 1, not {share!r}")
    return share
