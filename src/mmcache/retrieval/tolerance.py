"""How near is near enough: a least cosine for each modality, given or learned from outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mmcache.model.errors import SettingsError

STEPS = tuple(step / 100 for step in range(99, 29, -1))
"""Least cosines that `Tolerance.learned` tries, strict to loose."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A remembered query near one that was asked, and whether its results would have been wrong."""

    picture: float
    """Cosine of the aligned embeddings, −1 to 1; 1.0 where both are the same picture, or both have none."""
    text: float
    wrong: bool
    """The first document was another one."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Least cosines of the aligned embeddings (`keys.joint.Statistics.aligned`); both must be reached.

    1.0 asks for the same content in that modality. Raises `SettingsError` for what is no cosine above 0.
    """

    picture: float
    text: float

    def __post_init__(self) -> None:
        for name, value in (("picture", self.picture), ("text", self.text)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
                raise SettingsError(f"the least cosine of the {name} lies above 0 and up to 1, not {value!r}")

    def allows(self, picture: float, text: float) -> bool:
        """Whether both gates pass."""
        return picture >= self.picture and text >= self.text

    @staticmethod
    def learned(
        observations: Iterable[Observation], most_wrong: float = 0.02, confidence: float = 0.95
    ) -> Tolerance | None:
        """The loosest tolerance of which at most `most_wrong` of the near hits are wrong, with this confidence.

        Both gates open together: aligned cosines mean the same in both. Fixed-sequence testing (Angelopoulos et al.,
        "Learn then Test", 2021): least cosines are tried from strict to loose, each by an exact binomial test, and the
        first that fails ends it, so that trying many costs nothing. It begins where there are enough observations to
        pass at half the share (153 for 0.05 at 0.95); None where there never are, or where that first one fails. A
        looser step is taken only where what it adds is itself within the share, and no gate is looser than the
        farthest that was seen inside. The promise is for requests like those observed, and
        for outcomes that do not hang together; learn anew when traffic changes. Raises `SettingsError`.
        """
        if not (0 < most_wrong < 1 and 0 < confidence < 1):
            raise SettingsError("most_wrong and confidence are shares between 0 and 1")
        seen, found, tested = list(observations), list[Observation](), 0
        for step in STEPS:
            inside = [one for one in seen if min(one.picture, one.text) >= step]
            count, wrong = len(inside), sum(one.wrong for one in inside)
            # Where the sequence begins, and what it leaves out, depends on how many there are and never on outcomes.
            if count == tested or _tail(int(count * most_wrong / 2), count, most_wrong) > 1 - confidence:
                continue
            if _tail(wrong, count, most_wrong) > 1 - confidence:
                break
            tested = count
            # Stopping early breaks no promise: what is bad by itself does not hide behind the good before it.
            if wrong - sum(one.wrong for one in found) <= most_wrong * (count - len(found)):
                found = inside
        if not found:
            return None
        return Tolerance(_up(min(one.picture for one in found)), _up(min(one.text for one in found)))


def _up(cosine: float) -> float:
    """Rounded up to three digits: never looser."""
    return min(1.0, math.ceil(cosine * 1000) / 1000)


def _tail(wrong: int, count: int, share: float) -> float:
    """P(at most `wrong` of `count`) when each is wrong with probability `share`: the exact binomial test's p-value."""
    if count == 0:
        return 1.0
    log = [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(wrong + 1)]
    return sum(math.exp(c + k * math.log(share) + (count - k) * math.log1p(-share)) for k, c in enumerate(log))


def interval(wrong: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share of which `wrong` of `count` were seen (Clopper and Pearson, 1934)."""
    if count == 0:
        return 0.0, 1.0
    miss = (1 - confidence) / 2
    high = 1.0 if wrong == count else _where(lambda share: _tail(wrong, count, share) <= miss)
    low = 0.0 if wrong == 0 else _where(lambda share: 1 - _tail(wrong - 1, count, share) >= miss)
    return low, high


def _where(reached: Callable[[float], bool]) -> float:
    """The least share that `reached` is true of; it is true of all above."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
