"""What no cache can beat, knowing the future.

* `belady`: the exact optimum where all blocks weigh and cost the same (MIN: Belady, 1966; a block that would be evicted
  first is not stored at all).
* `flow_bound`: an upper bound on the cost that can be saved, for any sizes and costs. Between two requests for a block
  it either stays all the time, which takes size × requests of space-time, or the second is a miss. Asked only that all
  stays together fit into the space-time there is, the best choice is a fractional knapsack: that is PFOO-L (Berger,
  Beckmann and Harchol-Balter, "Practical Bounds on Optimal Caching with Variable Object Sizes", SIGMETRICS 2018), a
  lower bound on misses. Here the space-time is that of each of `windows` parts of the trace, by the Lagrangian dual of
  the same linear programme: any prices of space give a valid bound, and those of PFOO-L are where the search begins.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from mmcache.lab.replay import Hits
from mmcache.lab.traces.trace import Trace

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def next_uses(trace: Trace) -> Integers:
    """int64 [n]: the place of the next request for the same block; n where there is none."""
    count = len(trace)
    following = np.full(count, count, np.int64)
    order = np.argsort(trace.ids, kind="stable")
    same = trace.ids[order[1:]] == trace.ids[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    return following


def belady(trace: Trace, limit_bytes: int) -> Hits:
    """bool [n]: the most hits possible. Raises `ValueError` where blocks differ in size."""
    if len(trace) and int(trace.sizes.min()) != int(trace.sizes.max()):
        raise ValueError(f"Belady's MIN is the optimum for blocks of one size only; those of {trace.name} differ")
    room = limit_bytes // int(trace.sizes[0]) if len(trace) else 0
    found = bytearray(len(trace))
    wanted: dict[int, int] = {}
    farthest: list[tuple[int, int]] = []
    for place, (block, after) in enumerate(zip(trace.ids.tolist(), next_uses(trace).tolist(), strict=True)):
        if wanted.pop(block, None) is not None:
            found[place] = 1
        if after == len(trace) or not room:
            continue
        wanted[block] = after
        heapq.heappush(farthest, (-after, block))
        while len(wanted) > room:
            when, victim = heapq.heappop(farthest)
            if wanted.get(victim) == -when:
                del wanted[victim]
    return np.frombuffer(found, np.bool_)


def flow_bound(
    trace: Trace, limit_bytes: int, part: slice = slice(None), *, windows: int = 128, rounds: int = 60
) -> float:
    """At most this much of the cost of the requests in `part` (0…1) can be saved, by whatever policy."""
    start, stop, _ = part.indices(len(trace))
    total = float(trace.costs[trace.ids[start:stop]].sum())
    if not total:
        return 0.0
    ends = next_uses(trace)
    begins = np.arange(len(trace))
    kept = (ends >= start) & (ends < stop) & (trace.sizes[trace.ids] <= limit_bytes)
    if not kept.any():
        return 0.0
    begins, ends = begins[kept], ends[kept]
    sizes = np.maximum(trace.sizes[trace.ids[begins]].astype(np.float64), 1e-9)
    values = trace.costs[trace.ids[begins]]
    edges = np.linspace(0, len(trace), min(windows, len(trace)) + 1).astype(np.int64)
    space = _Space(begins, ends, sizes, edges)
    room = space.taken(np.ones(len(values), np.bool_), limit_bytes)
    prices = np.full(len(edges) - 1, _knapsack_price(values, sizes * (ends - begins), float(room.sum())))
    best, level = np.inf, float(prices[0])
    for turn in range(rounds):
        rents = sizes * space.rent(prices)
        stays = values > rents
        best = min(best, float(prices @ room + (values - rents)[stays].sum()))
        if not level or best <= 0:
            break
        slack = (space.taken(stays) - room) / np.maximum(room, 1.0)
        prices = np.maximum(0.0, prices * np.exp(np.clip(slack, -3, 3) * (0.5 / (1 + turn / 8))))
    return min(1.0, best / total)


def _knapsack_price(values: Floats, space: Floats, room: float) -> float:
    """The value a unit of space-time of the last stay that fits, the best ones first; 0 where all fit."""
    worth = values / space
    order = np.argsort(-worth, kind="stable")
    filled = np.cumsum(space[order])
    last = int(np.searchsorted(filled, room, side="right"))
    return float(worth[order[last]]) if last < len(order) else 0.0


class _Space:
    """Stays over windows of requests. A stay takes its bytes after its first request and until its last."""

    def __init__(self, begins: Integers, ends: Integers, sizes: Floats, edges: Integers) -> None:
        self._begins, self._ends, self._sizes, self._edges = begins, ends, sizes, edges
        self._widths = np.diff(edges).astype(np.float64)

    def rent(self, prices: Floats) -> Floats:
        """What a byte pays for each stay, at `prices` a byte and request [windows]."""
        paid = np.concatenate([[0.0], np.cumsum(prices * self._widths)])
        rents: Floats = np.interp(self._ends, self._edges, paid) - np.interp(self._begins, self._edges, paid)
        return rents

    def taken(self, stays: Hits, most: float = np.inf) -> Floats:
        """Byte-requests a window that `stays` take, at each request at most `most`: float64 [windows]."""
        change = np.zeros(int(self._edges[-1]) + 1)
        np.add.at(change, self._begins[stays], self._sizes[stays])
        np.add.at(change, self._ends[stays], -self._sizes[stays])
        each = np.minimum(np.cumsum(change)[:-1], most)
        sums: Floats = np.add.reduceat(each, self._edges[:-1])
        return sums
