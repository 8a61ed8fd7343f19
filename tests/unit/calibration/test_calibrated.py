"""What a user meets: settings, reasons, questions that bear near pictures and those that don't, lies and recovery."""

from __future__ import annotations

import random
from typing import Any

import pytest

from mmcache.calibration.base import Decision, Verdict
from mmcache.calibration.calibrated import Calibrated
from mmcache.likeness.base import Likeness, Nearness, WordDifference
from mmcache.model.errors import SettingsError

ANIMAL, SERIAL = b"what animal is..", b"read the serial."


def same_words(words: bytes, near: Nearness) -> Likeness:
    return Likeness(words, words, 1.0, picture=near)


def ask(one: Calibrated, rng: random.Random, likeness: Likeness, right: bool) -> Decision:
    decision = one.decide(likeness, rng.random())
    if decision.verdict is not Verdict.SERVE:
        one.learn(likeness, decision, right)
    return decision


def paraphrases(place: int) -> Likeness:
    return Likeness(bytes([1, place] * 8), bytes([2, place] * 8), 0.9)


def trusted(max_error: float = 0.02, wordings: int = 20) -> tuple[Calibrated, random.Random]:
    """One that has learned to serve paraphrases."""
    one, rng = Calibrated(max_error), random.Random(1)
    for n in range(4000):
        ask(one, rng, paraphrases(n % wordings), right=True)
    assert one.open >= 0
    return one, rng


@pytest.mark.parametrize(
    "settings",
    [
        {"max_error": 0.0},
        {"max_error": 0.3},
        {"max_error": float("nan")},
        {"confidence": 1.0},
        {"confidence": 0.2},
        {"check_share": 0.0},
        {"check_share": 1.1},
        {"own_evidence": -1},
        {"neighbourhoods": 1},
    ],
)
def test_settings_that_promise_nothing_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        Calibrated(**settings)  # type: ignore[arg-type]


def test_the_question_decides_whether_a_near_picture_will_do() -> None:
    one, rng = Calibrated(0.02), random.Random(2)
    kinds = [(words, near) for words in (ANIMAL, SERIAL) for near in (Nearness.REENCODED, Nearness.TRIMMED)]
    verdicts: dict[tuple[bytes, Nearness], list[Verdict]] = {kind: [] for kind in kinds}
    for _ in range(6000):
        words, near = rng.choice(kinds)
        decision = ask(one, rng, same_words(words, near), right=words == ANIMAL)
        verdicts[words, near].append(decision.verdict)
    for near in (Nearness.REENCODED, Nearness.TRIMMED):
        assert verdicts[ANIMAL, near][-300:].count(Verdict.SERVE) > 200
        assert Verdict.SERVE not in verdicts[SERIAL, near]


def test_a_new_question_on_a_near_picture_waits_for_outcomes_of_its_own() -> None:
    one, rng = Calibrated(0.02), random.Random(3)
    for n in range(4000):
        ask(one, rng, same_words(bytes([n % 50] * 16), Nearness.REENCODED), right=True)
    assert one.open >= 0
    new = same_words(b"never asked yet.", Nearness.REENCODED)
    decision = one.decide(new, 0.99)
    assert decision.verdict is Verdict.ABSTAIN
    assert "0 of 2 right outcomes of this question" in decision.reason


def test_reasons_say_what_is_missing() -> None:
    one = Calibrated(0.01)
    number = Likeness(b"a" * 16, b"b" * 16, 0.9, WordDifference.NUMBER)
    reason = one.decide(number, 0.5).reason
    assert "NUMBER differs" in reason
    assert "P(wrong)" in reason
    rng = random.Random(4)
    reasons = [ask(one, rng, paraphrases(0), right=True).reason for _ in range(400)]
    assert any(reason.startswith("calibrating: ") and reason.endswith(" outcomes") for reason in reasons)
    shown = [reason.split() for reason in reasons if reason.startswith("calibrating: ")]
    seen, about = int(shown[-1][1]), int(shown[-1][4])
    assert seen > 300
    assert about == pytest.approx(450, abs=25), "the figure in the documentation"


def test_what_the_gates_say_counts_from_the_first_outcome() -> None:
    one = Calibrated(0.01)
    for n in range(460):
        likeness = Likeness((2 * n).to_bytes(16), (2 * n + 1).to_bytes(16), 0.95)
        decision = one.decide(likeness, 0.5)
        assert decision.rank == 0
        if decision.verdict is not Verdict.ABSTAIN:
            break
        one.learn(likeness, decision, right=True)
    assert 410 < n < 459, "the figure in the documentation"


@pytest.mark.parametrize(
    "other",
    [{"words": WordDifference.CONTENT}, {"picture": Nearness.REENCODED}, {"sound": Nearness.TRIMMED}],
)
def test_the_strictest_level_is_for_what_passes_all_gates_without_a_difference(other: dict[str, Any]) -> None:
    one = Calibrated(0.02)
    for n in range(1500):
        likeness = Likeness((n % 7).to_bytes(16), (n % 7 + 100).to_bytes(16), 0.95, **other)
        decision = one.decide(likeness, 0.0)
        assert decision.rank != 0
        one.learn(likeness, decision, right=True)
    assert decision.rank == 1
    assert one.open >= 1, "the ranking alone has opened its own"


