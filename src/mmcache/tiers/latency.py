"""`LatencyTier`: a tier that takes its time, in virtual seconds or real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from mmcache.model.event import MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline, Found, Held, Tier
from mmcache.tiers.wrapper import Wrapper


class LatencyTier(Wrapper):
    """`inner`, after `per_call` seconds for each call and `per_byte` seconds for each payload byte read or written.

    `wait` is what passes the time: `time.sleep`, or `FakeClock.advance` in tests.
    """

    def __init__(
        self, inner: Tier, wait: Callable[[float], None], *, per_call: float = 0.0, per_byte: float = 0.0
    ) -> None:
        super().__init__(inner)
        self.per_call = per_call
        self.per_byte = per_byte
        self._wait = wait

    def _take(self, payload_bytes: int = 0) -> None:
        self._wait(self.per_call + self.per_byte * payload_bytes)

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`."""
        found = self.inner.get(keys)
        self._take(sum(one.frame.size for one in found if isinstance(one, Found)))
        return found

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`."""
        self._take(sum(frame.size for frame in frames))
        return self.inner.put(frames, deadlines)

    def drop(self, keys: Iterable[Key]) -> int:
        """See `Tier.drop`."""
        self._take()
        return self.inner.drop(keys)

    def scan(self) -> Iterator[Held]:
        """See `Tier.scan`."""
        self._take()
        return self.inner.scan()

    def flush(self) -> None:
        """See `Tier.flush`."""
        self._take()
        self.inner.flush()
