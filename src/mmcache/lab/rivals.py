"""Other people's policies on our traces: libCacheSim's (GPL-3, an extra of the laboratory only), and two it lacks.

libCacheSim 0.3.5 is asked request by request, so that each hit is known. Its policies weigh sizes and know no costs;
its per-object metadata is not charged, and that each keeps to its bytes is checked. LIRS there does not store what is
larger than its small queue: that is its own, and is left so. Its SIEVE was compared with an implementation of our own
on three traces: no request differed.

Its W-TinyLFU and Cacheus take the bytes of the cache for a number of blocks where they size their sketch, their ageing
and their learning. So sizes are given in units of their greatest common divisor: blocks, where all weigh the same.
Where they do not, its W-TinyLFU hardly ages, and refuses what is larger than its window, 1 % of the cache;
`lab.tinylfu` does neither, and contends beside it. Its LHD learns once in 2²⁰ requests, so on shorter traces it stands
at its first guess, and its rows say little. LHD and Cacheus draw random numbers without a seed: they differ a little
from run to run.
"""

from __future__ import annotations

import ctypes
import heapq
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from mmcache.lab.replay import Hits
from mmcache.lab.tinylfu import tinylfu
from mmcache.lab.traces.trace import Trace
from mmcache.model.errors import AssetError, IntegrityError

LIBCACHESIM = {
    "LRU": "LRU",
    "LFU": "LFU",
    "ARC": "ARC",
    "S3-FIFO": "S3FIFO",
    "SIEVE": "Sieve",
    "W-TinyLFU": "WTinyLFU",
    "GDSF": "GDSF",
    "LHD": "LHD",
    "LIRS": "LIRS",
    "2Q": "TwoQ",
    "Cacheus": "Cacheus",
}
"""Our name of each → its class there."""
COST_GDSF, ADAPTIVE = "GDSF+cost", "W-TinyLFU adaptive"
NAMES = (*LIBCACHESIM, COST_GDSF, ADAPTIVE)
_CHECKED = 127
"""Requests (a power of two, less one) between two looks at the bytes that a rival holds."""
_HASH_POWER = 17
_LEAST_UNITS = 100
"""A smaller cache is given in bytes: parts of it (a window of 1 %) would be nothing in units, and W-TinyLFU aborts."""
_TALKATIVE = ("LIRS", "W-TinyLFU")
"""Tell the terminal of every block that they do not store, or of their sketch."""


def available() -> tuple[str, ...]:
    """The rivals that can run here."""
    return NAMES if find_spec("libcachesim") else (COST_GDSF, ADAPTIVE)


def hits(trace: Trace, rival: str, limit_bytes: int) -> Hits:
    """bool [n]: what `rival` in `limit_bytes` would have had. A block larger than the limit passes everybody by.

    Raises `AssetError` where libCacheSim is not installed, `IntegrityError` when a rival holds more than its bytes.
    """
    if rival == COST_GDSF:
        return cost_gdsf(trace, limit_bytes)
    if rival == ADAPTIVE:
        return tinylfu(trace, limit_bytes)
    try:
        library: Any = import_module("libcachesim")
    except ImportError as error:
        raise AssetError("libcachesim is not installed; run `pip install 'mmcache[rivals]'`") from error
    unit = max(1, int(np.gcd.reduce(trace.sizes)))
    if limit_bytes < _LEAST_UNITS * unit:
        unit = 1
    limit = limit_bytes // unit
    found = bytearray(len(trace))
    sizes = (trace.sizes // unit)[trace.ids].tolist()
    times = trace.times.astype(np.int64).tolist()
    with _unheard() if rival in _TALKATIVE else nullcontext():
        cache = getattr(library, LIBCACHESIM[rival])(limit, hashpower=_HASH_POWER, consider_obj_metadata=False)
        request = library.Request()
        request.op = library.ReqOp.OP_GET
        get, occupied = cache.get, cache.get_occupied_byte
        for place, block in enumerate(trace.ids.tolist()):
            size = sizes[place]
            if size > limit:
                continue
            request.obj_id, request.obj_size, request.clock_time = block + 1, size, times[place]
            if get(request):
                found[place] = 1
            if not place & _CHECKED and occupied() > limit:
                raise IntegrityError(f"{rival} holds {occupied()} of {limit} units on {trace.name}; leave it out")
    return np.frombuffer(found, np.bool_)


@contextmanager
def _unheard() -> Iterator[None]:
    """What C code says on stdout and stderr goes nowhere, also what it buffers."""
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    flush(None)
    kept, nowhere = [os.dup(1), os.dup(2)], os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        flush(None)
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for one in (*kept, nowhere):
            os.close(one)


def cost_gdsf(trace: Trace, limit_bytes: int) -> Hits:
    """bool [n]: GreedyDual-Size-Frequency (Cherkasova, HP Labs 1998) with each block's own cost.

    A block's priority is uses × cost ÷ bytes, plus what the last evicted block had (inflation); a block that was
    evicted starts again at one use. Exact, by a heap with stale entries.
    """
    costs, sizes = trace.costs.tolist(), trace.sizes.tolist()
    standing: dict[int, tuple[float, int]] = {}
    uses: dict[int, int] = {}
    heap: list[tuple[float, int, int]] = []
    floor, held = 0.0, 0
    found = bytearray(len(trace))
    for place, block in enumerate(trace.ids.tolist()):
        size = sizes[block]
        if size > limit_bytes:
            continue
        if block in standing:
            found[place] = 1
            uses[block] += 1
        else:
            while held + size > limit_bytes:
                priority, when, victim = heapq.heappop(heap)
                if standing[victim] == (priority, when) if victim in standing else False:
                    del standing[victim], uses[victim]
                    held -= sizes[victim]
                    floor = priority
            uses[block] = 1
            held += size
        standing[block] = (floor + uses[block] * costs[block] / max(size, 1), place)
        heapq.heappush(heap, (*standing[block], block))
        if len(heap) > 8 * len(standing) + 1000:
            heap = [(priority, when, one) for one, (priority, when) in standing.items()]
            heapq.heapify(heap)
    return np.frombuffer(found, np.bool_)
