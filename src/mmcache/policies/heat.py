"""The heat window: evict what the last N forward passes used least."""

from __future__ import annotations

from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.policies.ranked import Ranked, Tracked
from mmcache.policies.window import UseWindow


class HeatWindow(Ranked):
    """A block's heat is how often the last `window` forward passes used it; storing it, or a hit, is one pass.

    First go blocks whose heat is below `threshold` and that nothing refers to (`Facts.references == 0`), the coldest
    first; then, where no such block is left, the coldest of the others. Of equally hot blocks, the one whose last use
    is longest ago is the colder. Uses of a block count whether or not it was held at the time (see `UseWindow`).

    Uses, gaps and the order of victims are exact. A pass costs amortised O(1): blocks are grouped by heat, and a
    window of N passes has fewer than sqrt(2N) distinct heats, so no structure grows with the number of blocks.
    """

    def __init__(self, window: int = 1000, threshold: int = 2) -> None:
        """Raises `SettingsError` for a window below 1 pass or a threshold below 1 use."""
        if window < 1 or threshold < 1:
            raise SettingsError(f"a heat window needs window >= 1 and threshold >= 1, not {window} and {threshold}")
        self.window = window
        self.threshold = threshold
        self._uses = UseWindow(window)
        super().__init__(self._rank, window=self._uses, parts=self._explained)

    def uses(self, key: Key) -> int:
        """How many of the last `window` passes used `key`."""
        return self._uses.uses(key)

    def gaps(self, key: Key) -> list[int]:
        """Passes between consecutive uses of `key` within the window, oldest first."""
        return self._uses.gaps(key)

    def mean_gap(self, key: Key) -> float | None:
        """Mean of `gaps` in O(1); None with fewer than two uses."""
        return self._uses.mean_gap(key)

    def _rank(self, block: Tracked, now: float) -> int:
        """Cold ones by heat; from `threshold` on, what is referred to by heat; then what is hot by heat."""
        cold = block.uses < self.threshold and not block.facts.references
        return block.uses if cold else self.threshold + block.uses

    def _explained(self, block: Tracked, now: float) -> dict[str, float]:
        return {
            "heat": float(block.uses),
            "threshold": float(self.threshold),
            "references": float(block.facts.references),
        }
