"""`Budget`: what speculative work may cost a second, in bytes and in computations. Pure: time is an argument."""

from __future__ import annotations

from math import inf, isfinite

from mmcache.model.errors import SettingsError


class TokenBucket:
    """`rate` tokens a second, of which at most `burst` are saved up (Turner's token bucket).

    What something costs may be known only afterwards: it may begin while there is anything left, and is charged when
    it is over, so that what is left may fall below 0. So over any T seconds no more than burst + rate·T is spent, and
    by as much more as the last single thing cost.
    """

    def __init__(self, rate: float, burst: float) -> None:
        """Raises `SettingsError`."""
        if not (isfinite(rate) and rate >= 0 and isfinite(burst) and burst > 0):
            raise SettingsError("a budget is a finite number a second, and what may be saved up of it is above 0")
        self.rate, self.burst = rate, burst
        self._left, self._at = (burst if rate > 0 else 0.0), -inf

    def left(self, now: float) -> float:
        """Tokens now; below 0: owed. An earlier `now` counts as the last one."""
        if now > self._at:
            if self._at != -inf:
                self._left = min(self.burst, self._left + self.rate * (now - self._at))
            self._at = now
        return self._left

    def spend(self, amount: float, now: float) -> None:
        """Charge what was spent."""
        self._left = self.left(now) - max(0.0, amount)


class Budget:
    """Bytes and computations a second, each with `saved` seconds' worth saved up at most."""

    def __init__(self, bytes_per_second: float, computations_per_second: float, saved: float = 10.0) -> None:
        """Raises `SettingsError`."""
        self._bytes = TokenBucket(bytes_per_second, max(1.0, bytes_per_second * saved))
        self._computations = TokenBucket(computations_per_second, max(1.0, computations_per_second * saved))

    def may_bring(self, now: float) -> bool:
        """Whether anything may be brought."""
        return self._bytes.left(now) >= 1.0

    def may_compute(self, now: float) -> bool:
        """Whether it may be computed."""
        return self.may_bring(now) and self._computations.left(now) >= 1.0

    def brought(self, size: int, now: float) -> None:
        """Charge bytes."""
        self._bytes.spend(size, now)

    def computes(self, now: float) -> None:
        """Charge a computation, which begins."""
        self._computations.spend(1.0, now)

    def left(self, now: float) -> tuple[float, float]:
        """Bytes and computations that are left; below 0: owed."""
        return self._bytes.left(now), self._computations.left(now)
