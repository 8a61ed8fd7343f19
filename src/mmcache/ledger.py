"""`Ledger`: sums by labels, exact under threads, bounded, and at zero again for who counts anew after a fork."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from mmcache import forks

Labels = tuple[str, ...]

Sums = tuple[int, float, int]
"""How often, seconds, bytes."""

NAMES = 200
"""Values kept of each label that callers name freely; all further ones are `OTHER`."""

SERIES = 8192
"""Label sets kept; in those that come later, every label that callers name is `OTHER`."""

LONGEST = 128
"""Characters kept of a value."""

OTHER = "other"


class Ledger:
    """Sums behind one short lock that nobody holds while the process forks.

    free: places in the labels that callers name freely; or another ledger, whose values of them are the ones that are
    kept here too, so that both call the same things `OTHER`.

    A forked child goes on from its parent's sums, as its `Cache.stats()` does; `own` leaves out what it inherited,
    because whoever collects sums of several processes would count that twice.
    """

    fork_order = 4

    def __init__(self, free: Iterable[int] | Ledger = ()) -> None:
        self._lock = threading.Lock()
        self._sums: dict[Labels, list[float]] = {}
        self._known: dict[Labels, list[float]] = {}  # labels as given → their sums: one look-up an addition
        self._names: dict[int, set[str]] = free._names if isinstance(free, Ledger) else {n: set() for n in free}
        self._inherited: dict[Labels, Sums] = {}
        forks.join(self)

    def add(self, labels: Labels, count: int = 1, seconds: float = 0.0, size: int = 0) -> None:
        """Add to the sums of `labels`. Never raises, never grows without bound."""
        with self._lock:
            sums = self._known.get(labels) or self._open(labels)
            sums[0] += count
            sums[1] += seconds
            sums[2] += size

    def counter(self, labels: Labels) -> Callable[[], None]:
        """What adds one to how often, with each call; nothing is looked up."""
        lock = self._lock
        with lock:
            sums = self._known.get(labels) or self._open(labels)

        def one() -> None:
            with lock:
                sums[0] += 1

        return one

    def _open(self, labels: Labels) -> list[float]:
        kept = list(labels)
        for place, names in self._names.items():
            value = labels[place][:LONGEST].encode("utf-8", "replace").decode()  # a lone surrogate has no bytes
            if value and value not in names:
                if len(names) < NAMES:
                    names.add(value)
                else:
                    value = OTHER
            kept[place] = value
        bounded = tuple(kept)
        if bounded not in self._sums and len(self._sums) >= SERIES:
            bounded = tuple(OTHER if place in self._names and value else value for place, value in enumerate(kept))
        sums = self._sums.setdefault(bounded, [0, 0.0, 0])
        if len(self._known) < 2 * SERIES and max(map(len, labels), default=0) <= LONGEST:
            self._known[labels] = sums
        return sums

    def all(self) -> dict[Labels, Sums]:
        """Every sum since the start."""
        with self._lock:
            return {labels: (int(n), seconds, int(size)) for labels, (n, seconds, size) in self._sums.items()}

    def own(self) -> dict[Labels, Sums]:
        """What this process has added itself; never less than before."""
        base, nothing = self._inherited, (0, 0.0, 0)
        found = {}
        for labels, (n, seconds, size) in self.all().items():
            n0, seconds0, size0 = base.get(labels, nothing)
            if n - n0 or labels not in base:
                found[labels] = (n - n0, max(0.0, seconds - seconds0), size - size0)
        return found

    def before_fork(self) -> None:
        """See `forks.Forkable`."""
        self._lock.acquire()

    def after_fork(self, child: bool) -> None:
        """See `forks.Forkable`."""
        self._lock.release()
        if child:
            self._inherited = self.all()
