"""Communities of a weighted graph: keys that are used together. Pure, deterministic, and vectorised: no loop over keys.

Local moving by modularity, then the same on the graph of what was found, level by level (Blondel et al., "Fast
unfolding of communities in large networks", 2008). All nodes of a round look at the same labels and a drawn half of
those that gain moves, which is what lets numpy do it; each round is kept only if modularity rose. It goes on from the
labels of last time. So that what has come apart can part, each level is joined from pieces that hang together inside
their community, as in Traag, Waltman & van Eck, "From Louvain to Leiden" (2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.hotkeys.graph import Floats, Integers, summed

ROUNDS, LEVELS = 16, 8
_ENOUGH = 0.002
"""Share of the nodes; a round that would move fewer is the last."""
_GAIN = 1e-12


@dataclass(frozen=True)
class _Level:
    """An undirected graph: each edge twice, in order of `u`; without loops, whose weight is in `degree` alone."""

    u: Integers
    v: Integers
    weight: Floats
    degree: Floats
    whole: float
    """Sum of the degrees."""
    inside: float
    """Of it, the loops'."""

    @property
    def size(self) -> int:
        return len(self.degree)


def communities(
    source: Integers,
    target: Integers,
    weight: Floats,
    size: int,
    start: Integers | None = None,
    *,
    resolution: float = 1.0,
) -> Integers:
    """[size] The community of each node, 0 … n - 1 in the order of their first nodes; a node without edges is alone.

    source, target, weight: [E] edges between nodes 0 … size - 1, weights over 0; the direction is not looked at.
    start: [size] labels to go on from, e.g. those of last time; negative: alone. resolution: over 1 makes smaller ones.
    """
    level = _level(source, target, weight, size)
    if not len(level.u):
        return np.arange(size)
    labels = np.arange(size)
    if start is not None:
        named, where = np.unique(start, return_inverse=True)
        alone = (start < 0) | (level.degree <= 0.0)
        labels = _compact(np.where(alone, len(named) + np.arange(size), where))
    of_node = np.arange(size)  # node of the first level → node of this one
    for depth in range(LEVELS):
        labels = _move(level, labels, resolution, depth)
        pieces = _move(level, np.arange(level.size), resolution, depth, within=labels)
        count = int(pieces.max()) + 1
        if count == level.size:
            break
        first = np.zeros(count, np.int64)
        first[pieces] = labels
        level, labels, of_node = _joined(level, pieces, count), first, pieces[of_node]
    return _compact(labels[of_node])


def modularity(source: Integers, target: Integers, weight: Floats, labels: Integers, resolution: float = 1.0) -> float:
    """Of a labelling, as if edges had no direction (Newman, 2004)."""
    return _quality(_level(source, target, weight, len(labels)), labels, resolution)


def _level(source: Integers, target: Integers, weight: Floats, size: int) -> _Level:
    loops = source == target
    ends, others = np.concatenate([source, target]), np.concatenate([target, source])
    both = np.concatenate([weight, weight])
    degree = summed(ends, both, size)
    keep = np.concatenate([~loops, ~loops])
    ends, others, both = ends[keep], others[keep], both[keep]
    order = np.argsort(ends * size + others)
    inside = 2 * float(weight[loops].sum())
    return _Level(ends[order], others[order], both[order], degree, float(degree.sum()), inside)


def _joined(level: _Level, pieces: Integers, count: int) -> _Level:
    """The graph whose nodes are `pieces` of this one's."""
    name = pieces[level.u] * count + pieces[level.v]
    found, weight = _summed(name, level.weight)
    u, v = np.divmod(found, count)
    apart = u != v
    degree = summed(pieces, level.degree, count)
    inside = level.inside + float(weight[~apart].sum())
    return _Level(u[apart], v[apart], weight[apart], degree, level.whole, inside)


def _summed(names: Integers, weight: Floats) -> tuple[Integers, Floats]:
    """Distinct names, ascending, and the sum of each one's weights."""
    if not len(names):
        return names, weight
    order = np.argsort(names)
    names = names[order]
    starts = np.flatnonzero(np.concatenate([[True], names[1:] != names[:-1]]))
    return names[starts], np.add.reduceat(weight[order], starts)


