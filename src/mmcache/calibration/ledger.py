"""How many hits are checked, so that wrong hits stay within what was promised on *every* stream.

Each wrong hit is served with chance 1 − c, or caught by a check with chance c, and the draw knows nothing of the
content. So an account can be kept: each hit served, or checked and right, earns 1; each one caught costs
κ (1 − c) / (c ε); and c is never so small that the account could be overdrawn. Then W − Σ (1 − c)/c over all catches is
a martingale whatever the stream does, W being the wrong hits served: E[W] ≤ (ε/κ) · E[hits + checks]. With κ > 1 also
exp(θ (W − κ Σ (1 − c)/c)) is a supermartingale, for θ = `BOLDNESS` · base share, so by Ville's inequality
P(W > ε · (hits + checks) + ln(1/α)/θ at any time) ≤ α. The proof is in docs/concepts/calibration.md.

Abstentions earn nothing, so the first that may be served after calibration are all checked, and their share falls as
they turn out right: who behaves only while nothing is served gains nothing.
"""

from __future__ import annotations

from math import log

BOLDNESS = 0.4
PRICE = -log(1 - BOLDNESS) / BOLDNESS
"""κ: about 1.28."""
ALERT_SHARE = 0.5
KEPT_CATCHES = 4.0
"""The account holds no more than this many catches cost at the base share."""


class Ledger:
    """The account and the check share that follows from it."""

    __slots__ = ("_base", "_cap", "_rate", "alert", "credit")

    def __init__(self, rate: float, base: float) -> None:
        self._rate, self._base = rate, base
        self._cap = max(KEPT_CATCHES * self.price(base), 10 / rate)
        self.credit = 0.0
        """Hits that stand for the wrong ones among them that were possibly served."""
        self.alert = False
        """Whether something was caught lately, so that more is checked."""

    def price(self, share: float) -> float:
        """What one caught at this check share costs."""
        return PRICE * (1 - share) / (share * self._rate)

    @property
    def share(self) -> float:
        """The chance with which the next hit is to be checked, 0 to 1."""
        least = PRICE / (PRICE + self._rate * self.credit) if self.credit > 0 else 1.0
        return max(least, self._base, ALERT_SHARE if self.alert else 0.0)

    def earn(self) -> None:
        """A hit was served, or checked and right."""
        if self.credit < self._cap:
            self.credit += 1.0

    def unearn(self) -> None:
        """It was no hit after all."""
        self.credit -= 1.0

    def pay(self, share: float) -> None:
        """A check drawn with chance `share` caught a wrong one."""
        self.credit -= self.price(share)

    def resume(self, credit: float, alert: bool) -> None:
        """Go on from an earlier account; raises `ValueError` for one that can't be."""
        if not -1e12 < credit <= self._cap + 1.0:
            raise ValueError("not the credit of such a ledger")
        self.credit, self.alert = credit, alert
