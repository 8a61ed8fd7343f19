"""vCache's published method, made anew from the paper as a rival; none of its code was used.

Schroeder et al., "vCache: Verified Semantic Prompt Caching", arXiv 2502.03771. For each stored prompt the outcomes
(similarity, right or wrong) of the requests that it was nearest to are kept. P(right | s) = σ(γ (s − t)) is fitted by
maximum likelihood. For an error bound δ, and each ε of a grid: t'(ε) is the upper end of a (1 − ε) confidence band of
t, α = (1 − ε) σ(γ (s − t'(ε))), and τ = min over ε of (1 − δ − α) ÷ (1 − α). With chance τ it explores (computes, and
learns the outcome), else it exploits (serves, and learns nothing).

Where outcomes are separable, the likelihood has no maximum: here weak normal priors on log γ and on t keep it finite,
and the band is the normal one of the posterior's curvature.
That is a choice of ours. Fewer than `LEAST` outcomes, or all wrong: explore.
"""

from __future__ import annotations

from math import exp, log, sqrt
from statistics import NormalDist

from mmcache.calibration.base import Decision, Verdict
from mmcache.calibration.distance import comparable
from mmcache.likeness.base import Likeness
from mmcache.model.errors import CorruptFrameError

LEAST = 6
MOST = 200
"""Outcomes kept of a stored prompt, the latest."""
EPSILONS = tuple(step / 50 for step in range(1, 50))
_BANDS = tuple((epsilon, NormalDist().inv_cdf(1 - epsilon)) for epsilon in EPSILONS)
PRIOR_T, SPREAD_T = 0.85, 0.3
PRIOR_LOG_SLOPE, SPREAD_LOG_SLOPE = log(30.0), 1.0


class VCache:
    """A `Calibration` by vCache's rule. `max_error` is its δ. It never checks what it serves: there is no CHECK."""

    def __init__(self, max_error: float = 0.01) -> None:
        self.max_error = max_error
        self.outcomes: dict[bytes, list[tuple[float, bool]]] = {}
        self._fits: dict[bytes, tuple[float, float, float]] = {}
        self.served = self.explored = 0

    def decide(self, likeness: Likeness, draw: float) -> Decision:
        """See `Calibration.decide`."""
        if not comparable(likeness):
            return Decision(Verdict.ABSTAIN, 0.0, "a part is not alike")
        tau, right = self.explore(likeness)
        if draw <= tau:
            self.explored += 1
            return Decision(Verdict.ABSTAIN, right, f"explores with chance {tau:.2f}")
        self.served += 1
        return Decision(Verdict.SERVE, right, f"explores with chance {tau:.2f}")

    def explore(self, likeness: Likeness) -> tuple[float, float]:
        """τ, the chance with which it explores, and the estimated P(right)."""
        place = self._place(likeness)
        outcomes = self.outcomes.get(place, [])
        if len(outcomes) < LEAST or not any(right for _, right in outcomes):
            return 1.0, 0.5
        if place not in self._fits:
            self._fits[place] = fit(outcomes)
        threshold, slope, deviation = self._fits[place]
        tau = 1.0
        for epsilon, band in _BANDS:
            alpha = (1 - epsilon) * _sigmoid(slope * (likeness.text - threshold - band * deviation))
            tau = min(tau, (1 - self.max_error - alpha) / (1 - alpha) if alpha < 1 else 0.0)
        return max(tau, 0.0), _sigmoid(slope * (likeness.text - threshold))

    def withdraw(self, decision: Decision) -> None:
        """Keeps no account."""

    def learn(self, likeness: Likeness, decision: Decision, right: bool) -> None:
        """See `Calibration.learn`."""
        if comparable(likeness) and decision.verdict is Verdict.ABSTAIN:
            place = self._place(likeness)
            kept = self.outcomes.setdefault(place, [])
            kept.append((likeness.text, right))
            del kept[:-MOST]
            self._fits.pop(place, None)

    def state(self) -> bytes:
        """See `Calibration.state`: a rival of the laboratory keeps none."""
        return b"vcache"

    def restore(self, state: bytes) -> None:
        """See `Calibration.restore`."""
        if state != b"vcache":
            raise CorruptFrameError("not the state of this rival: delete it")

    def summary(self) -> dict[str, float]:
        """See `Calibration.summary`."""
        return {"served": float(self.served), "explored": float(self.explored), "prompts": float(len(self.outcomes))}

    @staticmethod
    def _place(likeness: Likeness) -> bytes:
        """The stored prompt. Text is all that vCache knows; the gate of pictures is ours, so it gets one a nearness."""
        return likeness.stored + bytes([likeness.picture, likeness.sound])


def fit(outcomes: list[tuple[float, bool]]) -> tuple[float, float, float]:
    """(t, γ, standard deviation of t) by penalised maximum likelihood, in Newton's steps over t and log γ."""
    threshold, log_slope = PRIOR_T, PRIOR_LOG_SLOPE
    best = _minus_log(outcomes, threshold, log_slope)
    a = b = c = 1.0
    for _ in range(25):
        slope = exp(log_slope)
        grad_t, grad_g = (threshold - PRIOR_T) / SPREAD_T**2, (log_slope - PRIOR_LOG_SLOPE) / SPREAD_LOG_SLOPE**2
        a, b, c = 1 / SPREAD_T**2, 0.0, 1 / SPREAD_LOG_SLOPE**2
        for similarity, right in outcomes:
            far = similarity - threshold
            chance = _sigmoid(slope * far)
            miss, weight = chance - right, chance * (1 - chance)
            # d/dt of slope·far is −slope, d/d log γ is slope·far. Expected (Fisher) information: always positive.
            grad_t, grad_g = grad_t - miss * slope, grad_g + miss * slope * far
            a, b, c = a + weight * slope**2, b - weight * slope**2 * far, c + weight * (slope * far) ** 2
        det = a * c - b * b
        step_t, step_g = (c * grad_t - b * grad_g) / det, (a * grad_g - b * grad_t) / det
        length = 1.0
        while length > 1e-4:
            new_t, new_g = threshold - length * step_t, log_slope - length * step_g
            if abs(new_g) < 12 and (value := _minus_log(outcomes, new_t, new_g)) <= best:
                break
            length /= 2
        else:
            break
        threshold, log_slope, gain, best = new_t, new_g, best - value, value
        if gain < 1e-9:
            break
    return threshold, exp(log_slope), sqrt(c / (a * c - b * b))


def _minus_log(outcomes: list[tuple[float, bool]], threshold: float, log_slope: float) -> float:
    slope = exp(log_slope)
    value = ((threshold - PRIOR_T) / SPREAD_T) ** 2 / 2 + ((log_slope - PRIOR_LOG_SLOPE) / SPREAD_LOG_SLOPE) ** 2 / 2
    for similarity, right in outcomes:
        x = slope * (similarity - threshold) * (-1 if right else 1)
        value += x + log(1 + exp(-x)) if x > 0 else log(1 + exp(x))
    return value


def _sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x)) if x > -700 else 0.0
