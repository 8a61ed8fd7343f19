"""`Counts`: all counters of one cache, by the names of the metrics; and those of several caches, added up."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mmcache import forks
from mmcache.attribution import Attribution
from mmcache.cache import Cache
from mmcache.forks import Lock
from mmcache.ledger import Labels, Ledger, Sums
from mmcache.model.errors import TierClosedError
from mmcache.model.event import Failed, MissReason
from mmcache.model.key import WHOLE, Key
from mmcache.stats import Asked
from mmcache.telemetry.fast_hits import FastHits
from mmcache.telemetry.histograms import Buckets, Histogram

MINUTE = 60.0
"""What the gauges of the last minute look back, seconds; or to the last look, where that is longer ago."""

Values = dict[str, dict[Labels, float]]
"""By metric, by its labels' values."""


UNKNOWN = 0.05


class Seen(NamedTuple):
    """Of the last minute."""

    lookups: Counter[str]
    """By client region."""
    hits: Counter[str]
    misses: Counter[str]
    """By reason."""
    unknown: Counter[str]
    """Hits of which nobody knows who asked."""

    @property
    def ratios(self) -> dict[Labels, float]:
        """By client region. Where more than `UNKNOWN` of the lookups may be anybody's, no region has one: it would be
        too low."""
        sure = self.unknown.total() <= UNKNOWN * self.lookups.total()
        return {(name,): self.hits[name] / n for name, n in self.lookups.items() if n > 0 and (sure or not name)}

    def since(self, before: Seen) -> Seen:
        """What came after `before`."""
        return Seen(*(now - then for now, then in zip(self, before, strict=True)))


NOTHING_SEEN = Seen(Counter(), Counter(), Counter(), Counter())
_gate = Lock()
_serials = itertools.count()


class Counts:
    """Reads what the cache counts anyway; a lookup pays nothing for it. `counts_of` gives the one of a cache.

    A forked child's begin at zero: it is another instance of the service, and who adds up all of them would count
    twice what its parent did.
    """

    fork_order = 8

    def __init__(self, cache: Cache) -> None:
        self._tally, self._events, self._scopes = cache._tally, cache.events, cache.scopes
        self._memory, self._lower, self._clock = cache._store.memory, cache._store.lower, cache.clock
        self.requests = Ledger([0, 2])
        """Of the proxy: (route, outcome, reason)."""
        self.durations = {"lookup": Histogram(), "compute": Histogram()}
        """By outcome, of what is recorded."""
        self._fast = FastHits(self._memory.reads, self._tally.lookups, self._whose, self._price)
        self._lock = Lock()
        self.serial = next(_serials)
        """Another one for each."""
        self._past = deque([(self._clock.monotonic(), NOTHING_SEEN)])
        forks.join(self)

    def _whose(self, scope: bytes) -> Labels | None:
        found = self._scopes.find(Key(scope, WHOLE))
        return None if found is None else (found.signature.modality, found.tenant)

    def _price(self, key: Key) -> tuple[float, int] | None:
        found = self._memory.look(key)
        return None if isinstance(found, MissReason) else (found.frame.header.cost, found.frame.size)

    def met(self, key: Key, by: Attribution, weight: float) -> None:
        """A hit of the fast path that a sample took, who asked for it, and how many it stands for."""
        self._fast.met(key, by, weight)

    def lookups(self) -> dict[Labels, Sums]:
        """All lookups of this process, by the labels of `Asked`, and what hits saved."""
        own = self._tally.lookups.own()
        slow: Counter[Labels] = Counter()
        for labels, (count, _, _) in own.items():
            asked = Asked(*labels)
            if asked.tier == self._memory.name:
                slow[asked.modality, asked.tenant] += count
        try:
            self._memory.maintain()  # shows which keys were hit
        except Exception as error:  # noqa: BLE001 - policies may be plug-ins; the sum is right without it
            self._events.emit(Failed("telemetry", f"the recency ring was not drained: {error!r}"))
        self._fast.collect(slow)
        return added((own, self._fast.sums.own()))

    def collect(self) -> tuple[Values, Seen]:
        """Everything, and what the gauges of the last minute are made of."""
        lookups, computes = self.lookups(), self._tally.computes.own()
        found: dict[str, dict[Labels, float]] = {
            "mmcache.lookups": {labels: count for labels, (count, _, _) in lookups.items()},
            "mmcache.computes": {labels: count for labels, (count, _, _) in computes.items()},
            "mmcache.compute.time": {labels: seconds for labels, (_, seconds, _) in computes.items()},
            "mmcache.checks": _counted(self._tally.checks),
            "mmcache.proxy.requests": _counted(self.requests),
        }
        hits = {labels: sums for labels, sums in lookups.items() if Asked(*labels).outcome != "miss"}
        found |= {"mmcache.saved.time": defaultdict(float), "mmcache.saved.bytes": defaultdict(int)}
        for labels, (_, seconds, size) in hits.items():
            asked = Asked(*labels)
            found["mmcache.saved.time"][asked.modality, asked.tenant] += seconds
            found["mmcache.saved.bytes"][asked.modality, asked.tenant] += size
        found |= self._happened() | self._tiers()
        return found, self._last_minute(seen_in(lookups, self._fast.unknown))

    def _happened(self) -> Values:
        found: Values = {name: {} for name, _ in _EVENTS.values()}
        for (what, where, why), (count, _, _) in self._events.counts.own().items():
            name, places = _EVENTS[what]
            labels = tuple((where, why)[place] for place in places)
            found[name][labels] = found[name].get(labels, 0) + count
        return found

    def _tiers(self) -> Values:
        used: dict[Labels, float] = {}
        limit: dict[Labels, float] = {}
        blocks: dict[Labels, float] = {}
        for tier in (self._memory, *self._lower):
            try:
                stats = tier.stats()
            except Exception as error:  # noqa: BLE001 - a tier may be a plug-in, or down; its gauges are missing then
                if not isinstance(error, TierClosedError):
                    self._events.emit(Failed(tier.name, f"no gauges: {error!r}"))
                continue
            used[tier.name,], blocks[tier.name,] = stats.bytes, stats.blocks
            if stats.limit_bytes is not None:
                limit[tier.name,] = stats.limit_bytes
        return {"mmcache.tier.used": used, "mmcache.tier.limit": limit, "mmcache.tier.blocks": blocks}

    def _last_minute(self, seen: Seen) -> Seen:
        now = self._clock.monotonic()
        with self._lock:
            while len(self._past) > 1 and self._past[1][0] <= now - MINUTE:
                self._past.popleft()
            before = self._past[0][1]
            if now - self._past[-1][0] >= MINUTE / 60:
                self._past.append((now, seen))
        return seen.since(before)

    def before_fork(self) -> None:
        """See `forks.Forkable`."""

    def after_fork(self, child: bool) -> None:
        """See `forks.Forkable`."""
        if child:
            self._fast.fork()
            for histogram in self.durations.values():
                histogram.fork()
            self._past.clear()
            self._past.append((self._clock.monotonic(), NOTHING_SEEN))


_EVENTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "evicted": ("mmcache.evictions", (0, 1)),
    "refused": ("mmcache.refusals", (0, 1)),
    "expired": ("mmcache.expirations", (0, 1)),
    "invalidated": ("mmcache.invalidations", ()),
    "failed": ("mmcache.failures", (0,)),
}


def counts_of(cache: Cache) -> Counts:
    """The counters of `cache`; the same object each time."""
    with _gate:
        found: Counts | None = getattr(cache, "_counts", None)  # by `__dict__`, all its attributes would get slower
        if not isinstance(found, Counts):
            found = Counts(cache)
            object.__setattr__(cache, "_counts", found)
        return found


def added(ledgers: Iterable[Mapping[Labels, Sums]]) -> dict[Labels, Sums]:
    """Sums of the same labels, added."""
    total: dict[Labels, Sums] = {}
    for sums in ledgers:
        for labels, (count, seconds, size) in sums.items():
            n, s, b = total.get(labels, (0, 0.0, 0))
            total[labels] = n + count, s + seconds, b + size
    return total


def seen_in(lookups: Mapping[Labels, Sums], unknown: int = 0) -> Seen:
    """What the gauges are made of."""
    seen = Seen(Counter(), Counter(), Counter(), Counter({"": unknown}))
    for labels, (count, _, _) in lookups.items():
        asked = Asked(*labels)
        seen.lookups[asked.client_region] += count
        if asked.outcome == "miss":
            seen.misses[asked.reason] += count
        else:
            seen.hits[asked.client_region] += count
    return seen


def together(found: Iterable[tuple[Values, Seen]]) -> Values:
    """What several caches say, added up, with the gauges of the last minute."""
    total: Values = {}
    minute = NOTHING_SEEN
    for values, seen in found:
        for name, by_labels in values.items():
            into = total.setdefault(name, {})
            for labels, value in by_labels.items():
                into[labels] = into.get(labels, 0) + value
        minute = Seen(*(one + other for one, other in zip(minute, seen, strict=True)))
    misses = minute.misses
    total["mmcache.hit_ratio_by_client_region"] = minute.ratios
    total["mmcache.miss_reason_distribution"] = {(name,): n / misses.total() for name, n in misses.items() if n > 0}
    return total


def durations(all_counts: Iterable[Counts]) -> dict[str, dict[Labels, Buckets]]:
    """The histograms of several caches, added up, by metric and label."""
    total: dict[str, dict[Labels, Buckets]] = {"mmcache.lookup.duration": {}, "mmcache.compute.duration": {}}
    for counts in all_counts:
        for kind, histogram in counts.durations.items():
            into = total[f"mmcache.{kind}.duration"]
            for label, buckets in histogram.read().items():
                into[label,] = into[label,].plus(buckets) if (label,) in into else buckets
    return total


def _counted(ledger: Ledger) -> dict[Labels, float]:
    return {labels: count for labels, (count, _, _) in ledger.own().items()}
