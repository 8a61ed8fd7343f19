"""`FaultyTier`: a tier that fails, lies, hangs or forgets, by plan. Any test or table can be run behind it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from mmcache.model.errors import TierError
from mmcache.model.event import MissReason, RefuseReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.tiers.base import Deadline, Found, Held, Tier
from mmcache.tiers.wrapper import Wrapper


class Fault(StrEnum):
    """What can go wrong with one call."""

    ERROR = "error"
    """Raises `TierError`; the inner tier is not called."""
    LOST_REPLY = "lost-reply"
    """The inner tier does the work, then `TierError` is raised: the caller cannot know."""
    HANG = "hang"
    """`wait()` is called first, then all goes well."""
    CORRUPT = "corrupt"
    """A `get` returns payloads with one flipped bit, under their old checksums."""
    WRONG_KEY = "wrong-key"
    """A `get` answers with other keys' frames, where it knows any."""
    SHORT = "short"
    """A `get` or `put` returns one answer too few."""
    LOST_WRITE = "lost-write"
    """A `put` is accepted and never stored; what was there before is gone too."""


Plan = Callable[[str], Fault | None]
"""Called with the operation's name (`get put drop scan flush`) before each call; its answer is what goes wrong."""


def scripted(faults: Iterable[Fault | None], operations: Iterable[str] = ("get", "put", "drop")) -> Plan:
    """One fault (or None) for each call of `operations`, in order; all goes well when the script has ended."""
    script, wanted, lock = iter(faults), frozenset(operations), threading.Lock()

    def plan(operation: str) -> Fault | None:
        if operation not in wanted:
            return None
        with lock:
            return next(script, None)

    return plan


def seeded(seed: int, rates: Mapping[Fault, float], operations: Iterable[str] = ("get", "put", "drop")) -> Plan:
    """Faults at random with the given probabilities (each 0…1, their sum at most 1); the same for the same seed."""
    rng, wanted, lock = random.Random(seed), frozenset(operations), threading.Lock()

    def plan(operation: str) -> Fault | None:
        if operation not in wanted:
            return None
        with lock:
            draw = rng.random()
        for fault, rate in rates.items():
            draw -= rate
            if draw < 0:
                return fault
        return None

    return plan


class FaultyTier(Wrapper):
    """`inner`, but each call goes wrong as `plan` says. `wait` is what a hanging call waits in.

    A fault that does not apply to an operation (a corrupt `drop`) is no fault. `close` never fails.
    """

    def __init__(self, inner: Tier, plan: Plan, wait: Callable[[], None] = lambda: None) -> None:
        super().__init__(inner)
        self.counts: dict[tuple[str, Fault], int] = {}
        """How often each (operation, fault) was planned."""
        self._plan = plan
        self._wait = wait
        self._seen: dict[Key, Frame] = {}  # at most the last two keys: enough to answer with a wrong one

    def _begin(self, operation: str) -> Fault | None:
        fault = self._plan(operation)
        if fault is not None:
            self.counts[operation, fault] = self.counts.get((operation, fault), 0) + 1
        if fault is Fault.HANG:
            self._wait()
        elif fault is Fault.ERROR:
            raise TierError(f"injected: {self.name}.{operation} failed")
        return fault

    def _end(self, operation: str, fault: Fault | None) -> None:
        if fault is Fault.LOST_REPLY:
            raise TierError(f"injected: the reply of {self.name}.{operation} was lost")

    def get(self, keys: Sequence[Key]) -> list[Found | MissReason]:
        """See `Tier.get`."""
        fault = self._begin("get")
        found = self.inner.get(keys)
        self._end("get", fault)
        match fault:
            case Fault.CORRUPT:
                return [_corrupt(one) if isinstance(one, Found) else one for one in found]
            case Fault.WRONG_KEY:
                return [self._wrong(key, one) for key, one in zip(keys, found, strict=True)]
            case Fault.SHORT:
                return found[:-1]
        return found

    def _wrong(self, key: Key, one: Found | MissReason) -> Found | MissReason:
        other = next((frame for known, frame in self._seen.items() if known != key), None)
        return one if other is None else Found(other, None)

    def put(self, frames: Sequence[Frame], deadlines: Sequence[Deadline]) -> list[RefuseReason | None]:
        """See `Tier.put`."""
        for frame in frames[-2:]:
            self._seen[frame.key] = frame
            while len(self._seen) > 2:
                self._seen.pop(next(iter(self._seen), frame.key), None)
        fault = self._begin("put")
        if fault is Fault.LOST_WRITE:
            self.inner.drop([frame.key for frame in frames])
            return [None] * len(frames)
        refused = self.inner.put(frames, deadlines)
        self._end("put", fault)
        return refused[:-1] if fault is Fault.SHORT else refused

    def drop(self, keys: Iterable[Key]) -> int:
        """See `Tier.drop`."""
        fault = self._begin("drop")
        count = self.inner.drop(keys)
        self._end("drop", fault)
        return count

    def scan(self) -> Iterator[Held]:
        """See `Tier.scan`."""
        self._begin("scan")
        return self.inner.scan()

    def flush(self) -> None:
        """See `Tier.flush`."""
        fault = self._begin("flush")
        self.inner.flush()
        self._end("flush", fault)


def _corrupt(found: Found) -> Found:
    payload = bytearray(found.frame.payload)
    if payload:
        payload[len(payload) // 2] ^= 0x10
    return Found(Frame(found.frame.header, bytes(payload), found.frame.checksum), found.deadline)
