"""Uses and gaps over a sliding window of forward passes: exact, in amortised constant time."""

from __future__ import annotations

import math
from collections.abc import Callable

from mmcache.model.errors import SettingsError
from mmcache.model.key import Key

_COUNT, _FIRST, _LAST = range(3)


class UseWindow:
    """The last `passes` forward passes that are no older than `seconds`; one use is one pass.

    A ring with one slot a pass: which key it used, when, and which pass used that key next. So each key needs three
    numbers (how often, first and last pass), and every pass enters and leaves once: O(1) amortised, O(passes) memory.
    Uses count whether or not the block is held, as in WLFU (Karakostas and Serpanos, "Exploitation of different types
    of locality for web caches", ISCC 2002). Time never runs backwards here: a late call counts as of the latest one.
    """

    __slots__ = ("_keys", "_next", "_oldest", "_pass", "_seen", "_times", "left", "now", "passes", "seconds")

    def __init__(self, passes: int, seconds: float = math.inf) -> None:
        """Raises `SettingsError` for a window below 1 pass, or that ends at once."""
        if passes < 1 or not seconds > 0:
            raise SettingsError(f"a window needs passes >= 1 and seconds > 0, not {passes} and {seconds}")
        self.passes = passes
        self.seconds = seconds
        self.now = -math.inf
        """The latest time that it was told of."""
        self.left: Callable[[Key, int], None] = lambda key, uses: None
        """Called for a key of which a pass fell out of the window, with its uses that are left."""
        self._pass = 0
        self._oldest = 1
        self._keys: list[Key | None] = [None] * passes
        self._next = [0] * passes
        self._times = [0.0] * passes if seconds < math.inf else None
        self._seen: dict[Key, list[int]] = {}

    def __len__(self) -> int:
        """Passes within the window."""
        return self._pass - self._oldest + 1

    @property
    def mean(self) -> float:
        """Mean uses of the keys within the window; 1.0 when it is empty."""
        return len(self) / len(self._seen) if self._seen else 1.0

    @property
    def start(self) -> int:
        """The slot of the oldest pass; slots wrap at `passes`."""
        return self._oldest % self.passes

    @property
    def newest(self) -> int:
        """The slot of the newest pass."""
        return self._pass % self.passes

    def uses(self, key: Key) -> int:
        """How many passes within the window used `key`."""
        seen = self._seen.get(key)
        return seen[_COUNT] if seen else 0

    def gaps(self, key: Key) -> list[int]:
        """Passes between consecutive uses of `key` within the window, oldest first."""
        seen, found = self._seen.get(key), []
        if seen:
            one = seen[_FIRST]
            while one != seen[_LAST]:
                later = self._next[one % self.passes]
                found.append(later - one)
                one = later
        return found

    def mean_gap(self, key: Key) -> float | None:
        """Mean of `gaps` in O(1); None with fewer than two uses."""
        seen = self._seen.get(key)
        return (seen[_LAST] - seen[_FIRST]) / (seen[_COUNT] - 1) if seen and seen[_COUNT] > 1 else None

    def key_at(self, slot: int) -> Key:
        """The key that the pass in this slot used."""
        key = self._keys[slot]
        assert key is not None
        return key

    def use(self, key: Key, now: float) -> int:
        """One forward pass that used `key`: its uses now. `left` is not called for `key` itself."""
        passes = self.passes
        if now > self.now:
            self.now = now
        if self._times is not None:
            self.advance(now, key)
        if self._pass - self._oldest + 1 == passes:
            self._forget(key)
        self._pass += 1
        number, seen = self._pass, self._seen.get(key)
        self._keys[number % passes] = key
        if self._times is not None:
            self._times[number % passes] = self.now
        if seen is None:
            self._seen[key] = [1, number, number]
            return 1
        self._next[seen[_LAST] % passes] = number
        seen[_COUNT] += 1
        seen[_LAST] = number
        return seen[_COUNT]

    def advance(self, now: float, counted: Key | None = None) -> None:
        """Forget what is older than `seconds` before `now`."""
        if now > self.now:
            self.now = now
        if self._times is not None:
            while self._oldest <= self._pass and self.now - self._times[self._oldest % self.passes] > self.seconds:
                self._forget(counted)

    def _forget(self, counted: Key | None) -> None:
        slot = self._oldest % self.passes
        key = self.key_at(slot)
        seen = self._seen[key]
        self._oldest += 1
        self._keys[slot] = None
        seen[_COUNT] -= 1
        if seen[_COUNT]:
            seen[_FIRST] = self._next[slot]
        else:
            del self._seen[key]
        if key != counted:
            self.left(key, seen[_COUNT])
