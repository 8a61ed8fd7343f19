"""How old blocks are when they are used again, from an access log: what the decay law is fitted to.

An age counts only against blocks that were watched that long: late in a log, nobody can be old yet. Rates are therefore
uses per block-second *watched* at that age (occurrence ÷ exposure), never plain counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError
from mmcache.ttl.gamma import Floats

Since = Literal["first", "last"]
"""`first`: age of the block, how popularity fades. `last`: time since its last use, what a cache sees of a block."""


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages at use in seconds, and for how long ages could be seen at all."""

    used: Floats
    """Age at each use but those that begin a block's watch."""
    owner: npt.NDArray[np.int64]
    """Of each use: the number of its block. Uses of one block are not independent; intervals resample blocks."""
    watched: Floats
    """Each watch's length: from a first use to the end of the log, or from one use to the next or that end."""
    watch_owner: npt.NDArray[np.int64]

    @staticmethod
    def of(times: npt.ArrayLike, keys: npt.ArrayLike, since: Since = "first") -> Ages:
        """From a log: seconds (or request numbers) and keys, one each access. Order does not matter.

        Raises `InvalidInputError`.
        """
        when, raw = np.asarray(times, np.float64), np.asarray(keys)
        if when.ndim != 1 or raw.shape != when.shape:
            raise InvalidInputError(
                f"a log is two lists of one length, times and keys, not {when.shape} and {raw.shape}"
            )
        if not np.isfinite(when).all():
            raise InvalidInputError("every access needs a finite time in seconds; leave out lines without one")
        if since not in ("first", "last"):
            raise InvalidInputError(f'ages count since "first" or "last", not {since!r}')
        if not when.size:
            return Ages(np.zeros(0), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
        owner = np.unique(raw, return_inverse=True)[1].astype(np.int64)
        order = np.lexsort((when, owner))
        when, owner, end = when[order], owner[order], float(when.max())
        again = np.zeros(when.size, bool)
        again[1:] = owner[1:] == owner[:-1]
        if since == "first":
            began = when[~again]
            return Ages((when - began[owner])[again], owner[again], end - began, owner[~again])
        gaps = np.append(when[1:] - when[:-1], 0.0)
        followed = np.append(again[1:], False)
        return Ages(gaps[followed], owner[followed], np.where(followed, gaps, end - when), owner)
