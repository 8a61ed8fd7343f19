"""The heat window: evict what the last N forward passes used least."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key


class HeatWindow:
    """A block's heat is how often the last `window` forward passes used it; storing it, or a hit, is one pass.

    First go blocks whose heat is below `threshold` and that nothing refers to (`Facts.references == 0`), the coldest
    first; then, where no such block is left, the coldest of the others. Of equally hot blocks, the one whose last use
    is longest ago is the colder. Uses of a block count whether or not it was held at the time, as in WLFU (Karakostas
    and Serpanos, "Exploitation of different types of locality for web caches", ISCC 2002).

    Uses and gaps are exact. A pass costs amortised O(1) for them, and a bisection in a list of at most `window`
    entries for the order of victims; blocks that the window has forgotten are kept in O(1) order of their last use.
    """

    def __init__(self, window: int = 1000, threshold: int = 2) -> None:
        """Raises `SettingsError` for a window below 1 pass or a threshold below 1 use."""
        if window < 1 or threshold < 1:
            raise SettingsError(f"a heat window needs window >= 1 and threshold >= 1, not {window} and {threshold}")
        self.window = window
        self.threshold = threshold
        self._pass = 0
        self._recent: deque[Key] = deque()
        self._passes: dict[Key, deque[int]] = {}
        self._references: dict[Key, int] = {}  # of the known keys
        self._forgotten: OrderedDict[Key, None] = OrderedDict()  # known, heat 0
        self._warm: dict[int, list[tuple[int, Key]]] = {}  # heat -> (last use, known key), sorted

    def uses(self, key: Key) -> int:
        """How many of the last `window` passes used `key`."""
        return len(self._passes.get(key, ()))

    def gaps(self, key: Key) -> list[int]:
        """Passes between consecutive uses of `key` within the window, oldest first."""
        passes = list(self._passes.get(key, ()))
        return [later - earlier for earlier, later in pairwise(passes)]

    def mean_gap(self, key: Key) -> float | None:
        """Mean of `gaps` in O(1); None with fewer than two uses."""
        passes = self._passes.get(key)
        return (passes[-1] - passes[0]) / (len(passes) - 1) if passes and len(passes) > 1 else None

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """See `Policy.add`."""
        self._leave(key)
        self._references[key] = facts.references
        self._use(key)

    def touch(self, key: Key, now: float) -> None:
        """See `Policy.touch`."""
        if key in self._references:
            self._leave(key)
            self._use(key)

    def drop(self, key: Key) -> None:
        """See `Policy.drop`."""
        self._leave(key)
        self._references.pop(key, None)

    def victims(self, now: float) -> Iterator[Key]:
        """See `Policy.victims`."""
        cold = [heat for heat in sorted(self._warm) if heat < self.threshold]
        referred = []
        for key in chain(self._forgotten, self._held(cold)):
            if self._references[key]:
                referred.append(key)
            else:
                yield key
        yield from referred
        yield from self._held(heat for heat in sorted(self._warm) if heat >= self.threshold)

    def _held(self, heats: Iterable[int]) -> Iterator[Key]:
        for heat in heats:
            for _, key in self._warm[heat]:
                yield key

    def _use(self, key: Key) -> None:
        """One forward pass: it uses `key`, and the pass that falls out of the window is forgotten."""
        self._pass += 1
        self._recent.append(key)
        self._passes.setdefault(key, deque()).append(self._pass)
        if len(self._recent) > self.window:
            old = self._recent.popleft()
            if old != key:
                self._leave(old)
            self._passes[old].popleft()
            if old != key:
                self._enter(old)
        self._enter(key)

    def _enter(self, key: Key) -> None:
        passes = self._passes[key]
        if not passes:
            del self._passes[key]
        if key not in self._references:
            return
        if passes:
            insort(self._warm.setdefault(len(passes), []), (passes[-1], key))
        else:
            self._forgotten[key] = None

    def _leave(self, key: Key) -> None:
        if key not in self._references:
            return
        passes = self._passes.get(key)
        if not passes:
            self._forgotten.pop(key, None)
            return
        bucket = self._warm[len(passes)]
        del bucket[bisect_left(bucket, (passes[-1], key))]
        if not bucket:
            del self._warm[len(passes)]
