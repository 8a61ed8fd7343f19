"""The protocol of what decides whether a near answer may be served, and learns from what came of it.

One object judges one *population*: requests of one scope (tenant, namespace, model signature) and one kind (which
modalities they have). The promise is made per population: P(wrong | hit) ≤ max_error.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from mmcache.likeness.base import Likeness


class Verdict(Enum):
    """What to do with the nearest stored answer."""

    SERVE = "serve"
    CHECK = "check"
    """It might be served, but this one is drawn for a check: compute, hand out what was computed, compare, learn."""
    ABSTAIN = "abstain"
    """Compute. The comparison is free then, and taught all the same."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and why. `learn` wants the very decision back: what it was based on is settled before the outcome."""

    verdict: Verdict
    confidence: float
    """Estimated P(right), 0 to 1."""
    reason: str
    """In a few words, for `explain` and reports: "calibrating: 120 of about 460 outcomes", "words: NUMBER differs"."""
    level: int = -1
    """Of the certificate that allowed it; −1 where none did."""
    rank: int = -1
    """The strictest level that this request counts for, whether open or not; −1 = none."""
    share: float = 1.0
    """The chance of a check that held for this request."""
    counts: bool = True
    """Whether its outcome is one of the sample that levels are tested on: of what is served only checks are seen,
    so of the abstentions beyond an open level, which are all seen, only an equal share may count."""


@runtime_checkable
class Calibration(Protocol):
    """Decides and learns, in the caller's order. Not thread-safe: the flow holds a lock."""

    def decide(self, likeness: Likeness, draw: float) -> Decision:
        """What to do. `draw`: uniform in [0, 1), independent of all else; a share of what may be served is checked.

        Counts: a hit is a hit once this says SERVE, so ask once a request.
        """

    def withdraw(self, decision: Decision) -> None:
        """What was decided to be served was not, for it was gone: it is no hit. Nothing for other verdicts."""

    def learn(self, likeness: Likeness, decision: Decision, right: bool) -> None:
        """The stored answer to a request `decide` was asked about turned out right or wrong.

        Teach the outcome of every CHECK and ABSTAIN that has one, whatever it is: leaving out outcomes by what they are
        voids the promise. For a SERVE (a user's complaint) only a wrong one is taken as evidence.
        """

    def state(self) -> bytes:
        """All that was learned, as msgpack; bounded in size."""

    def restore(self, state: bytes) -> None:
        """Go on from `state`. Raises `CorruptFrameError` for bytes that are no state of this class and version."""

    def summary(self) -> dict[str, float]:
        """For reports: decided, served, checked, wrong (of checks), certified level, e-value, drift alarms…"""
