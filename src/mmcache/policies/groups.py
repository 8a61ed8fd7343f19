"""Known blocks in groups, each group in the order of last use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Protocol

from mmcache.model.key import Key
from mmcache.policies.positions import Positions
from mmcache.policies.window import UseWindow

_SPARE = 64


class Placed(Protocol):
    """What is written on a block: where it stands. `group` None = nowhere yet."""

    group: Any
    slot: int
    """Of its last use in the window; -1 = the window has none."""


class _Group:
    """Its blocks that the window has forgotten, or that there is no window for; then those of the window by slot."""

    __slots__ = ("forgotten", "recent")

    def __init__(self, passes: int) -> None:
        self.forgotten: OrderedDict[Key, None] = OrderedDict()
        self.recent = Positions(passes)


class Groups:
    """`place` moves a block into a group, at the place that its last use has there, in O(1) (see `Positions`).

    A block that was just used goes to the end. One that changes group because a pass of it fell out of the window
    belongs somewhere in the middle: there, the slot of its last use says where. When its last pass falls out it goes
    to the end of what the window has forgotten: passes fall out in the order in which they were made.
    """

    __slots__ = ("_groups", "_passes", "_spare", "_window")

    def __init__(self, window: UseWindow | None) -> None:
        self._window = window
        self._passes = 1 if window is None else window.passes
        self._groups: dict[Any, _Group] = {}
        self._spare: list[_Group] = []

    def __iter__(self) -> Iterator[Any]:
        """Groups that hold a block, in no order."""
        return iter(self._groups)

    def __contains__(self, group: Any) -> bool:
        return group in self._groups

    def __len__(self) -> int:
        return len(self._groups)

    def place(self, key: Key, block: Placed, group: Any, slot: int) -> None:
        """Put a block that was just used, or a pass of which was just forgotten, into `group`."""
        if block.group is not None:
            self.remove(key, block)
        block.group, block.slot = group, slot
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = self._spare.pop() if self._spare else _Group(self._passes)
        if slot < 0:
            members.forgotten[key] = None
        else:
            members.recent.add(slot)

    def remove(self, key: Key, block: Placed) -> None:
        """Take a placed block out."""
        group, slot, block.group = block.group, block.slot, None
        members = self._groups[group]
        if slot < 0:
            del members.forgotten[key]
        else:
            members.recent.discard(slot)
        if not members.forgotten and not members.recent:
            del self._groups[group]
            if len(self._spare) < _SPARE:
                self._spare.append(members)

    def walk(self, group: Any) -> Iterator[Key]:
        """The blocks of `group`, the longest unused first."""
        members = self._groups[group]
        yield from members.forgotten
        if self._window is None:
            return
        start, recent, key_at = self._window.start, members.recent, self._window.key_at
        slot = recent.next(start)
        while slot is not None:
            yield key_at(slot)
            slot = recent.next(slot + 1)
        slot = recent.next(0)
        while slot is not None and slot < start:
            yield key_at(slot)
            slot = recent.next(slot + 1)
