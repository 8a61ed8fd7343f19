"""One stream over many engines: each with a cache of its own, or all with one. Replayed by the product's own policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.lab.capacity.streams import Stream
from mmcache.lab.replay import policy_named, replay
from mmcache.lab.traces.trace import Integers, Trace, uniform

POLICY = "auto"
_UNIT = 1


@dataclass(frozen=True)
class Shared:
    """What became of each use."""

    hits: npt.NDArray[np.bool_]
    """bool [n]: at the engine or in the shared tier."""
    local: npt.NDArray[np.bool_]
    """bool [n]: already at the engine."""

    @property
    def ratio(self) -> float:
        """Hits, 0…1 of the uses."""
        return float(self.hits.mean())


def at_random(stream: Stream, engines: int, seed: int) -> Integers:
    """int64 [r]: the engine of each request, as a round-robin balancer would spread them."""
    drawn = uniform(np.arange(len(stream.affinity)), 31 + seed)
    return (drawn * engines).astype(np.int64)


def by_affinity(stream: Stream, engines: int) -> Integers:
    """int64 [r]: the engine of each request, by a hash of what it shares with others (prefix-aware routing)."""
    return (uniform(stream.affinity, 77) * engines).astype(np.int64)


def run(stream: Stream, engine_of: Integers, blocks_each: int, blocks_shared: int) -> Shared:
    """Every engine holds `blocks_each` blocks, all together `blocks_shared` more behind them; 0 = no such cache."""
    place = engine_of[stream.requests]
    local = np.zeros(len(stream.ids), np.bool_)
    if blocks_each:
        for engine in range(int(engine_of.max()) + 1):
            mine = place == engine
            local[mine] = _replayed(stream.ids[mine], blocks_each)
    hits = local.copy()
    if blocks_shared:
        hits[~local] = _replayed(stream.ids[~local], blocks_shared)
    return Shared(hits, local)


def _replayed(ids: npt.NDArray[np.uint32], blocks: int) -> npt.NDArray[np.bool_]:
    if not len(ids):
        return np.zeros(0, np.bool_)
    return replay(Trace.of("part", ids, None, _UNIT), policy_named(POLICY), blocks * _UNIT).hits
