"""The paged arena: features cut into fixed tiles in one allocation, so that no free page is ever out of reach.

The page table idea is that of PagedAttention (Kwon et al., SOSP 2023), in two axes: a page is a tile of tokens and
channels, so a partial reuse (some tokens of a block) is a shorter list of the same pages.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import ArenaError
from mmcache.model.frame import ALIGNMENT

Array = npt.NDArray[Any]


@dataclass(eq=False)
class PageList:
    """Where an array `[tokens, channels]` lies: page numbers, one row for each tile of tokens.

    The first `skip` tokens of the first row belong to somebody else's part of the same pages. `Arena.move` changes
    `rows`, so they are to be relied on inside a lease only.
    """

    rows: tuple[tuple[int, ...], ...]
    tokens: int
    channels: int
    skip: int = 0

    @property
    def pages(self) -> list[int]:
        """All page numbers, in order."""
        return list(chain.from_iterable(self.rows))


class Arena:
    """`pages` pages of `page_shape` (tokens, channels) elements, 64-byte aligned. Safe under threads.

    A page is free when no page list and no lease holds it; only then is it used again. What is stored is never
    written to afterwards, so readers need no lock.
    """

    def __init__(self, pages: int, page_shape: tuple[int, int] = (64, 128), dtype: npt.DTypeLike = np.float16) -> None:
        """Allocates everything at once. Raises `ArenaError` for sizes below one."""
        if pages < 1 or min(page_shape) < 1:
            raise ArenaError(f"an arena has at least one page of at least one element, not {pages} of {page_shape}")
        self.page_shape = page_shape
        self.dtype = np.dtype(dtype)
        size = pages * math.prod(page_shape) * self.dtype.itemsize
        raw = np.zeros(size + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        self._data: Array = raw[start : start + size].view(self.dtype).reshape(pages, *page_shape)
        self._holders = np.zeros(pages, np.int64)
        self._leased = np.zeros(pages, np.int64)
        self._live: set[PageList] = set()
        self._ended: deque[npt.NDArray[np.int64]] = deque()
        """Pages of leases that ended; counted at the next turn."""
        self._lock = threading.Lock()

    @property
    def data(self) -> Array:
        """The pages, read-only, `[pages, tokens, channels]`. A page keeps its content while it is leased."""
        view = self._data.view()
        view.flags.writeable = False
        return view

    @property
    def free(self) -> int:
        """Pages that can be stored to."""
        with self._turn():
            return int(np.count_nonzero(self._holders == 0))

    def pages_for(self, tokens: int, channels: int) -> int:
        """Pages that an array of this shape takes."""
        return -(-tokens // self.page_shape[0]) * -(-channels // self.page_shape[1])

    def store(self, array: Array) -> PageList:
        """Copy `array` `[tokens, channels]`, of the arena's dtype, into free pages.

        Raises `ArenaError` when it has another dtype or number of axes, or when there are fewer free pages than it
        needs; nothing is stored then. However the free pages lie, any of them will do.
        """
        if array.ndim != 2 or array.dtype != self.dtype:
            raise ArenaError(f"stores [tokens, channels] of {self.dtype}, got {array.dtype} of shape {array.shape}")
        tokens, channels = array.shape
        with self._turn():
            page_list = self._listed(self._take(self.pages_for(tokens, channels)), tokens, channels)
        for page, _, tile in _tiles(page_list, array, self.page_shape):
            target = self._data[page]
            target[: tile.shape[0], : tile.shape[1]] = tile
            target[tile.shape[0] :] = 0  # padding must not carry what another block left
            target[:, tile.shape[1] :] = 0
        return page_list

    def _take(self, count: int) -> list[int]:
        """Free pages, now held once: the first run that is long enough, else the first ones."""
        free = np.flatnonzero(self._holders == 0)
        if len(free) < count:
            raise ArenaError(f"{count} pages are needed, {len(free)} of {len(self._holders)} are free; release some")
        first = _run(free, count) or 0
        taken = free[first : first + count]
        self._holders[taken] += 1
        return [int(page) for page in taken]

    def _listed(self, pages: list[int], tokens: int, channels: int, skip: int = 0) -> PageList:
        width = -(-channels // self.page_shape[1])
        rows = tuple(tuple(pages[at : at + width]) for at in range(0, len(pages), width or 1))
        page_list = PageList(rows, tokens, channels, skip)
        self._live.add(page_list)
        return page_list

    def share(self, page_list: PageList, start: int = 0, stop: int | None = None) -> PageList:
        """A list of its own of the tokens from `start` to `stop`, in the same pages; nothing is copied."""
        stop = page_list.tokens if stop is None else stop
        if not 0 <= start <= stop <= page_list.tokens:
            raise ArenaError(f"tokens {start} to {stop} are not within 0 to {page_list.tokens}")
        height = self.page_shape[0]
        begin, end = page_list.skip + start, page_list.skip + stop
        with self._turn():
            self._check_live(page_list)
            rows = page_list.rows[begin // height : -(-end // height)] if stop > start else ()
            part = PageList(rows, stop - start, page_list.channels, begin % height if rows else 0)
            self._hold(self._holders, part, 1)
            self._live.add(part)
        return part

    def gather(self, page_list: PageList, out: Array | None = None) -> Array:
        """The array again, `[tokens, channels]`, copied into `out` (any strides) or into a new array."""
        shape = (page_list.tokens, page_list.channels)
        if out is None:
            out = np.empty(shape, self.dtype)
        elif out.shape != shape or out.dtype != self.dtype:
            raise ArenaError(f"gathers {self.dtype} of shape {shape}, `out` is {out.dtype} of shape {out.shape}")
        with self.lease(page_list):
            for page, top, tile in _tiles(page_list, out, self.page_shape):
                tile[...] = self._data[page, top : top + tile.shape[0], : tile.shape[1]]
        return out

    def gather_pages(self, page_lists: Sequence[PageList], out: Array | None = None) -> Array:
        """Whole pages of several lists, one after the other, `[pages, tokens, channels]`.

        `out`, where given, has room for at least as many pages. Returns the part of it that was filled.
        """
        with self.lease(*page_lists) as pages:
            if out is None:
                out = np.empty((len(pages), *self.page_shape), self.dtype)
            elif len(out) < len(pages) or out.shape[1:] != self.page_shape or out.dtype != self.dtype:
                raise ArenaError(f"gathers {len(pages)} pages of {self.dtype}, `out` is {out.dtype} of {out.shape}")
            filled = out[: len(pages)]
            self._data.take(pages, axis=0, out=filled, mode="clip")  # any other mode copies twice
        return filled

    @contextmanager
    def lease(self, *page_lists: PageList) -> Iterator[npt.NDArray[np.int64]]:
        """Inside, the lists' pages are neither moved nor used again, even when they are released meanwhile.

        Gives their numbers, one list after the other.
        """
        with self._turn():
            for page_list in page_lists:
                self._check_live(page_list)
            rows = chain.from_iterable(page_list.rows for page_list in page_lists)
            pages = np.fromiter(chain.from_iterable(rows), np.int64)
            np.add.at(self._holders, pages, 1)  # lists may share pages
            np.add.at(self._leased, pages, 1)
        try:
            yield pages
        finally:  # which the garbage collector may run anywhere, for a lease that was given up: never wait here
            self._ended.append(pages)
            if self._lock.acquire(blocking=False):
                try:
                    self._count_ended()
                finally:
                    self._lock.release()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The lock, and counts without the leases that ended."""
        with self._lock:
            self._count_ended()
            yield

    def _count_ended(self) -> None:
        while self._ended:
            pages = self._ended.popleft()
            np.subtract.at(self._holders, pages, 1)
            np.subtract.at(self._leased, pages, 1)

    def release(self, page_list: PageList) -> None:
        """Give the list up; raises `ArenaError` the second time. Pages are free once nobody shares or leases them."""
        with self._turn():
            self._check_live(page_list)
            self._live.remove(page_list)
            self._hold(self._holders, page_list, -1)

    def compact(self, page_list: PageList) -> PageList:
        """Move the list into one run of free pages, where there is one; the old list is released.

        Shared and leased pages never move: then, or where no run is free, the same list comes back.
        """
        with self._turn():
            self._check_live(page_list)
            pages = page_list.pages  # inside: another thread may move some of them
            if (self._holders[pages] > 1).any() or not scattered(pages):
                return page_list
            if _run(np.flatnonzero(self._holders == 0), len(pages)) is None:
                return page_list
            moved = self._listed(self._take(len(pages)), page_list.tokens, page_list.channels, page_list.skip)
            self._data[moved.pages] = self._data[pages]
            self._live.remove(page_list)
            self._hold(self._holders, page_list, -1)
        return moved

    def move(self, page_list: PageList, at: int, target: int, occupant: tuple[PageList, int] | None = None) -> int:
        """Move the list's page number `at` (in its order) to the page `target`, whose `occupant` (a list, and which of
        its pages) comes in its place. The lists stay valid: they say the new places.

        Returns pages copied: 1, or 2 for an exchange; 0 where nothing was done, because one of the pages is leased or
        shared, `target` is not free and not its occupant's, or a list was released. Readers hold a lease, so they see
        the one place or the other.
        """
        with self._turn():
            if page_list not in self._live:
                return 0
            source = page_list.pages[at]
            if source == target or self._holders[source] != 1:  # a lease is a holder, too
                return 0
            if occupant is None:
                if self._holders[target]:
                    return 0
                self._data[target] = self._data[source]
                self._holders[target], self._holders[source] = 1, 0
            else:
                other, place = occupant
                if other not in self._live or self._holders[target] != 1 or other.pages[place] != target:
                    return 0
                kept = self._data[target].copy()
                self._data[target] = self._data[source]
                self._data[source] = kept
                _put(other, place, source)
            _put(page_list, at, target)
        return 1 if occupant is None else 2

    def alive(self, page_list: PageList) -> bool:
        """Whether nobody released the list yet."""
        return page_list in self._live

    def fixed(self, movable: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Which pages nothing can be moved to now, `[pages]`: leased, shared, or held and none of the `movable`."""
        own = np.zeros(len(self._holders), np.int64)
        own[np.fromiter(movable, np.int64)] = 1
        with self._turn():
            return np.asarray((self._holders > 1) | (self._holders > own))

    def check(self) -> None:
        """Raise `ArenaError` when the counts are not those of the live lists (call it while nothing is leased)."""
        with self._turn():
            counted = Counter(page for page_list in self._live for page in page_list.pages)
            expected = np.array([counted[page] for page in range(len(self._holders))])
            if not np.array_equal(self._holders - self._leased, expected):
                raise ArenaError("pages are held by nobody, or by more lists than there are")

    def _check_live(self, page_list: PageList) -> None:
        if page_list not in self._live:
            raise ArenaError("this page list was released, or is another arena's")

    @staticmethod
    def _hold(counts: npt.NDArray[np.int64], page_list: PageList, change: int) -> None:
        counts[page_list.pages] += change  # no page is twice in one list


def fragmentation(page_lists: Iterable[PageList]) -> float:
    """1 − pages in runs ÷ pages. A page is in a run when a page before or after it in its list is its neighbour.

    A list of a single page is a run. 0 = every read is sequential; also when there are no pages.
    """
    pages = alone = 0
    for page_list in page_lists:
        numbers = page_list.pages
        pages += len(numbers)
        alone += scattered(numbers)
    return alone / pages if pages else 0.0


def scattered(pages: Sequence[int]) -> int:
    """Of pages in the order in which they are read: those that lie neither just behind the page before them nor just
    in front of the page after them. A single page is not scattered. Who reads in ascending order, as one should,
    counts `sorted(pages)`."""
    if len(pages) < 2:
        return 0
    follows = np.diff(np.asarray(pages, np.int64)) == 1
    return int((~np.concatenate([[False], follows]) & ~np.concatenate([follows, [False]])).sum())


def runs(pages: Sequence[int]) -> int:
    """Into how many runs of ascending neighbours pages fall that are read in this order."""
    return int(np.count_nonzero(np.diff(np.asarray(pages, np.int64)) != 1)) + 1 if len(pages) else 0


def _put(page_list: PageList, at: int, page: int) -> None:
    row, column = divmod(at, len(page_list.rows[0]))
    changed = list(page_list.rows[row])
    changed[column] = page
    page_list.rows = (*page_list.rows[:row], tuple(changed), *page_list.rows[row + 1 :])


def _run(free: npt.NDArray[np.int64], count: int) -> int | None:
    """Where in the sorted `free` the first run of `count` consecutive numbers begins."""
    if not 0 < count <= len(free):
        return None
    starts = np.flatnonzero(free[count - 1 :] - free[: len(free) - count + 1] == count - 1)
    return int(starts[0]) if len(starts) else None


def _tiles(page_list: PageList, array: Array, page_shape: tuple[int, int]) -> Iterator[tuple[int, int, Array]]:
    """(page, its first token that counts, the part of `array` that it holds)."""
    height, width = page_shape
    for i, row in enumerate(page_list.rows):
        top = page_list.skip if i == 0 else 0
        begin = i * height + top - page_list.skip
        end = min((i + 1) * height - page_list.skip, page_list.tokens)
        for j, page in enumerate(row):
            yield page, top, array[begin:end, j * width : (j + 1) * width]
