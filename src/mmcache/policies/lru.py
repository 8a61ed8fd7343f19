"""Least recently used: the baseline that every other policy is measured against."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from mmcache.model.block import Facts
from mmcache.model.key import Key


class LRU:
    """The block whose last use is longest ago goes first. All methods are O(1); storing counts as a use.

    An `OrderedDict` rather than a `dict`: a dict that loses its first items has to skip their holes to find the next
    first one, which makes a full cache quadratic.
    """

    __slots__ = ("_order",)

    def __init__(self) -> None:
        self._order: OrderedDict[Key, None] = OrderedDict()

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """See `Policy.add`."""
        self._order[key] = None
        self._order.move_to_end(key)

    def touch(self, key: Key, now: float) -> None:
        """See `Policy.touch`."""
        if key in self._order:
            self._order.move_to_end(key)

    def drop(self, key: Key) -> None:
        """See `Policy.drop`."""
        self._order.pop(key, None)

    def victims(self, now: float) -> Iterator[Key]:
        """See `Policy.victims`; least recently used first."""
        return iter(self._order)
