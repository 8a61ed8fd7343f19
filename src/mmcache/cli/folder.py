"""A cache folder, opened for a command: its disk tier, and the secret of its keys; or a shared tier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mmcache.cli.output import Folder
from mmcache.model.errors import SettingsError
from mmcache.settings import DiskSettings, parse_bytes

if TYPE_CHECKING:
    from mmcache.tiers.disk import DiskTier
    from mmcache.tiers.valkey import ValkeyTier

SharedUrl = Annotated[
    str | None, Parameter(help="Look into the shared tier at this URL instead, `valkey://host:6379?cluster=true`.")
]

KEY_FILE = "realm.key"
UNLIMITED = 1 << 62
"""Looking into a folder must not evict anything; its limit is the business of the caches that fill it."""


def require(folder: Folder) -> None:
    """Raise `SettingsError` unless there is a cache folder: a mistyped path must not make one."""
    if not (folder.path / KEY_FILE).is_file():
        raise SettingsError(
            f"there is no cache at {folder.path}; give its folder with --root, or make one: mmcache demo, "
            "or Cache(folder) in Python"
        )


@contextmanager
def disk_tier(folder: Folder, *, limit: int | str = UNLIMITED) -> Iterator[DiskTier]:
    """The folder's disk tier, open while the block runs."""
    from mmcache.tiers.disk import DiskTier

    tier = DiskTier(folder.path, DiskSettings(limit_bytes=parse_bytes(limit)))
    try:
        yield tier
    finally:
        tier.close()


@contextmanager
def shared_tier(folder: Folder, url: str) -> Iterator[ValkeyTier]:
    """The shared tier at `url`, open while the block runs. Raises `SettingsError` where a folder was named, too."""
    from mmcache.tiers.valkey import ValkeyTier

    if folder.root is not None:
        raise SettingsError("give --root or --shared, not both: they are looked into one by one")
    tier = ValkeyTier.open(url, timeout_seconds=10.0)
    try:
        yield tier
    finally:
        tier.close()


def secret(folder: Folder) -> bytes:
    """The secret that the folder's keys are made with; made when the folder has none yet."""
    from mmcache.keys.realm import load_secret

    folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return load_secret(folder.path / KEY_FILE)


def forget_everywhere(folder: Folder) -> None:
    """Make every process that uses the folder drop what it holds in memory, at its next lookup.

    More news than the ring of invalidations has slots means "forget everything", and overwrites the keys in it.
    """
    from mmcache.model.key import PART_BYTES, Key
    from mmcache.tiers.broadcast import SLOTS, Broadcast

    nobody = Key(bytes(PART_BYTES), bytes(PART_BYTES))
    Broadcast(folder.path / "invalidations").publish([nobody] * (SLOTS + 1))
