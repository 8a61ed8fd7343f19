"""Labels in slots 0 … n-1 without gaps, for the plain twins: the last one takes the slot of one that goes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, SupportsIndex, TypeVar

import numpy as np
import numpy.typing as npt

from mmcache.forks import QuietLock

MOST_LABEL = 1 << 63
Scalar = TypeVar("Scalar", bound=np.generic)
Twin = TypeVar("Twin", bound="Slots")
Given = ParamSpec("Given")
Result = TypeVar("Result")


def alone(method: Callable[Concatenate[Twin, Given], Result]) -> Callable[Concatenate[Twin, Given], Result]:
    """`method` while no other thread is in one: what is one step of the interpreter in C is many here."""

    @wraps(method)
    def called(self: Twin, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        with self.lock:
            return method(self, *args, **kwargs)

    return called


def whole(given: SupportsIndex, least: int, limit: int, refused: type[Exception], what: str) -> int:
    """`given` as an int from `least` to below `limit`."""
    try:
        number = operator.index(given)
    except TypeError:
        number = least - 1
    if least <= number < limit:
        return number
    raise refused(f"{what}, got {given!r}")


class Slots:
    """label → slot, and slot → label."""

    def __init__(self, refused: type[Exception]) -> None:
        self.refused = refused
        self.lock = QuietLock()
        self.labels = np.empty(0, np.int64)
        self.of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.of)

    def has(self, label: int, /) -> bool:
        """Whether it is there."""
        return self._label(label) in self.of

    def place(self, label: int) -> int:
        """The slot of a new label."""
        label = self._label(label)
        if label in self.of:
            raise self.refused(f"label {label} is there already; drop it first")
        slot = self.of[label] = len(self.of)
        if slot == len(self.labels):
            self.labels = grown(self.labels)
        self.labels[slot] = label
        return slot

    def leave(self, label: int) -> tuple[int, int] | None:
        """(slot that got free, slot that moves there), or None for an unknown label."""
        slot = self.of.pop(self._label(label), None)
        if slot is None:
            return None
        last = len(self.of)
        if slot != last:
            moved = int(self.labels[last])
            self.labels[slot] = moved
            self.of[moved] = slot
        return slot, last

    def slot(self, label: int) -> int | None:
        """Where a label is."""
        return self.of.get(self._label(label))

    def _label(self, label: int) -> int:
        return whole(label, -MOST_LABEL, MOST_LABEL, self.refused, "a label is a whole number of 64 bits")


def grown(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """A copy with room for more rows."""
    bigger = np.zeros((len(array) * 3 // 2 + 8, *array.shape[1:]), array.dtype)
    bigger[: len(array)] = array
    return bigger


def ones_of(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """How many bits of each word are set."""
    counted: npt.NDArray[np.uint8]
    if hasattr(np, "bitwise_count"):
        counted = np.bitwise_count(words)
    else:  # numpy before 2.0
        counted = _ONES[np.ascontiguousarray(words)[..., None].view(np.uint8)].sum(-1, dtype=np.uint8)
    return counted


_ONES = np.array([n.bit_count() for n in range(256)], np.uint8)
