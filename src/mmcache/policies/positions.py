"""A set of small integers in order: the next member after any number in a handful of word operations."""

from __future__ import annotations

_BITS = 6
_MASK = (1 << _BITS) - 1


class Positions:
    """Integers from 0 to below `size`, in sparse 64-bit words, with one bit a word in a word above, and so on.

    `add`, `discard` and `next` visit at most ceil(log64 size) words: two for a window of 1 000, three up to 262 144.
    That is the price of exactness: positions enter in any order and leave in any order, so neither a list (append
    only) nor a heap (a comparison sort) keeps their order in constant time. After van Emde Boas, "Preserving order in
    a forest in less than logarithmic time", FOCS 1975, with the fan-out of a machine word. Memory is O(members).
    """

    __slots__ = ("_floors",)

    def __init__(self, size: int) -> None:
        self._floors: list[dict[int, int]] = [{}]
        while size > 1 << _BITS:
            size = (size + _MASK) >> _BITS
            self._floors.append({})

    def __bool__(self) -> bool:
        return bool(self._floors[-1])

    def add(self, number: int) -> None:
        """Put `number` in."""
        for floor in self._floors:
            number, bit = number >> _BITS, 1 << (number & _MASK)
            word = floor.get(number, 0)
            floor[number] = word | bit
            if word:
                return  # the floors above know of this word

    def discard(self, number: int) -> None:
        """Take `number` out, if it is in."""
        for floor in self._floors:
            number, bit = number >> _BITS, 1 << (number & _MASK)
            word = floor.get(number, 0) & ~bit
            if word:
                floor[number] = word
                return
            floor.pop(number, None)

    def next(self, number: int) -> int | None:
        """The smallest member that is `number` or more."""
        floors = self._floors
        for height, floor in enumerate(floors):
            place = number >> _BITS
            word = floor.get(place, 0) >> (number & _MASK)
            if word:
                number += (word & -word).bit_length() - 1
                for below in reversed(floors[:height]):
                    word = below[number]
                    number = (number << _BITS) + (word & -word).bit_length() - 1
                return number
            number = place + 1
        return None
