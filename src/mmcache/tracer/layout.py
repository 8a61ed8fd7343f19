"""The kernel side's structures (reads.bpf.c), as numpy and `struct` read them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

TIMES = 128
MOST_THRESHOLD = TIMES - 1

CONFIG = struct.Struct("=QQIIII")
"""device, inode, pid, threshold, listed, unused."""

READ_KEY = np.dtype(
    [
        ("reads", "u8"), ("hits", "u8"), ("first", "u8"), ("last", "u8"), ("delay_sum", "u8"), ("delay_max", "u8"),
        ("hot_since", "u8"), ("waiting_max", "u4"), ("run", "u4"), ("times", "u4", TIMES),
    ]
)  # fmt: skip

MARK = struct.Struct("=QQQQQ48s")
"""at, hash, reads, delay_max, waiting, key."""

SOCKET_TIMES = np.dtype([("count", "u8"), ("sum", "u8"), ("max", "u8"), ("last", "u8"), ("log2", "u8", 32)])

TOTALS = np.dtype([(name, "u8") for name in ("reads", "hits", "marks", "marks_lost", "keys_lost")])


@dataclass(frozen=True, slots=True)
class KeyReads:
    """What was counted of one key."""

    short: str
    """`Key.short`."""
    reads: int
    hits: int
    per_second: float
    """In the last second."""
    delay_mean: float
    """Seconds that a read took, lower tiers included."""
    delay_max: float
    waiting_max: int
    hot_since: float | None
    """`time.monotonic()` of the crossing; None = not hot now."""
    last: float
    """`time.monotonic()` of the last read."""


@dataclass(frozen=True, slots=True)
class SocketTimes:
    """How long one connection's answers took."""

    descriptor: int
    peer: str
    """`host:port`, a path, or empty where the connection was closed before it was looked at."""
    count: int
    mean: float
    """Seconds from a request to the first bytes after it."""
    most: float
    median: float
    """Upper bound, a power of two of microseconds."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums since the trace began."""

    reads: int
    hits: int
    marks: int
    marks_lost: int
    """For the ring was full: whoever reads it is too slow."""
    keys_lost: int
    """Reads of keys for which the kernel had no room at that moment."""


SECOND_NS = 1_000_000_000
UNIT_NS = 1 << 14
MASK = 0xFFFFFFFF


def short_of(raw: bytes) -> str:
    """`Key.short` of the map's key: its bytes are in the key's order on every machine."""
    return raw.hex()


def key_reads(keys: np.ndarray, seen: np.ndarray, now: int) -> list[KeyReads]:
    """keys: [n, 8] uint8. seen: [n] of `READ_KEY`. now: ns, monotonic. Order as given."""
    rates = rates_of(seen, now)
    return [
        KeyReads(
            short=short_of(key.tobytes()),
            reads=int(one["reads"]),
            hits=int(one["hits"]),
            per_second=float(rate),
            delay_mean=int(one["delay_sum"]) / max(1, int(one["reads"])) / 1e9,
            delay_max=int(one["delay_max"]) / 1e9,
            waiting_max=int(one["waiting_max"]),
            hot_since=int(one["hot_since"]) / 1e9 if one["hot_since"] and now - int(one["last"]) < SECOND_NS else None,
            last=int(one["last"]) / 1e9,
        )
        for key, one, rate in zip(keys, seen, rates, strict=True)
    ]


def rates_of(seen: np.ndarray, now: int) -> np.ndarray:
    """Reads in the second before `now` of each: [n] float64. Where the kernel's last 128 of a key all are younger than
    that, their rate."""
    alive = (now - seen["last"].astype(np.int64)) < SECOND_NS
    rates = np.zeros(len(seen))
    some = seen[alive]
    unit = now // UNIT_NS & MASK
    ages = unit - some["times"].astype(np.int64) & MASK  # [n, TIMES], in units
    kept = np.minimum(some["run"], TIMES)
    ages[np.arange(TIMES) >= kept[:, None]] = MASK  # left over from long ago
    young = (ages <= SECOND_NS // UNIT_NS).sum(axis=1)
    spans = np.maximum(ages.max(axis=1, where=ages < MASK, initial=0), 1) * UNIT_NS
    rates[alive] = np.where(young == TIMES, TIMES * SECOND_NS / spans, young)
    return rates
