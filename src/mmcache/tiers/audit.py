"""`AuditTier`: writes down every call and everything in its answer that breaks the tier's promises."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mmcache.model.event import MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline, Found, Held, Tier
from mmcache.tiers.wrapper import Wrapper


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tier."""

    operation: str
    keys: tuple[Key, ...]
    outcome: tuple[str, ...]
    """For each key `found`, `accepted` or the reason why not; for other calls their result in words."""


class AuditTier(Wrapper):
    """`inner`, watched. Never changes or raises anything itself; tests assert `not tier.violations`.

    `calls` keeps the last `remember` calls. Payloads are hashed to check them: do not audit where speed is measured.
    """

    def __init__(self, inner: Tier, remember: int = 10_000) -> None:
        super().__init__(inner)
        self.calls: deque[Call] = deque(maxlen=remember)
        self.violations: list[str] = []

    def count(self, operation: str) -> int:
        """How many of the remembered calls were of this operation."""
        return sum(call.operation == operation for call in self.calls)

    def _note(self, operation: str, keys: Iterable[Key] = (), outcome: Iterable[str] = ()) -> None:
        self.calls.append(Call(operation, tuple(keys), tuple(outcome)))

    def _demand(self, kept: bool, promise: str) -> None:
        if not kept:
            self.violations.append(f"{self.name}: {promise}")

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`."""
        found = self.inner.get(keys)
        self._demand(len(found) == len(keys), f"get of {len(keys)} keys gave {len(found)} answers")
        for key, one in zip(keys, found, strict=False):
            if isinstance(one, Found):
                self._demand(one.frame.header.key == key, f"get of {key} gave the frame of {one.frame.key}")
                self._demand(one.frame.intact(), f"get of {key} gave a payload that fails its checksum")
        self._note("get", keys, ("found" if isinstance(one, Found) else one.value for one in found))
        return found

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`."""
        self._demand(len(frames) == len(deadlines), f"put of {len(frames)} frames with {len(deadlines)} deadlines")
        for frame in frames:
            self._demand(frame.intact(), f"put of {frame.key} with a payload that fails its checksum")
        refused = self.inner.put(frames, deadlines)
        self._demand(len(refused) == len(frames), f"put of {len(frames)} frames gave {len(refused)} answers")
        self._note("put", [frame.key for frame in frames], [one.value if one else "accepted" for one in refused])
        return refused

    def drop(self, keys: Iterable[Key]) -> int:
        """See `Tier.drop`."""
        keys = list(keys)
        count = self.inner.drop(keys)
        self._demand(0 <= count <= len(set(keys)), f"drop of {len(set(keys))} keys counted {count}")
        self._note("drop", keys, [str(count)])
        return count

    def scan(self) -> Iterator[Held]:
        """See `Tier.scan`."""
        self._note("scan")
        for held in self.inner.scan():
            self._demand(held.size >= 0, f"scan gave {held.size} bytes for {held.key}")
            yield held

    def flush(self) -> None:
        """See `Tier.flush`."""
        self.inner.flush()
        self._note("flush")

    def close(self) -> None:
        """See `Tier.close`."""
        self.inner.close()
        self._note("close")
