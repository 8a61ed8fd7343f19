"""A cache folder for tests of the disk tier."""

from __future__ import annotations

from pathlib import Path

from mmcache.model.event import Event, Failed, MissReason
from mmcache.model.frame import Frame
from mmcache.settings import DiskSettings
from mmcache.testing.clock import FakeClock
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.disk import DiskTier

KB = 1 << 10
SMALL = DiskSettings(limit_bytes=1 << 20, segment_bytes=64 * KB, index_map_bytes=1 << 18, free_space_floor=0)


class Folder:
    """A cache folder that can be opened several times; what was opened is closed at the end."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock, self.events = root, FakeClock(), list[Event]()
        self.opened: list[DiskTier] = []

    def open(self, settings: DiskSettings = SMALL) -> DiskTier:
        tier = DiskTier(self.root, settings, clock=self.clock, emit=self.events.append)
        self.opened.append(tier)
        return tier

    def holds(self, text: bytes) -> list[str]:
        """The files that contain `text`."""
        files = [path for path in self.root.rglob("*") if path.is_file()]
        return [path.name for path in files if text in path.read_bytes()]

    def failures(self) -> str:
        return "; ".join(event.detail for event in self.events if isinstance(event, Failed))


def blob(n: int, size: int = 10 * KB, **facts: str) -> Frame:
    return make_frame(make_key(n), n.to_bytes(4, "big") * (size // 4), **facts)  # type: ignore[arg-type]


def got(tier: DiskTier, n: int) -> bytes | MissReason:
    found = tier.get([make_key(n)])[0]
    return bytes(found.frame.payload) if isinstance(found, Found) else found


def only_segment(folder: Folder) -> Path:
    return next((folder.root / "segments").glob("*.seg"))
