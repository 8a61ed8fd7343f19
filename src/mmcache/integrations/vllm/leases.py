"""From "it exists" to "it is loaded": what was found for an item is held until the worker has it.

An output that the scheduler has said exists must reach the worker, or the engine dies for want of it. So it is read
when it is asked for, held here as a view (which outlives eviction of what it views), and handed over with the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field

from mmcache.integrations.vllm.outputs import Expected, Output
from mmcache.model.signature import Signature

PAUSE_SECONDS = 0.001
"""How long a step waits for lookups under way, so that an idle engine does not spin."""
MOST_AHEAD = 64
"""Outputs that are looked up, or held, for requests that wait: a long queue must not fill this process's memory."""


@dataclass(frozen=True)
class Facts:
    """All that is known of an item before its output is there; the worker stores under it."""

    signature: Signature
    """With the item's modality and its adapter."""
    tenant: str
    expected: Expected
    trace: tuple[str, str] = ("", "")
    """`traceparent` and `tracestate` of the request that named it first."""


@dataclass(frozen=True)
class Handover:
    """One output on its way to the worker."""

    name: str
    output: Output


Find = Callable[[str, Facts], Output | None]


@dataclass
class Lease:
    """An item that requests wait for."""

    facts: Facts
    users: set[str] = field(default_factory=set)
    looked: bool = False
    looking: Future[Output | None] | None = None
    until: float = 0.0
    held: Output | None = None


class Leases:
    """The scheduler's book of items by name. Used by one thread.

    find: looks an item up by its name and checks it; must not raise. executor: where lookups may take long (another
    host); then they start when a request arrives. None = at the moment they are asked for.
    """

    def __init__(self, find: Find, executor: Executor | None, patience: float) -> None:
        self._find, self._executor, self._patience = find, executor, patience
        self._ahead: set[str] = set()
        self._leases: dict[str, Lease] = {}

    def open(self, name: str, facts: Facts, request: str, now: float) -> None:
        """`request` needs the item `name`."""
        lease = self._leases.get(name)
        if lease is None:
            lease = self._leases[name] = Lease(facts)
        lease.users.add(request)
        self._look(name, lease, now)

    def _look(self, name: str, lease: Lease, now: float) -> bool:
        """Start the lookup, where it takes long and was not started yet; False where too many are ahead of it."""
        if self._executor is None or lease.looked:
            return True
        if len(self._ahead) >= MOST_AHEAD:
            self._ahead = {other for other in self._ahead if (found := self._leases.get(other)) and _holds(found)}
            if len(self._ahead) >= MOST_AHEAD:
                return False
        self._ahead.add(name)
        lease.looked, lease.until = True, now + self._patience
        lease.looking = self._executor.submit(self._find, name, lease.facts)
        return True

    def facts(self, name: str) -> Facts | None:
        """What is known of an item that some request needs."""
        lease = self._leases.get(name)
        return None if lease is None else lease.facts

    def settled(self, names: Iterable[str], now: float) -> bool:
        """Whether no lookup of these is under way that is worth waiting for. Waits a moment itself."""
        leases = []
        for name in names:
            if (lease := self._leases.get(name)) is not None:
                if not self._look(name, lease, now):
                    return False
                leases.append(lease)
        busy = [lease.looking for lease in leases if lease.looking is not None and now < lease.until]
        return not busy or not wait(busy, timeout=PAUSE_SECONDS).not_done

    def holds(self, name: str) -> bool:
        """Whether the item's output is here; from now on it is held."""
        lease = self._leases.get(name)
        if lease is None:
            return False
        if lease.held is None:
            if self._executor is None:
                lease.held = self._find(name, lease.facts)
            elif lease.looking is not None and lease.looking.done():
                lease.held = lease.looking.result()
        return lease.held is not None

    def take(self, name: str) -> Handover | None:
        """The output that is held, for the step's worker; the engine's own cache has it then."""
        lease = self._leases.get(name)
        if lease is None or lease.held is None:
            return None
        output, lease.held, lease.looking = lease.held, None, None
        return Handover(name, output)

    def close(self, request: str) -> None:
        """`request` is over."""
        for name in [name for name, lease in self._leases.items() if request in lease.users]:
            lease = self._leases[name]
            lease.users.discard(request)
            if not lease.users:
                del self._leases[name]

    def forget(self) -> None:
        """Nothing that was found or known counts any more."""
        self._leases.clear()
        self._ahead.clear()

    def __len__(self) -> int:
        return len(self._leases)


def _holds(lease: Lease) -> bool:
    """Whether it has, or may soon have, an output in memory."""
    return lease.looking is not None and not (lease.looking.done() and lease.looking.result() is None)
