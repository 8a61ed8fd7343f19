"""`Wrapper`: a tier around a tier that changes nothing. Faults, latency and audits override what they watch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mmcache.model.event import MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline, Found, Held, Tier, TierStats


class Wrapper:
    """Passes every call on to `inner`."""

    def __init__(self, inner: Tier) -> None:
        self.inner = inner
        self.name = inner.name

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`."""
        return self.inner.get(keys)

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`."""
        return self.inner.put(frames, deadlines)

    def drop(self, keys: Iterable[Key]) -> int:
        """See `Tier.drop`."""
        return self.inner.drop(keys)

    def scan(self) -> Iterator[Held]:
        """See `Tier.scan`."""
        return self.inner.scan()

    def flush(self) -> None:
        """See `Tier.flush`."""
        self.inner.flush()

    def stats(self) -> TierStats:
        """See `Tier.stats`."""
        return self.inner.stats()

    def close(self) -> None:
        """See `Tier.close`."""
        self.inner.close()
