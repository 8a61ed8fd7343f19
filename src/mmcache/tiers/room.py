"""Who leaves the memory tier for a new block: the policy's order, pins, references and quotas put together. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mmcache.model.key import Key

LOOKAHEAD = 128
"""So many referenced blocks in the policy's order are spared in favour of later ones that nothing needs."""


@dataclass(frozen=True, slots=True)
class Room:
    """What was decided."""

    victims: tuple[Key, ...]
    """To be evicted; empty when nothing has to go, or nothing would help."""
    fits: bool
    """Whether the new block may stay."""
    outranked: bool = False
    """It may not because the policy would evict it before others."""


FITS = Room((), True)
NO_ROOM = Room((), False)
OUTRANKED = Room((), False, True)


def make_room(
    new: Key,
    excess: int,
    order: Iterable[Key],
    *,
    charge: Callable[[Key], int],
    pinned: Callable[[Key], bool],
    holds: Callable[[Key], int],
    spared_bytes: float,
    may_refuse: bool,
) -> Room:
    """Free `excess` bytes for `new`, which the policy has been told of, by the policy's `order` of victims.

    Pinned blocks stay. A block that others need is spared as long as one that nobody needs comes up soon after it, and
    the spared ones are together no more than `spared_bytes`: a reference delays eviction, never beyond the limit.
    When `new` itself comes up, it is the one to go if the policy `may_refuse`, and passed over otherwise. Nothing is
    evicted for a block that will not stay.
    """
    if excess <= 0:
        return FITS
    chosen: list[Key] = []
    for key in _unneeded_first(order, charge=charge, holds=holds, spared_bytes=spared_bytes):
        if key == new:
            if may_refuse:
                return OUTRANKED
            continue
        if pinned(key) or not (size := charge(key)):
            continue
        chosen.append(key)
        excess -= size
        if excess <= 0:
            return Room(tuple(chosen), True)
    return NO_ROOM


def _unneeded_first(
    order: Iterable[Key], *, charge: Callable[[Key], int], holds: Callable[[Key], int], spared_bytes: float
) -> Iterator[Key]:
    spared: list[Key] = []
    for key in order:
        if len(spared) < LOOKAHEAD and spared_bytes > 0 and holds(key):
            spared.append(key)
            spared_bytes -= charge(key)
        else:
            yield key
    yield from spared
