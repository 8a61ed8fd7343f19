"""Hits of the fast path, by labels: their sum is exact, whose they are is what the ring and a sample show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from mmcache.attribution import Attribution
from mmcache.forks import Lock
from mmcache.ledger import Labels, Ledger
from mmcache.model.key import PART_BYTES, Key
from mmcache.stats import Asked
from mmcache.tiers.reads import Reads

PRICED = 64
"""Keys of a look at the ring whose cost and size are read."""

SCOPES = 8192
"""Scopes that a collection tells apart: who never collects must not fill memory."""

MET = 1024
"""Routes and regions, together, that a collection tells apart; and tenants whose it does."""

Met = dict[Labels, dict[Labels, float]]
"""Modality and tenant → route and region → hits."""

Whose = Callable[[bytes], Labels | None]
"""Modality and tenant of a scope."""

_OTHERS = bytes(PART_BYTES)
"""Of what is told apart no more: no scope's digest."""

Price = Callable[[Key], tuple[float, int] | None]
"""What a hit of it saves: seconds, bytes."""


class FastHits:
    """Sums by the labels of `Asked`, never less than before.

    A hit by `peek`, `get` or `get_or_compute` from memory is counted by the index alone, and leaves its key in a ring,
    which may lose it. Modality and tenant are what the ring shows; route and region are shared out as they are in the
    sample of which spans are made. What neither shows has no labels. What hits saved is an estimate: the mean of the
    keys that the ring showed since the last collection, for each of them.
    """

    def __init__(self, reads: Reads, like: Ledger, whose: Whose, price: Price) -> None:
        self.sums = Ledger(like)
        self._reads, self._whose, self._price = reads, whose, price
        self._lock = Lock()
        self._shown: Counter[bytes] = Counter()
        self._prices: dict[bytes, list[float]] = {}
        self._met: Met = {}
        self._met_before: Met = {}
        self._told, self._told_slow = 0, dict[Labels, int]()
        self.unknown = 0
        """Of all, those of whom nobody knows who asked."""
        reads.hear(self.show)

    def show(self, keys: Sequence[Key]) -> None:
        """Keys that were hit, by whichever path."""
        with self._lock:
            shown = [key[:PART_BYTES] for key in keys]
            if len(self._shown) + len(shown) > SCOPES:
                shown = [scope if scope in self._shown else _OTHERS for scope in shown]
            self._shown.update(shown)
            for key in keys[:: max(1, len(keys) // PRICED)]:
                if (key.scope in self._prices or len(self._prices) < SCOPES) and (
                    price := self._price(key)
                ) is not None:
                    sums = self._prices.setdefault(key.scope, [0, 0.0, 0])
                    for place, more in enumerate((1, *price)):
                        sums[place] += more

    def met(self, key: Key, by: Attribution, weight: float) -> None:
        """One of a sample, that stands for `weight` hits, and who asked."""
        with self._lock:
            whose, who = self._whose(key[:PART_BYTES]) or ("", ""), (by.route, by.region)
            asked = self._met.get(whose)
            if asked is None:
                if len(self._met) >= MET:
                    return
                asked = self._met[whose] = {}
            if who in asked or len(asked) < MET:
                asked[who] = asked.get(who, 0.0) + weight

    def collect(self, slow: Mapping[Labels, int]) -> None:
        """Bring `sums` up to date. slow: hits from memory that are counted elsewhere, by modality and tenant: the ring
        shows those as well."""
        with self._lock:
            alone = self._reads.alone
            new = max(0, alone - self._told)
            slow_new = {by: max(0, count - self._told_slow.get(by, 0)) for by, count in slow.items()}
            self._told, self._told_slow = max(alone, self._told), dict(slow)
            shown, prices = self._by_labels()
            kept = min(1.0, sum(shown.values()) / max(1, new + sum(slow_new.values())))
            fast = {by: max(0, round(count - slow_new.get(by, 0) * kept)) for by, count in shown.items()}
            if (found := sum(fast.values())) > new:
                fast = {by: count * new // found for by, count in fast.items()}
            mean = _mean([sum(column) for column in zip(*prices.values(), strict=True)])
            self._met, self._met_before = {}, self._met or self._met_before
            rest = new - sum(fast.values())
            for by, count in shared(rest, {by: sum(asked.values()) for by, asked in self._met_before.items()}).items():
                fast[by] = fast.get(by, 0) + count
            for by, count in fast.items():
                seconds, size = _mean(prices[by]) if by in prices else mean
                asked = self._met_before.get(by, {})
                self.unknown += 0 if asked else count
                for who, n in shared(count, asked).items():
                    labels = Asked("hit", "memory", "", by[0], "exact", by[1], *who)
                    self.sums.add(tuple(labels), n, n * seconds, round(n * size))

    def _by_labels(self) -> tuple[Counter[Labels], dict[Labels, list[float]]]:
        """What the ring showed since the last time, and the prices of it."""
        shown, prices = Counter[Labels](), dict[Labels, list[float]]()
        for scope, count in self._shown.items():
            by = self._whose(scope) or ("", "")
            shown[by] += count
            if scope in self._prices:
                before = prices.get(by, [0, 0.0, 0])
                prices[by] = [x + y for x, y in zip(before, self._prices[scope], strict=True)]
        self._shown.clear()
        self._prices.clear()
        return shown, prices

    def fork(self) -> None:
        """This process is another one now."""
        with self._lock:
            self._shown.clear()
            self._prices.clear()
            self._met, self._met_before = {}, {}
            self._told, self._told_slow, self.unknown = 0, {}, 0


def shared(count: int, weights: Mapping[Labels, float]) -> dict[Labels, int]:
    """`count` in parts that go as `weights`, and add up to it; all of it has no labels where there are none."""
    total = sum(weights.values())
    if total <= 0.0:
        return {("", ""): count} if count else {}
    exact = {by: count * weight / total for by, weight in weights.items()}
    parts = {by: int(part) for by, part in exact.items()}
    largest = sorted(exact, key=lambda by: parts[by] - exact[by])
    for by in largest[: count - sum(parts.values())]:
        parts[by] += 1
    return {by: part for by, part in parts.items() if part}


def _mean(sums: Sequence[float]) -> tuple[float, float]:
    return (sums[1] / sums[0], sums[2] / sums[0]) if sums and sums[0] else (0.0, 0.0)
