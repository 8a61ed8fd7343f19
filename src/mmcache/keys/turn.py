"""`Turn`: the eight ways to lay a rectangle on itself (the dihedral group D4)."""

from __future__ import annotations

from enum import IntEnum


class Turn(IntEnum):
    """Mirror left to right first if the number is odd, then turn counter-clockwise by 90° `number // 2` times."""

    NONE = 0
    FLIP = 1
    ROTATE_90 = 2
    FLIP_90 = 3
    ROTATE_180 = 4
    FLIP_180 = 5
    ROTATE_270 = 6
    FLIP_270 = 7

    def then(self, other: Turn) -> Turn:
        """This turn, and `other` after it."""
        # A mirror reverses every rotation before it: F·R^k = R^-k·F.
        quarters = other // 2 + (-(self // 2) if other % 2 else self // 2)
        return Turn((quarters % 4) * 2 + (self + other) % 2)

    @property
    def inverse(self) -> Turn:
        """The turn that undoes it."""
        return self if self % 2 else Turn((-self) % 8)

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Width and height after the turn. Its own inverse."""
        return (size[1], size[0]) if self // 2 % 2 else size

    def apply(self, box: tuple[int, int, int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Where `box` of a picture of `size` lies after the turn."""
        left, upper, right, lower = box
        width, height = size
        if self % 2:
            left, right = width - right, width - left
        for _ in range(self // 2):
            left, upper, right, lower = upper, width - right, lower, width - left
            width, height = height, width
        return left, upper, right, lower

    def before(self, box: tuple[int, int, int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Where `box` of the turned picture lay before; `size` is the size before the turn."""
        return self.inverse.apply(box, self.size(size))

    @property
    def transposes(self) -> tuple[str, ...]:
        """Names of Pillow's `Transpose` operations that do it, in order."""
        return _TRANSPOSES[self]


_TRANSPOSES: tuple[tuple[str, ...], ...] = (
    (),
    ("FLIP_LEFT_RIGHT",),
    ("ROTATE_90",),
    ("TRANSPOSE",),
    ("ROTATE_180",),
    ("FLIP_TOP_BOTTOM",),
    ("ROTATE_270",),
    ("TRANSVERSE",),
)
