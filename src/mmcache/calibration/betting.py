"""A test by betting that a stream of outcomes is wrong less often than a given rate, valid at any time and any order.

Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS-B 2024; Ville 1939. With
X_i = 1 for a wrong outcome, wealth is K_t = Σ_j w_j Π_i (1 + λ_j (ε − X_i)) for a few *constant* bets λ_j. As bets are
constant, no assumption on the order is needed: let p_i be the conditional probability of X_i given all before it. By
the inequality of arithmetic and geometric means Π_i (1 + λ (ε − p_i)) ≤ (1 + λ (ε − p̄_t))^t ≤ 1 wherever the running
mean p̄_t ≥ ε; so K_t is then at most the martingale Σ_j w_j Π_i (1 + λ_j (ε − X_i)) / (1 + λ_j (ε − p_i)), and by
Ville's inequality P(at some t: p̄_t ≥ ε and K_t ≥ 1/α) ≤ α. See docs/concepts/calibration.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, log

# A bet λ is the likelihood ratio of a rate q < ε against ε: 1 + λ (ε − X) is (1−q)/(1−ε) for right and q/ε for wrong.
BETS = ((1 / 64, 0.6), (1 / 12, 0.16), (1 / 4, 0.16), (0.55, 0.08))
"""(q ÷ ε, weight). The first gains fastest where nothing is wrong; the last still gains at half of the allowed rate."""
CREDIT = 100.0
"""Wealth is kept below this many times what is needed: evidence of long ago must not pay for the errors of today."""
FIRST_TRY = 0.75
"""Of α; the others share the rest, the i-th gets (1 − FIRST_TRY) α ÷ (i (i − 1))."""
GIVE_UP = -1.5
"""Log-wealth of its best bet below which the test begins again, with the α of its next try; but not before"""
LEAST_TRY = 1.0
"""÷ rate outcomes: tries are to be few, as each has less α."""
MOST_TRIES = 1 << 40
_START = [log(weight) for _, weight in BETS]


class BettingTest:
    """Wealth against "the mean of P(wrong) since this try began is at least `rate`". O(1) an outcome.

    Early outcomes, of a ranking that had yet to learn, would weigh for ever: so a bettor who has lost begins again.
    Each try begins at a stopping time and has an α of its own, all together at most `alpha`: the union bound holds.
    """

    __slots__ = ("_alpha", "_least", "_right", "_wrong", "logs", "need", "seen", "total", "tries", "wrong")

    def __init__(self, rate: float, alpha: float) -> None:
        self._alpha, self._least = alpha, LEAST_TRY / rate
        self._right = [log((1 - q * rate) / (1 - rate)) for q, _ in BETS]
        self._wrong = [log(q) for q, _ in BETS]
        self.reset()

    def reset(self) -> None:
        """Begin anew, as if nothing had been seen."""
        self.total = 0
        """Outcomes of all tries."""
        self.resume(_START, 0, 0, 1)

    def resume(self, logs: Sequence[float], seen: int, wrong: int, tries: int) -> None:
        """Go on from the log-wealth of each bet in the given try. Raises `ValueError` where that can't be."""
        if not 1 <= tries <= MOST_TRIES or not 0 <= wrong <= seen or len(logs) != len(BETS):
            raise ValueError("not the wealth of such a test")
        share = FIRST_TRY if tries == 1 else (1 - FIRST_TRY) / (tries * (tries - 1))
        self.need = -log(self._alpha * share)
        """Log-wealth from which the mean is certified."""
        if not all(-1e9 < value <= self.need + log(CREDIT) + 1e-6 for value in logs):
            raise ValueError("not the wealth of such a test")
        self.logs, self.seen, self.wrong, self.tries = list(logs), seen, wrong, tries

    @property
    def log_wealth(self) -> float:
        """Log of K."""
        most = max(self.logs)
        return most + log(sum([exp(value - most) for value in self.logs]))

    @property
    def passed(self) -> bool:
        """Whether the mean is certified to be below the rate, at this moment."""
        return max(self.logs) > self.need - _LOG_BETS and self.log_wealth >= self.need

    def observe(self, wrong: bool) -> None:
        """Take one outcome of the stream."""
        cap, self.seen, self.total = self.need + _LOG_CREDIT, self.seen + 1, self.total + 1
        steps = self._wrong if wrong else self._right
        self.logs = [
            cap if (after := value + step) > cap else after for value, step in zip(self.logs, steps, strict=True)
        ]
        self.wrong += wrong
        if self.seen >= self._least and max(self.logs) < GIVE_UP and self.tries < MOST_TRIES:
            self.resume(_START, 0, 0, self.tries + 1)

    def still_needed(self) -> int:
        """About how many right outcomes in a row are missing; never fewer than it takes, 0 once certified."""
        if self.passed:
            return 0
        return max(1, ceil(min((self.need - value) / step for value, step in zip(self.logs, self._right, strict=True))))


_LOG_CREDIT = log(CREDIT)
_LOG_BETS = log(len(BETS))
