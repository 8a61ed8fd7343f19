"""What every `Calibration` must do. Subclass it in your tests."""

from __future__ import annotations

import math
import random

import pytest

from mmcache.calibration.base import Calibration, Decision, Verdict
from mmcache.likeness.base import Likeness, Nearness, WordDifference
from mmcache.model.errors import CorruptFrameError

ODD = [
    Likeness(b"a" * 16, b"b" * 16, math.nan),
    Likeness(b"a" * 16, b"b" * 16, -1.0, WordDifference(63), Nearness.TRIMMED, Nearness.TRIMMED),
    Likeness(b"a" * 16, b"a" * 16, 1.0),
    Likeness(b"a" * 16, b"b" * 16, 1.0, picture=Nearness.UNLIKE),
    Likeness(b"a" * 16, b"b" * 16, 1.0, sound=Nearness.UNLIKE),
    Likeness(b"a" * 16, b"b" * 16, math.inf),
]


def some(rng: random.Random, wordings: int = 5) -> Likeness:
    """A likeness of few wordings, so that neighbourhoods repeat."""
    asked, stored = rng.randrange(wordings), rng.randrange(wordings)
    text = 1.0 if asked == stored else round(0.6 + 0.39 * rng.random(), 3)
    words = WordDifference(rng.choice([0, 0, 1, 32]) if asked != stored else 0)
    return Likeness(asked.to_bytes(16), stored.to_bytes(16), text, words, Nearness(rng.choice([0, 0, 1, 2])))


def drill(
    one: Calibration, outcomes: int, right: float, seed: int = 0, likeness: Likeness | None = None
) -> list[Decision]:
    """Ask and teach: each answer is right with this probability."""
    rng, decisions = random.Random(seed), []
    for _ in range(outcomes):
        asked = likeness or some(rng)
        decision = one.decide(asked, rng.random())
        decisions.append(decision)
        if decision.verdict is not Verdict.SERVE:
            one.learn(asked, decision, rng.random() < right)
    return decisions


def served(decisions: list[Decision]) -> int:
    """How many were served."""
    return sum(decision.verdict is Verdict.SERVE for decision in decisions)


class CalibrationContract:
    """Hook: `make_calibration`."""

    enough = 5000
    """Outcomes, all right, after which it must serve."""

    def make_calibration(self) -> Calibration:
        """A new one that promises at most a few per cent of wrong hits."""
        raise NotImplementedError

    def test_is_a_calibration(self) -> None:
        assert isinstance(self.make_calibration(), Calibration)

    @pytest.mark.parametrize("likeness", ODD)
    def test_abstains_before_it_knows_anything(self, likeness: Likeness) -> None:
        one = self.make_calibration()
        for draw in (0.0, 0.5, 1 - 2**-53):
            decision = one.decide(likeness, draw)
            assert decision.verdict is Verdict.ABSTAIN
            assert 0 <= decision.confidence <= 1
            assert decision.reason
            one.learn(likeness, decision, right=True)

    def test_withdrawn_hits_change_no_verdict_for_the_better(self) -> None:
        one, other = self.make_calibration(), self.make_calibration()
        for calibration in one, other:
            drill(calibration, self.enough, right=1.0)
        rng = random.Random(3)
        for _ in range(200):
            asked, draw = some(rng), rng.random()
            decision = one.decide(asked, draw)
            one.withdraw(decision)
        again = [(one.decide(asked, 0.5), other.decide(asked, 0.5)) for asked in (some(rng) for _ in range(50))]
        assert all(mine.share >= theirs.share for mine, theirs in again)

    def test_what_is_wrong_is_never_served(self) -> None:
        assert not served(drill(self.make_calibration(), self.enough, right=0.0))

    def test_what_is_right_is_served_in_the_end_and_goes_on_being_checked(self) -> None:
        one = self.make_calibration()
        drill(one, self.enough, right=1.0)
        after = drill(one, 1000, right=1.0, seed=1)
        verdicts = [decision.verdict for decision in after]
        assert verdicts.count(Verdict.SERVE) > 0
        assert verdicts.count(Verdict.CHECK) > 0

    def test_what_is_not_alike_is_never_served(self) -> None:
        one = self.make_calibration()
        drill(one, self.enough, right=1.0)
        unlike = Likeness(bytes(16), bytes(16), 1.0, picture=Nearness.UNLIKE)
        assert not served(drill(one, 100, right=1.0, likeness=unlike))

    def test_stops_when_answers_turn_wrong(self) -> None:
        one = self.make_calibration()
        drill(one, self.enough, right=1.0)
        drill(one, self.enough, right=0.0, seed=1)
        assert not served(drill(one, 1000, right=0.0, seed=2))

    def test_two_of_a_kind_agree(self) -> None:
        one, two = self.make_calibration(), self.make_calibration()
        assert drill(one, 2000, right=0.99) == drill(two, 2000, right=0.99)
        assert one.state() == two.state()

    @pytest.mark.parametrize("outcomes", [0, 10, 2500])
    def test_goes_on_from_a_state_as_if_nothing_had_happened(self, outcomes: int) -> None:
        one, two = self.make_calibration(), self.make_calibration()
        drill(one, outcomes, right=0.995)
        two.restore(one.state())
        assert two.state() == one.state()
        assert drill(one, 1000, right=0.9, seed=1) == drill(two, 1000, right=0.9, seed=1)
        assert one.summary() == two.summary()

    def test_bytes_that_are_no_state_change_nothing(self) -> None:
        one, rng = self.make_calibration(), random.Random(5)
        drill(one, 500, right=1.0)
        state = one.state()
        bad = [b"", b"\xc0", b"\x80", state[:-1], state + b"\0", state[1:], b"\xff" * 99, rng.randbytes(len(state))]
        for data in bad:
            with pytest.raises(CorruptFrameError, match="delete"):
                one.restore(data)
            assert one.state() == state

    def test_no_flipped_byte_crashes_it(self) -> None:
        one, rng = self.make_calibration(), random.Random(6)
        drill(one, 300, right=0.9)
        state = one.state()
        for _ in range(300):
            data = bytearray(state)
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            two = self.make_calibration()
            try:
                two.restore(bytes(data))
            except CorruptFrameError:
                continue
            drill(two, 20, right=0.5)
            assert all(map(math.isfinite, two.summary().values()))

    def test_memory_is_bounded(self) -> None:
        one, rng, sizes = self.make_calibration(), random.Random(7), []
        for n in range(12_000):
            likeness = Likeness(rng.randbytes(16), rng.randbytes(16), 0.9)
            one.learn(likeness, one.decide(likeness, 0.5), right=n % 3 > 0)
            if n % 4_000 == 3_999:
                sizes.append(len(one.state()))
        assert sizes[-1] < 1.01 * sizes[-2]
        assert sizes[-1] < 1 << 24

    def test_the_summary_is_made_of_finite_numbers(self) -> None:
        one = self.make_calibration()
        for outcomes, right in ((0, 1.0), (100, 0.0), (2000, 1.0), (200, 0.5)):
            drill(one, outcomes, right)
            assert all(isinstance(value, float) and math.isfinite(value) for value in one.summary().values())
