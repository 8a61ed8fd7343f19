"""Token buckets: so many requests a second for each caller, and as many at once as a second has."""

from __future__ import annotations

from mmcache.model.errors import ProxyError


class Bucket:
    """One caller's. Pure: time, in seconds of any clock that only grows, is an argument."""

    __slots__ = ("rate", "stamp", "tokens")

    def __init__(self, rate: float, now: float) -> None:
        self.rate, self.stamp, self.tokens = rate, now, max(1.0, rate)

    def take(self, now: float) -> float:
        """0 where the request may go on, else the seconds after which the next one may."""
        self.tokens = min(max(1.0, self.rate), self.tokens + max(0.0, now - self.stamp) * self.rate)
        self.stamp = max(now, self.stamp)
        if self.tokens >= 1.0:
            self.tokens -= 1.0
            return 0.0
        return (1.0 - self.tokens) / self.rate


class TooManyError(ProxyError):
    """429: `seconds` from now on the next request may come."""

    def __init__(self, seconds: float, *, at_once: bool = False) -> None:
        kind = " at once" if at_once else ""
        super().__init__(
            f"too many requests of this caller{kind}; see retry-after", status=429, code="rate_limit_exceeded"
        )
        self.seconds = seconds
