"""Rows of an access log, column by column, and what is assumed where a log does not tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mmcache.lab.traces.encoder_costs import CURVES, seconds_a_byte
from mmcache.lab.traces.trace import Floats, Integers, Trace, renumber

ASSUMED_BYTES = 4096
"""Of a block whose size no row tells."""


@dataclass
class Rows:
    """What was read, a list a column."""

    keys: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    blocks: dict[tuple[str, str], int] = field(default_factory=dict)
    modalities: list[str] = field(default_factory=list)
    """A block's, by number; "" where none was told."""
    tenants: list[str] = field(default_factory=list)
    """A block's."""

    def trace(self, name: str, skipped: int = 0) -> Trace:
        """The rows as a trace, in order of time; its notes say what was assumed, and how many were `skipped`."""
        notes = [f"{skipped} rows that could not be used were left out"] if skipped else []
        blocks, times = np.array(self.keys, np.int64), np.array(self.times)
        if np.isnan(times).all():
            notes.append("no times: a request every 10 ms is assumed, so lifetimes and seconds a day mean nothing")
            times = np.arange(len(blocks)) * 0.01
        elif (np.diff(times) < 0).any():
            notes.append("rows were not in order of time; sorted")
            order = np.argsort(times, kind="stable")
            blocks, times = blocks[order], times[order]
            self.bytes, self.costs = [self.bytes[i] for i in order], [self.costs[i] for i in order]
        ids = renumber(blocks)
        count = len(self.blocks)
        number_of = np.empty(count, np.int64)
        number_of[blocks] = ids
        modalities, kinds = _places(self.modalities, number_of, "tensor")
        tenants, owners = _places(self.tenants, number_of, "default")
        sizes = np.full(count, -1, np.int64)
        np.maximum.at(sizes, ids, np.array(self.bytes, np.int64))
        if (sizes < 0).any():
            notes.append(
                f"{int((sizes < 0).sum())} of {count} blocks have no bytes: {ASSUMED_BYTES} B each are assumed"
            )
            sizes[sizes < 0] = ASSUMED_BYTES
        told = np.array(self.costs)
        sums, times_told = np.zeros(count), np.zeros(count)
        known = ~np.isnan(told)
        np.add.at(sums, ids[known], told[known])
        np.add.at(times_told, ids[known], 1)
        costs = np.divide(sums, times_told, out=np.full(count, np.nan), where=times_told > 0)
        if (unknown := np.isnan(costs)).any():
            costs[unknown], note = _assumed_costs(costs, sizes, [modalities[kind] for kind in kinds], unknown)
            notes.append(note)
        return Trace(name, ids, times, sizes, costs, kinds, owners, modalities, tenants, tuple(notes))


def _places(told: Sequence[str], number_of: Integers, otherwise: str) -> tuple[tuple[str, ...], Integers]:
    """Words by block as read → (the words that occur, place of each block's by its number in the trace)."""
    words = [word or otherwise for word in told]
    names = tuple(sorted(set(words)))
    place = {name: number for number, name in enumerate(names)}
    found = np.empty(len(words), np.int64)
    found[number_of] = [place[word] for word in words]
    return names, found


def _assumed_costs(
    costs: Floats,
    sizes: Integers,
    kinds: Sequence[str],
    unknown: npt.NDArray[np.bool_],
) -> tuple[Floats, str]:
    """Costs of the blocks that no row tells, and how they were made up."""
    missing = f"{int(unknown.sum())} of {len(costs)} blocks have no cost"
    if not unknown.all():
        return np.full(int(unknown.sum()), float(np.median(costs[~unknown]))), f"{missing}: the median is assumed"
    if all(kind in CURVES for kind in set(kinds)):
        rates = {kind: seconds_a_byte(kind) for kind in set(kinds)}
        guessed: Floats = np.array([rates[kind] for kind in kinds])[unknown] * sizes[unknown]
        return guessed, f"{missing}: those of the packaged encoders, by modality and bytes, are assumed"
    return np.ones(int(unknown.sum())), f"{missing}: 1 each, so savings are counts of requests, not seconds"
