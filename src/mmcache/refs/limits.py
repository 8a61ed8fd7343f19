"""Which links are too many to remember. The same rule for every tracker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.refs.base import MOST_EDGES, MOST_GONE


class EdgeLimit:
    """At most `edges` links; and those of parents that are gone are at most as many as the others, or `gone`."""

    def __init__(self, edges: int = MOST_EDGES, gone: int = MOST_GONE) -> None:
        """Raises `SettingsError` for a limit below 1."""
        if edges < 1 or gone < 1:
            raise SettingsError(f"references need room for at least one link, not edges={edges}, gone={gone}")
        self.edges, self.gone = edges, gone

    def excess(self, edges: int, gone: int) -> int:
        """How many of `edges` links, `gone` of them of parents that are gone, are too many."""
        return max(edges - self.edges, gone - max(self.gone, edges - gone), 0)

    def choose(
        self, edges: int, gone: int, parents_gone: Iterable[tuple[Key, int]], others: Iterable[tuple[Key, int]]
    ) -> Iterator[Key]:
        """Of (parent, its links), the oldest until the excess is gone, and some more, so that this is rare.

        Only as many of the `others` as the limit on all edges asks for.
        """
        excess = self.excess(edges, gone)
        if not excess:
            return
        excess = min(excess + self.gone // 8, gone) if excess <= gone else excess + self.edges // 64
        for parent, links in chain(parents_gone, others):
            if excess <= 0:
                return
            yield parent
            excess -= links