def _move(level: _Level, labels: Integers, resolution: float, depth: int, within: Integers | None = None) -> Integers:
    """The best labels of `ROUNDS` rounds at most. within: only edges inside these communities count."""
    u, v, weight = level.u, level.v, level.weight
    if within is not None:
        inner = within[u] == within[v]
        u, v, weight = u[inner], v[inner], weight[inner]
    if not len(u):
        return _compact(labels)
    best, best_quality = labels, _quality(level, labels, resolution)
    stirred = np.ones(level.size, bool)  # nodes around which something moved since they had their turn
    for turn in range(ROUNDS):
        may = stirred & _drawn(level.size, turn, depth)
        if not may.any():
            if turn % 2:
                break
            continue
        theirs = may[u]
        moved = _round(level, u[theirs], v[theirs], weight[theirs], labels, resolution, may, within is None)
        changed = moved != labels
        stirred &= ~may
        stirred[v[changed[u]]] = True
        labels = _compact(moved)
        if turn % 2:  # both halves had their turn
            quality = _quality(level, labels, resolution)
            if quality <= best_quality + _GAIN:
                break
            best, best_quality = labels, quality
            if int(stirred.sum()) < _ENOUGH * level.size:
                break
    return _compact(best)


def _round(
    level: _Level,
    u: Integers,
    v: Integers,
    weight: Floats,
    labels: Integers,
    resolution: float,
    may: npt.NDArray[np.bool_],
    leaving: bool,
) -> Integers:
    """Where each node that `may` would go; u, v, weight: all of their edges, and no others. leaving: out of its
    community, to be alone, as well."""
    degree, span = level.degree, int(labels.max()) + 1
    held, members = np.bincount(labels, degree, span), np.bincount(labels, minlength=span)
    scale = resolution / level.whole
    stay = -scale * degree * (held[labels] - degree)  # of a node that has no edge into its own
    target = labels.copy()
    found, sums = _summed(u * span + labels[v], weight)
    if len(found):
        node, label = np.divmod(found, span)
        own = label == labels[node]
        gain = sums - scale * degree[node] * (held[label] - np.where(own, degree[node], 0.0))
        stay[node[own]] = gain[own]
        # Two nodes that are alone would swap places for ever: the later one goes.
        swap = (members[label] == 1) & (members[labels[node]] == 1) & (label > labels[node])
        gain[swap | own] = -np.inf
        starts = np.flatnonzero(np.concatenate([[True], node[1:] != node[:-1]]))
        most, nodes = np.maximum.reduceat(gain, starts), node[starts]
        at_best = np.flatnonzero(gain == np.repeat(most, np.diff(np.append(starts, len(node)))))
        where = label[at_best[np.searchsorted(at_best, starts)]]  # the lowest label of equal ones
        goes = most > np.maximum(stay[nodes], 0.0) + _GAIN
        target[nodes[goes]] = where[goes]
    if leaving:
        alone = may & (stay < -_GAIN) & (target == labels) & (members[labels] > 1)
        target[alone] = span + np.flatnonzero(alone)
    return target


def _quality(level: _Level, labels: Integers, resolution: float) -> float:
    if level.whole <= 0.0:
        return 0.0
    inside = level.inside + float(level.weight[labels[level.u] == labels[level.v]].sum())
    held = np.bincount(labels, level.degree) / level.whole
    return inside / level.whole - resolution * float(held @ held)


def _drawn(size: int, turn: int, depth: int) -> npt.NDArray[np.bool_]:
    """Half of the nodes, in odd turns the others. A hash of the node's number (Steele et al., SplitMix64, 2014)."""
    salt = (turn // 2 * 0x9E3779B97F4A7C15 + depth * 0xD1B54A32D192ED03 + 0x9E3779B97F4A7C15) & ((1 << 64) - 1)
    mixed = np.arange(size, dtype=np.uint64) + np.uint64(salt)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    half: npt.NDArray[np.bool_] = ((mixed >> np.uint64(40)) & np.uint64(1)) == turn % 2
    return half


def _compact(labels: Integers) -> Integers:
    """The same communities, numbered in the order of their first nodes."""
    first = np.full(int(labels.max()) + 1, len(labels), np.int64)
    first[labels[::-1]] = np.arange(len(labels))[::-1]  # of several assignments to one place the last one stands
    used = np.flatnonzero(first < len(labels))
    rank = np.empty(len(first), np.int64)
    rank[used[np.argsort(first[used])]] = np.arange(len(used))
    return rank[labels]