def test_a_gate_that_is_no_good_keeps_nothing_shut_that_the_ranking_knows() -> None:
    """Of requests without a difference in words half are wrong; neighbourhoods know which."""
    one, rng, hits, wrong = Calibrated(0.05), random.Random(5), 0, 0
    for _ in range(6000):
        place = rng.randrange(20)
        decision = ask(
            one, rng, Likeness(bytes([place, rng.randrange(200)] * 8), bytes([place] * 16), 0.95), place < 10
        )
        hits += decision.verdict is Verdict.SERVE
        wrong += decision.verdict is Verdict.SERVE and place >= 10
    assert hits > 1000
    assert wrong <= 0.05 * hits


def test_a_neighbourhood_that_was_wrong_waits_and_the_others_go_on() -> None:
    one, _ = trusted()
    bad = paraphrases(3)
    decision = one.decide(bad, 0.0)
    assert decision.verdict is Verdict.CHECK
    one.learn(bad, decision, right=False)
    after = one.decide(bad, 0.999)
    assert after.verdict is Verdict.ABSTAIN
    assert "wrong lately" in after.reason
    assert one.decide(paraphrases(4), 0.999).verdict is Verdict.SERVE


@pytest.mark.parametrize("lies", [1, 3])
def test_lies_of_a_judge_are_got_over(lies: int) -> None:
    one, rng = trusted()
    bad = paraphrases(3)
    for _ in range(lies):
        decision = one.decide(bad, 0.0)
        one.learn(bad, decision, right=False)
    for _requests in range(20 * 400):
        place = rng.randrange(20)
        decision = ask(one, rng, paraphrases(place), right=True)
        if place == 3 and decision.verdict is Verdict.SERVE:
            break
    else:
        pytest.fail("its hits never came back")


def test_praise_by_a_judge_that_lies_is_found_out_by_the_next_one() -> None:
    one, _ = trusted()
    new = Likeness(b"c" * 16, b"d" * 16, 0.9)
    for _ in range(30):
        decision = one.decide(new, 0.0)
        one.learn(new, decision, right=True)
    assert one.decide(new, 0.999).verdict is Verdict.SERVE
    one.learn(new, one.decide(new, 0.0), right=False)
    assert one.decide(new, 0.999).verdict is Verdict.ABSTAIN


def test_a_complaint_about_a_hit_counts_and_praise_does_not() -> None:
    one, _ = trusted()
    hit = one.decide(paraphrases(5), 0.999)
    assert hit.verdict is Verdict.SERVE
    before = one.state()
    one.learn(paraphrases(5), hit, right=True)
    assert one.state() == before
    one.learn(paraphrases(5), hit, right=False)
    assert one.decide(paraphrases(5), 0.999).verdict is Verdict.ABSTAIN


def test_an_alarm_revokes_everything_and_trust_can_be_earned_again() -> None:
    one, rng = trusted()
    while not one.summary()["alarms"]:
        ask(one, rng, paraphrases(rng.randrange(20)), right=one.open < 0)
    assert one.open == -1
    for n in range(6000):
        ask(one, rng, paraphrases(n % 20), right=True)
    assert one.open >= 0


def test_evidence_outlives_other_settings_but_certificates_do_not() -> None:
    one, _ = trusted()
    other = Calibrated(0.01)
    other.restore(one.state())
    assert other.open == -1
    assert other.evidence.weigh(paraphrases(1)) == one.evidence.weigh(paraphrases(1))
    same = Calibrated(0.02)
    same.restore(one.state())
    assert same.open == one.open


def test_certificates_of_those_with_evidence_of_their_own_are_not_for_those_without() -> None:
    strict, rng = Calibrated(0.02, own_evidence=3), random.Random(1)
    for n in range(4000):
        ask(strict, rng, paraphrases(n % 20), right=True)
    assert strict.open >= 0
    for own_evidence, still in ((3, strict.open), (0, -1)):
        other = Calibrated(0.02, own_evidence=own_evidence)
        other.restore(strict.state())
        assert other.open == still


def test_certificates_outlive_another_check_share_and_all_is_checked_at_first() -> None:
    one, _ = trusted()
    other = Calibrated(0.02, check_share=0.2)
    other.restore(one.state())
    assert other.open == one.open
    assert other.decide(paraphrases(1), 0.999).verdict is Verdict.CHECK
    assert other.summary()["served_high"] == 1.0


def test_wordings_that_never_come_again_are_served_too() -> None:
    one, rng = Calibrated(0.01), random.Random(2)
    for n in range(3000):
        last = ask(one, rng, Likeness(n.to_bytes(16), (n + 1).to_bytes(16), 0.99), right=True)
    assert one.open >= 0
    assert last.verdict is not Verdict.ABSTAIN


def test_the_summary_counts() -> None:
    one, _ = trusted()
    summary = one.summary()
    assert summary["decided"] == summary["served"] + summary["taught"] == 4000
    assert summary["wrong"] == 0.0
    assert summary["wrong_high"] > 0
    assert 0 < summary["served_high"] < 1
    assert summary["level"] == one.open
