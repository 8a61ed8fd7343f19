"""`BehaviourSettings`: what may be set about prefetching by behaviour."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mmcache.model.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class BehaviourSettings:
    """How far to look ahead, what it may cost, and when to stop. The defaults suit encoders of 0.1 to some seconds."""

    ttl_seconds: float = 300.0
    """What is computed for hop i stays for this · 2^i seconds, or as long as its encoder says, whichever is shorter."""
    hops: int = 3
    """Steps that are looked ahead."""
    lookback: int = 4
    """A key counts as following the last so many that its visitor looked for."""
    width: int = 8
    """Blocks that one visit may ask for, at most."""
    bytes_per_second: float = 8 * 2**20
    """Brought, from lower tiers and computed together. What is not used is saved up for `saved_seconds`."""
    computations_per_second: float = 2.0
    saved_seconds: float = 10.0
    concurrent: int = 1
    """Blocks that are brought at the same time, at most."""
    remembered_bytes: int = 16 * 2**20
    """For inputs that are remembered so that they can be computed again; what is larger than a quarter of that is only
    brought from lower tiers."""
    least_use: float = 0.2
    """Share (0…1) of what is brought that must be asked for. Below that it pauses."""
    least_probability: float = 0.3
    """What is less likely to be looked for (0…1) is not brought."""
    first_sample: int = 32
    """Blocks that are brought before it is known whether it pays."""
    sample: int = 16
    """Blocks that are brought after each pause, to see whether it pays now."""
    window: int = 128
    """The last brought blocks, by which it is judged whether it still pays."""
    pause_seconds: float = 60.0
    """Of the first pause; doubled each time running."""
    longest_pause_seconds: float = 3600.0
    judged_after: float = 5.0
    """A block counts as not used when for so many times the usual time between two visits, and hop, nobody asked."""
    misses_a_minute: float = 3.0
    """Real lookups that must miss before anything is done (systems D5)."""
    latency_seconds: float = 0.080
    """Above which the 95th percentile of real lookups must be, before anything is done."""
    session_gap_seconds: float = 1800.0
    """A session that was quiet for so long has ended."""
    sessions: int = 10_000
    """Remembered, at most."""
    nodes: int = 20_000
    """Keys of the graph, at most."""
    edges: int = 100_000
    """Of the graph, at most: some 20 MB."""
    half_life_seconds: float = 6 * 3600.0
    """What was seen so long ago counts half."""
    queue: int = 256
    """Blocks that wait to be brought, at most."""
    stale_seconds: float = 30.0
    """What could not be brought for so long is not brought: the visitor has gone on."""
    tries: int = 3
    """Of a computation that raises; then it is left alone for `longest_back_off_seconds`."""
    back_off_seconds: float = 1.0
    """Before the second try; doubled each time, with jitter."""
    longest_back_off_seconds: float = 600.0
    patience_seconds: float = 30.0
    """How long a real miss counts as being computed when nobody says that it was stored."""
    overload_seconds: float = 5.0
    """Somebody waited for a computation all that time: no looking ahead."""
    nice: int = 10
    """Niceness of the threads that compute, where the system lets it be raised again; 0 = as usual."""
    tick_seconds: float = 0.02
    """How often the thread looks what there is to do, while there are visits."""
    core_share: float = 0.1
    """Of a core, that looking at visits may take at most (computing not counted). It takes some 10 µs a visit; where
    there are more, some are lost."""
    pending: int = 4096
    """Visits that wait to be looked at, at most; over that the oldest are lost, and counted."""
    seed: int = 0
    """Of the jitter."""

    def __post_init__(self) -> None:
        """Raises `SettingsError`."""
        for field in fields(self):
            value, whole = getattr(self, field.name), field.type == "int"
            sort = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
            if not (sort and abs(value) < (1 << 62 if whole else 1e300)):
                kind = "a whole number" if whole else "a finite number"
                raise SettingsError(f"prefetch: {field.name} is {kind}, not {value!r}")
        above = (
            "ttl_seconds", "saved_seconds", "pause_seconds", "judged_after", "session_gap_seconds",
            "half_life_seconds", "stale_seconds", "back_off_seconds", "longest_back_off_seconds", "patience_seconds",
            "overload_seconds", "tick_seconds", "longest_pause_seconds",
        )  # fmt: skip
        for name in above:
            if getattr(self, name) <= 0:
                raise SettingsError(f"prefetch: {name} is above 0, not {getattr(self, name)!r}")
        for name in ("bytes_per_second", "computations_per_second", "misses_a_minute", "latency_seconds"):
            if getattr(self, name) < 0:
                raise SettingsError(f"prefetch: {name} is 0 or more, not {getattr(self, name)!r}")
        counts = (
            "hops", "lookback", "width", "concurrent", "first_sample", "sample", "window", "sessions", "nodes", "edges",
            "queue", "tries", "pending",
        )  # fmt: skip
        for name in counts:
            if getattr(self, name) < 1:
                raise SettingsError(f"prefetch: {name} counts from 1, not {getattr(self, name)!r}")
        if not (0 < self.least_use < 1 and 0 < self.least_probability < 1 and 0 < self.core_share <= 1):
            raise SettingsError("prefetch: least_use, least_probability and core_share are shares between 0 and 1")
        if self.remembered_bytes < 0 or not 0 <= self.nice <= 19 or self.first_sample > self.window:
            raise SettingsError("prefetch: remembered_bytes is 0 or more, nice 0 to 19, and first_sample ≤ window")
        if self.pause_seconds > self.longest_pause_seconds:
            raise SettingsError("prefetch: pause_seconds is the first pause, longest_pause_seconds at least that")
