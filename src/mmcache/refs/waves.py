"""What goes when blocks change, in waves: who links while a wave is on its way out may have read what it drops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mmcache.model.key import Key
from mmcache.refs.base import References


def waves(references: References, keys: Iterable[Key]) -> Iterator[set[Key]]:
    """Keys to drop everywhere, before the next wave is asked for; `keys` and all made from them come first.

    Their links are forgotten first of all, so that whoever is made anew of what is still held meanwhile is found by the
    new links, and goes in the next wave. Who links before reading what it is made from is never missed.
    """
    gone = set[Key]()
    going = references.reach(keys)
    while going:
        for key in going:
            references.unlink(key)
        yield going
        gone |= going
        going = {key for key in references.reach(gone) if key not in gone or references.unlink(key)}
