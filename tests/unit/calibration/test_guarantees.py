"""The arithmetic of the proofs in docs/concepts/calibration.md, and that what they promise comes true."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.calibration.betting import BETS, BettingTest
from mmcache.calibration.drift import RUN_LENGTH, DriftDetector
from mmcache.calibration.ledger import BOLDNESS, PRICE, Ledger

RATES = st.floats(0.001, 0.2)


@given(RATES, st.lists(st.floats(0, 1), min_size=1, max_size=60), st.floats(0, 0.99))
def test_constant_bets_gain_nothing_in_any_order_while_the_mean_is_too_high(
    rate: float, chances: list[float], bet: float
) -> None:
    mean = sum(chances) / len(chances)
    product = math.prod(1 + bet * (rate - chance) for chance in chances)
    assert product <= (1 + bet * (rate - mean)) ** len(chances) * (1 + 1e-9) + 1e-12
    if mean >= rate:
        assert product <= 1 + 1e-9


@given(RATES)
def test_the_bets_are_fair_and_their_weights_sum_to_one(rate: float) -> None:
    assert sum(weight for _, weight in BETS) == pytest.approx(1)
    for q, _ in BETS:
        right, wrong = (1 - q * rate) / (1 - rate), q
        assert (1 - rate) * right + rate * wrong == pytest.approx(1)


def orders(rng: random.Random, rate: float, kind: str, outcomes: int) -> list[float]:
    """P(wrong) of each outcome, with a running mean that is never below `rate`."""
    if kind == "steady":
        return [rate] * outcomes
    if kind == "bursts":
        return [1.0 if n % round(1 / rate) == 0 else 0.0 for n in range(outcomes)]
    return [0.5 if n % round(0.5 / rate) == 0 else 0.0 for n in range(outcomes)]


@pytest.mark.parametrize("kind", ["steady", "bursts", "coins"])
def test_what_is_wrong_too_often_is_seldom_certified(kind: str) -> None:
    rate, passed = 0.05, 0
    for seed in range(300):
        rng, test = random.Random(seed), BettingTest(rate, 0.1)
        for chance in orders(rng, rate, kind, 1500):
            test.observe(rng.random() < chance)
            if test.passed:
                passed += 1
                break
    assert passed <= 300 * 0.1


def test_how_many_right_outcomes_it_takes() -> None:
    test = BettingTest(0.01, 0.025)
    about = test.still_needed()
    assert 430 <= about <= 470, "the figure in the documentation"
    while not test.passed:
        assert test.still_needed() >= 1
        test.observe(wrong=False)
    assert 0.9 * about <= test.seen <= about
    assert test.still_needed() == 0


def test_old_evidence_does_not_pay_for_new_errors() -> None:
    test = BettingTest(0.01, 0.05)
    for _ in range(20_000):
        test.observe(wrong=False)
    for _ in range(9):
        test.observe(wrong=True)
    assert not test.passed


def test_a_bad_beginning_is_not_for_ever() -> None:
    test, rng = BettingTest(0.02, 0.05), random.Random(1)
    for _ in range(3000):
        test.observe(rng.random() < 0.3)
    assert test.tries > 10
    for _ in range(800):
        test.observe(wrong=False)
    assert test.passed


@given(RATES, st.floats(0.001, 1), st.floats(0, 1))
def test_wrong_hits_cannot_outrun_what_catches_cost(rate: float, base: float, above: float) -> None:
    share, ledger, theta = base + above * (1 - base), Ledger(rate, base), BOLDNESS * base
    cost = ledger.price(share) * rate
    assert cost >= PRICE * (1 - share) / share * (1 - 1e-9)
    assert (1 - share) - share * cost / PRICE <= 1e-9, "in the mean"
    grown = (1 - share) * math.exp(theta) + share * math.exp(-theta * cost)
    assert grown <= 1 + 1e-9, "and in probability"


@given(RATES, st.floats(0.01, 1), st.lists(st.booleans(), max_size=300))
def test_the_account_is_never_overdrawn(rate: float, base: float, caught: list[bool]) -> None:
    ledger = Ledger(rate, base)
    for wrong in caught:
        share = ledger.share
        assert base <= share <= 1
        if wrong:
            ledger.pay(share)
        else:
            ledger.earn()
        assert ledger.credit >= -1e-6


def test_the_check_share_falls_to_the_base_and_rises_when_something_was_caught() -> None:
    ledger, shares = Ledger(0.01, 0.05), []
    for _ in range(3000):
        shares.append(ledger.share)
        ledger.earn()
    assert shares[0] == 1.0
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.05
    ledger.alert = True
    assert ledger.share == 0.5


def test_false_alarms_are_as_rare_as_promised_where_it_is_as_bad_as_allowed() -> None:
    rng, detector, alarms, checks = random.Random(3), DriftDetector(0.05), 0, 200_000
    for _ in range(checks):
        if detector.observe(rng.random() < 0.05):
            alarms += 1
            detector.reset()
    assert alarms <= checks / RUN_LENGTH


@pytest.mark.parametrize(("rate", "most"), [(0.001, 3), (0.01, 3), (0.05, 5), (0.2, 9)])
def test_sudden_drift_is_noticed_after_a_few_catches(rate: float, most: int) -> None:
    detector, rng = DriftDetector(rate), random.Random(4)
    for _ in range(5000):
        assert not detector.observe(rng.random() < rate / 4)
    assert any(detector.observe(wrong=True) for _ in range(most))


def test_the_one_inequality_that_the_proof_leaves_to_a_grid() -> None:
    for step in range(10_001):
        share = step / 10_000
        assert (1 - share) * math.exp(BOLDNESS * share) + share * (1 - BOLDNESS) ** (1 - share) <= 1 + 1e-12
