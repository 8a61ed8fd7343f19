"""Jitter from the key, not from chance: all processes agree, and a test can predict it."""

from __future__ import annotations

from mmcache.model.key import Key

_BYTES = 8


def share_of(key: Key) -> float:
    """A number in [0, 1), uniform over keys.

    The digest is uniform already; the region is mixed in so that the tiles of one picture spread as well.
    """
    drawn = int.from_bytes(key.digest[:_BYTES]) ^ int.from_bytes(key.region[:_BYTES])
    return drawn / (1 << 8 * _BYTES)
