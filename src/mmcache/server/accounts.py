"""What was done, in numbers: by route and reason, and by caller. "Saved" is what the upstream did not have to do again;
it is never counted as used."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from mmcache.ledger import Ledger
from mmcache.server.exchange import Verdict
from mmcache.server.rate import Bucket

REMEMBERED = 65_536
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram of seconds from a request's head to the end of its answer."""
SHOWN = 100
"""Callers in a report, the busiest first."""


class Account:
    """One caller's."""

    __slots__ = ("bucket", "flying", "outcomes", "saved_seconds", "saved_tokens")

    def __init__(self) -> None:
        self.outcomes = {"hit": 0, "miss": 0, "partial": 0, "bypass": 0, "pass": 0}
        self.saved_seconds, self.saved_tokens = 0.0, 0
        self.bucket: Bucket | None = None
        self.flying = 0
        """Requests under way, where their number is limited."""


class Accounts:
    """Of all callers, the last `REMEMBERED` by name. requests: by route, outcome and reason; where who watches the
    cache looks, too."""

    def __init__(self, requests: Ledger | None = None) -> None:
        self._by_caller: dict[str, Account] = {}
        self._requests = Ledger([0, 2]) if requests is None else requests
        self._took: dict[tuple[str, str], list[float]] = {}
        self._counting: dict[tuple[str, str, str], tuple[list[float], Callable[[], None]]] = {}
        """By what a request is counted under: one look-up a hit."""
        self._compared: Counter[tuple[str, bool]] = Counter()
        self.saved_seconds, self.saved_tokens = 0.0, 0
        self.refused: Counter[int] = Counter()
        """Requests that the proxy itself refused, by status."""

    def of(self, caller: str) -> Account:
        """The account of `caller`, opened at its first request."""
        account = self._by_caller.get(caller)
        if account is None:
            account = self._by_caller[caller] = Account()
            if len(self._by_caller) > REMEMBERED:
                del self._by_caller[next(iter(self._by_caller))]
        return account

    @property
    def took(self) -> Mapping[tuple[str, str], list[float]]:
        """Seconds of requests by route and outcome: requests of up to each of `BOUNDS` and above, then the sum."""
        return self._took

    def count(self, path: str, verdict: Verdict, account: Account | None, seconds: float = 0.0) -> None:
        """One request was answered so."""
        labels = path, verdict.outcome, verdict.reason
        took, one = self._counting.get(labels) or self._counted(labels)
        one()
        took[0 if seconds <= BOUNDS[0] else bisect_left(BOUNDS, seconds)] += 1
        took[-1] += seconds
        if account is not None:
            account.outcomes[verdict.outcome] += 1
        if verdict.saved_seconds or verdict.saved_tokens:
            self.saved_seconds += verdict.saved_seconds
            self.saved_tokens += verdict.saved_tokens
            if account is not None:
                account.saved_seconds += verdict.saved_seconds
                account.saved_tokens += verdict.saved_tokens

    def compared(self, path: str, same: bool) -> None:
        """A stored answer was held against a computed one."""
        self._compared[path, same] += 1

    def _counted(self, labels: tuple[str, str, str]) -> tuple[list[float], Callable[[], None]]:
        took = self._took.setdefault(labels[:2], [0] * (len(BOUNDS) + 1) + [0.0])
        found = took, self._requests.counter(labels)
        if len(self._counting) < REMEMBERED:
            self._counting[labels] = found
        return found

    def wait(self, account: Account, rate: float) -> float:
        """Seconds that the caller must wait; 0 = none, and the request counts."""
        now = time.monotonic()
        bucket = account.bucket
        if bucket is None or bucket.rate != rate:
            bucket = account.bucket = Bucket(rate, now)
        return bucket.take(now)

    def report(self) -> dict[str, Any]:
        """All of it, for `/mmcache/status`. Callers are shown by the names of their tenants, which for API
        keys are keyed hashes."""
        routes: dict[str, dict[str, Any]] = {}
        for (path, outcome, reason), (count, _, _) in self._requests.all().items():
            found = routes.setdefault(path, {}).setdefault(outcome, {"count": 0, "reasons": {}})
            found["count"] += count
            if reason:
                found["reasons"][str(reason)] = found["reasons"].get(str(reason), 0) + count
        shadow: dict[str, dict[str, int]] = {}
        for (path, same), count in self._compared.items():
            shadow.setdefault(path, {"same": 0, "different": 0})["same" if same else "different"] += count
        busiest = sorted(self._by_caller.items(), key=lambda pair: -sum(pair[1].outcomes.values()))[:SHOWN]
        tenants = [
            {"tenant": name, **account.outcomes}
            | {"saved_seconds": round(account.saved_seconds, 3), "saved_tokens": account.saved_tokens}
            for name, account in busiest
        ]
        return {
            "routes": routes,
            "saved_seconds": round(self.saved_seconds, 3),
            "saved_tokens": self.saved_tokens,
            "compared": shadow,
            "refused": {str(status): count for status, count in sorted(self.refused.items())},
            "tenants": tenants,
        }
