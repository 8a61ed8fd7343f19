"""`BothClaims`: one leader a machine, then one of all hosts."""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.model.key import Key
from mmcache.tiers.base import Claims


class BothClaims:
    """`Claims` that are held when both are: first the near one, which costs nothing, so that one process a machine
    asks for the far one. Given back in reverse."""

    def __init__(self, near: Claims, far: Claims) -> None:
        self.near, self.far = near, far

    def acquire(self, key: Key) -> bool:
        """Try to become the leader. Where the far one says no, or fails, the near one is given back."""
        if not self.near.acquire(key):
            return False
        won = False
        try:
            won = self.far.acquire(key)
        finally:
            if not won:
                self.near.release(key)
        return won

    def acquire_all(self, keys: Sequence[Key]) -> list[bool]:
        """The same for many."""
        near = [key for key, won in zip(keys, self.near.acquire_all(keys), strict=True) if won]
        held: set[Key] = set()
        try:
            held = {key for key, won in zip(near, self.far.acquire_all(near), strict=True) if won}
        finally:
            for key in near:
                if key not in held:
                    self.near.release(key)
        return [key in held for key in keys]

    def release(self, key: Key) -> None:
        """Give both back."""
        try:
            self.far.release(key)
        finally:
            self.near.release(key)
