"""The rival that everybody ships: one global cosine threshold. Here even tuned in hindsight, which nobody can."""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.calibration.base import Decision, Verdict
from mmcache.calibration.distance import comparable
from mmcache.likeness.base import Likeness
from mmcache.model.errors import CorruptFrameError


class GlobalThreshold:
    """A `Calibration` that learns nothing: SERVE from `threshold` on. Pictures and sounds must not be `UNLIKE`."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.served = 0

    def decide(self, likeness: Likeness, draw: float) -> Decision:
        """See `Calibration.decide`."""
        if not comparable(likeness) or likeness.text < self.threshold:
            return Decision(Verdict.ABSTAIN, 0.0, f"below {self.threshold:.3f}")
        self.served += 1
        return Decision(Verdict.SERVE, 1.0, f"from {self.threshold:.3f} on")

    def withdraw(self, decision: Decision) -> None:
        """Keeps no account."""

    def learn(self, likeness: Likeness, decision: Decision, right: bool) -> None:
        """Learns nothing."""

    def state(self) -> bytes:
        """See `Calibration.state`."""
        return b"threshold"

    def restore(self, state: bytes) -> None:
        """See `Calibration.restore`."""
        if state != b"threshold":
            raise CorruptFrameError("not the state of a global threshold: delete it")

    def summary(self) -> dict[str, float]:
        """See `Calibration.summary`."""
        return {"served": float(self.served), "threshold": self.threshold}


def best_in_hindsight(similarities: Sequence[float], wrong: Sequence[bool], error: float) -> tuple[float, int, int]:
    """The threshold with the most hits of all whose measured wrong share is at most `error`, given what was to come.

    `similarities` and whether serving would have been `wrong`, a pair a request. Returns (threshold, hits, wrong hits);
    (inf, 0, 0) where every threshold is wrong too often.
    """
    order = sorted(range(len(similarities)), key=similarities.__getitem__, reverse=True)
    best, errors = (float("inf"), 0, 0), 0
    for hits, place in enumerate(order, 1):
        errors += wrong[place]
        last = hits == len(order) or similarities[order[hits]] < similarities[place]
        if last and errors <= error * hits:
            best = similarities[place], hits, errors
    return best
