"""`Spread`: what was invalidated reaches everyone. The machine's processes through one mapped file, hosts through news.

Here both directions meet: what this process invalidates is told, and what others did is applied to the tiers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

from mmcache.changes import Changes
from mmcache.forks import Lock
from mmcache.model.errors import MMCacheError
from mmcache.model.event import Event, Failed
from mmcache.model.key import Key
from mmcache.refs.base import References
from mmcache.tiers.base import Found, Tier
from mmcache.tiers.broadcast import Broadcast
from mmcache.tiers.memory import MemoryTier
from mmcache.tiers.owed import OwedDrops
from mmcache.tiers.write_behind import WriteBehind


class Elsewhere(Protocol):
    """Other hosts that share a tier with this one."""

    @property
    def tier(self) -> Tier:
        """The tier shared with them: what another host invalidated it has dropped there itself."""

    def outlived(self, keys: Sequence[Key] | None) -> list[Key]:
        """Of `keys`, which they have dropped (None = any): those of which the shared tier has what this process put,
        since that came after the drop."""

    def tell_soon(self, key: Key) -> None:
        """Make them forget `key`, with others, within a fraction of a second."""

    def tell(self, keys: Sequence[Key], undropped: Collection[Key]) -> None:
        """Make them forget `keys`. Never raises: what cannot be told now is told later, and so is what the shared tier
        has failed to drop, when it has: or they would read it there again."""


class Spread:
    """Of one store. `doom`: flights under way must not store `keys` (None = any)."""

    def __init__(
        self,
        memory: MemoryTier,
        lower: Sequence[Tier],
        owed: dict[int, OwedDrops],
        *,
        broadcast: Broadcast | None,
        elsewhere: Elsewhere | None,
        references: References,
        changes: Changes,
        doom: Callable[[Iterable[Key] | None], None],
        emit: Callable[[Event], None],
        invalidate: Callable[[Sequence[Key]], object],
    ) -> None:
        self._memory, self._owed = memory, owed
        self._lower = lower
        self._broadcast, self._elsewhere = broadcast, elsewhere
        self._references, self._changes, self._doom = references, changes, doom
        self._emit, self._invalidate = emit, invalidate
        self._catching_up = Lock()

    # heard

    def catch_up(self) -> int:
        """Apply what other processes of this machine invalidated: memory forgets it, flights do not store it.

        Returns the sequence number that this process has caught up with at least.
        """
        broadcast, memory = self._broadcast, self._memory
        if broadcast is None or broadcast.sequence[0] == memory.seen:
            return memory.seen
        with self._catching_up:
            keys = broadcast.catch_up()
            _, made = self._forget_in_memory(keys)
            released: list[Callable[[], None]] = []
            written = self._forget_on_its_way(keys, released)
            memory.caught_up(broadcast.seen)
        for done in released:  # without the lock: who replaced a block tells others now, and catches up before it does
            done()
        if written:  # readable for a moment after they were invalidated: whoever read them must forget them
            self._changes.mark(written)
            memory.drop(written)
            self._tell_the_machine_but_us([*written])
        if made:
            self._invalidate([*made])
        return memory.seen

    def hear(self, keys: Sequence[Key] | None) -> None:
        """Other hosts invalidated `keys` (None = nobody knows what): forget them, also on this machine's disk."""
        lost, made = self._forget_in_memory(keys)
        released: list[Callable[[], None]] = []
        written = self._forget_on_its_way(None if keys is None else list(keys), released)
        for tier in self._lower:
            if self._elsewhere is not None and tier is self._elsewhere.tier:
                continue
            try:
                dropped = tier.drop(lost if keys is not None else [held.key for held in tier.scan()])
                if (dropped or written) and keys is not None and tier is self._lower[0] and self._broadcast is not None:
                    # this process may have brought it there after the others had heard, and they have read it there
                    self._tell_the_machine_but_us(lost)
            except Exception as error:  # noqa: BLE001 - a plug-in's tier may raise anything; the debt is remembered
                self._owed[id(tier)].add(lost)
                self._emit(Failed(tier.name, f"drop failed: {error!r}"))
        self._drop_from_memory(lost, keys)  # again: a reader may have promoted what the tiers below still had
        for done in released:
            done()
        late = [] if self._elsewhere is None else self._elsewhere.outlived(keys)
        if made or late:
            self._invalidate([*made, *late])

    def _forget_in_memory(self, keys: Sequence[Key] | None) -> tuple[list[Key], set[Key]]:
        """What is forgotten, and which of it was made from `keys`.

        Only here it is known what was made from them. Who fell behind does not know what changed: all of it.
        """
        references = self._references
        made = references.parents() if keys is None else references.reach(keys).difference(keys)
        self._doom(None if keys is None else [*keys, *made])
        return self._drop_from_memory([*(keys or ()), *made], keys), set(made)

    def _drop_from_memory(self, lost: list[Key], keys: Sequence[Key] | None) -> list[Key]:
        """`lost`, or all where nobody knows the `keys`; and what is being read may not come back."""
        self._changes.mark(None if keys is None else lost)
        if keys is None:
            lost = [held.key for held in self._memory.scan()]
        self._memory.drop(lost)
        return lost

    def _forget_on_its_way(self, keys: list[Key] | None, released: list[Callable[[], None]]) -> set[Key]:
        """Of what is written behind; which may have been written already."""
        written: set[Key] = set()
        for tier in self._lower:
            if isinstance(tier, WriteBehind):
                try:
                    written |= tier.forget(keys, released)
                except Exception as error:  # noqa: BLE001 - whatever a tier raises, hits go on; the debt is remembered
                    self._owed[id(tier)].add(keys or [])
                    self._emit(Failed(tier.name, f"drop failed: {error!r}"))
                    written.update(keys or ())
        return written

    # told

    def to_machine(self, keys: Sequence[Key], *, only_others: bool = False) -> None:
        """Make every process of this machine forget `keys`."""
        if self._broadcast is not None:
            try:
                (self._broadcast.publish_to_others if only_others else self._broadcast.publish)(keys)
            except (MMCacheError, OSError) as error:
                self._emit(
                    Failed("invalidations", f"other processes were not told: {error}", keys[0] if keys else None)
                )

    def to_hosts(self, keys: Sequence[Key]) -> None:
        """Make every other host forget `keys`."""
        if (elsewhere := self._elsewhere) is not None:
            elsewhere.tell(keys, self._owed[id(elsewhere.tier)].settle(keys))

    def replaces(self, key: Key) -> bool:
        """Whether others may hold an older value of `key`: what the shared tier has lost, hosts may still have."""
        if self._elsewhere is not None:
            return True
        return self._broadcast is not None and any(isinstance(found, Found) for found in self._lower[0].get([key]))

    def replaced(self, key: Key) -> None:
        """A newer value of `key` is readable: all others must forget theirs. This process keeps what it has."""
        if self._broadcast is not None:
            self.catch_up()
            self._tell_the_machine_but_us([key])
        if (elsewhere := self._elsewhere) is not None:
            if self._owed[id(elsewhere.tier)].settle([key]):  # it has refused the newer value, and kept the older one
                elsewhere.tell([key], [key])
            else:
                elsewhere.tell_soon(key)

    def _tell_the_machine_but_us(self, keys: list[Key]) -> None:
        """This process would drop what was put since."""
        assert self._broadcast is not None
        with self._catching_up:
            self.to_machine(keys, only_others=True)
            self._memory.caught_up(self._broadcast.seen)

    def close(self) -> None:
        """Close the file that invalidations go through."""
        if self._broadcast is not None:
            self._broadcast.close()
