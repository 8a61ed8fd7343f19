"""Survival TTL in virtual time."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.testing import make_key
from mmcache.ttl.gamma import Gamma
from mmcache.ttl.survival import GAP_PRIOR, MOST_MODALITIES, MOST_SCOPES, SurvivalTTL

IMAGE = Facts(1000, 0.0, "image")


def live(
    lifetime: SurvivalTTL, gap: Callable[[], float], *, until: float, keys: int = 300, facts: Facts = IMAGE,
    scope: int = 1, once: float = 0.0,
) -> Counter[str]:  # fmt: skip
    """A cache's life: every key is used after `gap()`, and stored anew where it has ended; verdicts on the way."""
    chance = random.Random(1)
    uses, ends, verdicts, new = [(gap() / 2, n) for n in range(keys)], dict[int, float](), Counter[str](), keys
    heapq.heapify(uses)
    while uses[0][0] < until:
        now, n = heapq.heappop(uses)
        key = make_key(n, scope)
        if ends.get(n, -1.0) > now:
            lifetime.used(key, now)
        else:
            if n in ends:
                lifetime.ended(key, 1.0, True)
            end = lifetime.deadline(key, facts, now)
            assert end is not None
            ends[n] = end
        heapq.heappush(uses, (now + gap(), n))
        if chance.random() < once:
            new += 1
            lifetime.deadline(make_key(new, scope), facts, now)
        if now > until / 3:
            verdicts[str(lifetime.explain(facts.modality)["verdict"])] += 1
    return verdicts


def said(lifetime: SurvivalTTL, what: str, modality: str = "image") -> float:
    return float(lifetime.explain(modality)[what])


@pytest.mark.parametrize(
    "options",
    [
        {"quantile": 0.0}, {"quantile": 1.0}, {"floor_recomputes": -1.0}, {"max_seconds": 0.0}, {"jitter": 1.0},
        {"max_seconds": float("inf")}, {"memory_seconds": float("nan")}, {"significance": 0.1},
    ],
)  # fmt: skip
def test_what_is_out_of_bounds_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        SurvivalTTL(**options)  # type: ignore[arg-type]


def test_gamma_gaps_are_learned_and_not_flagged() -> None:
    lifetime, chance = SurvivalTTL(0.95), random.Random(2)
    verdicts = live(lifetime, lambda: chance.gammavariate(4.0, 5.0), until=400.0)
    assert verdicts["gamma"] / verdicts.total() > 0.9
    assert said(lifetime, "reuse") == pytest.approx(Gamma(4.0, 5.0).quantile(0.95), rel=0.12)
    assert said(lifetime, "k") == pytest.approx(4.0, rel=0.25)
    assert lifetime.alive("image", 20.0) == pytest.approx(float(Gamma(4.0, 5.0).survival(20.0)[0]), abs=0.08)


@pytest.mark.parametrize("heavy", ["pareto", "lognormal"])
def test_heavy_tails_are_flagged_and_the_measured_curve_is_used(heavy: str) -> None:
    lifetime, chance = SurvivalTTL(0.9), random.Random(3)
    draw = {
        "pareto": lambda: 5 * (chance.paretovariate(1.5) - 0.9),
        "lognormal": lambda: chance.lognormvariate(1.5, 1.5),
    }
    verdicts = live(lifetime, draw[heavy], until=600.0, keys=150)
    assert verdicts["heavy-tail"] + verdicts["one-offs"] + verdicts["not-gamma"] > 0.8 * verdicts.total()
    drawn = sorted(draw[heavy]() for _ in range(20_000))
    assert said(lifetime, "reuse") == pytest.approx(drawn[18_000], rel=0.35)


def test_blocks_that_never_come_back_do_not_lengthen_the_lifetime() -> None:
    lifetime, chance = SurvivalTTL(0.95), random.Random(2)
    verdicts = live(lifetime, lambda: chance.gammavariate(4.0, 2.0), until=200.0, once=0.4)
    assert verdicts["one-offs"] > 0.8 * verdicts.total()
    assert said(lifetime, "reuse") == pytest.approx(Gamma(4.0, 2.0).quantile(0.95), rel=0.2)


def test_a_short_lifetime_does_not_feed_on_itself() -> None:
    """Blocks that had to end before they came back still tell how long their gaps are."""
    lifetime, chance = SurvivalTTL(0.95, max_seconds=8.0, floor_recomputes=0), random.Random(2)
    live(lifetime, lambda: chance.gammavariate(4.0, 5.0), until=300.0)
    assert said(lifetime, "k") * said(lifetime, "theta") == pytest.approx(20.0, rel=0.12)


def test_few_samples_borrow_from_the_other_modalities() -> None:
    lifetime, chance = SurvivalTTL(0.95), random.Random(2)
    before = said(lifetime, "reuse", "audio")
    assert before == pytest.approx(GAP_PRIOR.quantile(0.95), rel=0.01)
    live(lifetime, lambda: chance.gammavariate(4.0, 0.5), until=60.0)
    live(lifetime, lambda: chance.gammavariate(4.0, 0.6), until=70.0, keys=3, facts=Facts(1, 0.0, "audio"), scope=2)
    assert said(lifetime, "reuse", "audio") < 0.2 * before
    fresh = said(lifetime, "reuse", "video")
    assert said(lifetime, "gaps", "video") == 0.0
    assert fresh == pytest.approx(said(lifetime, "reuse"), rel=0.6)


def test_one_odd_gap_among_few_does_not_rule() -> None:
    lifetime = SurvivalTTL(0.95)
    lifetime.deadline(make_key(1), IMAGE, 0.0)
    lifetime.deadline(make_key(1), IMAGE, 0.001)
    lifetime.deadline(make_key(2), IMAGE, 5.0)
    assert said(lifetime, "gaps") == 1.0
    assert said(lifetime, "reuse") > 60.0


def test_never_below_so_many_recomputes_nor_above_the_cap() -> None:
    lifetime, chance = SurvivalTTL(floor_recomputes=50.0, max_seconds=100.0, jitter=0.0), random.Random(2)
    live(lifetime, lambda: chance.expovariate(10.0), until=20.0, keys=20, facts=Facts(1, 0.01, "image"))
    assert said(lifetime, "recompute_k") > 100  # one value repeated
    assert lifetime.deadline(make_key(900), Facts(1, 0.01, "image"), 20.0) == pytest.approx(20.55, abs=0.1)
    assert said(lifetime, "floor") == pytest.approx(0.5, rel=0.01)
    assert lifetime.deadline(make_key(901), Facts(1, 1e6, "text"), 30.0) == 130.0


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1.0, 5e-324, 0.0])
def test_a_recompute_time_that_makes_no_sense_is_none(cost: float) -> None:
    told, untold = SurvivalTTL(), SurvivalTTL()
    for n in range(4000):
        ends = [
            lifetime.deadline(make_key(n % 40), Facts(1, given, "image"), n // 80)
            for lifetime, given in ((told, cost), (untold, 0.0))
        ]
        assert ends[0] == ends[1]
    assert told.explain("image") == untold.explain("image")


def test_one_slow_run_does_not_hold_a_block_for_long() -> None:
    lifetime, chance = SurvivalTTL(floor_recomputes=1000.0, jitter=0.0), random.Random(2)
    for n in range(200):
        lifetime.deadline(make_key(n), Facts(1, chance.gammavariate(5.2, 0.023), "image"), float(n))
    ends = lifetime.deadline(make_key(999), Facts(1, 30.0, "image"), 500.0)
    assert ends is not None
    assert ends - 500.0 < 1000.0 * 0.5
    assert lifetime.recompute_seconds("image") == pytest.approx(0.112, rel=0.1)
    assert lifetime.recompute_seconds("video") == 0.0


def test_jitter_spreads_what_is_stored_together_and_repeats() -> None:
    lifetimes = [SurvivalTTL(jitter=0.25), SurvivalTTL(jitter=0.25)]
    ends = [[lifetime.deadline(make_digest(n), IMAGE, 0.0) for n in range(400)] for lifetime in lifetimes]
    assert ends[0] == ends[1]
    numbers = sorted(end for end in ends[0] if end is not None)
    assert numbers[0] < 0.77 * numbers[-1]
    tenth = (numbers[-1] - numbers[0]) / 10
    assert max(sum(low <= end < low + tenth for end in numbers) for low in numbers) < 80


def make_digest(n: int) -> Key:
    return Key(bytes(16), random.Random(n).randbytes(16))


def test_a_busy_block_lives_shorter_than_an_idle_one() -> None:
    lifetime = SurvivalTTL(jitter=0.0, floor_recomputes=0.0)
    plain = SurvivalTTL(jitter=0.0, floor_recomputes=0.0, by_key=False)
    for one in (lifetime, plain):
        for n in (1, 2):
            one.deadline(make_key(n), IMAGE, 0.0)
        for use in range(1, 100):
            one.used(make_key(1), 2.0 * use)
    busy, idle = (lifetime.deadline(make_key(n), IMAGE, 300.0) for n in (1, 2))
    assert busy is not None
    assert idle is not None
    assert busy < idle
    assert plain.deadline(make_key(1), IMAGE, 300.0) == plain.deadline(make_key(2), IMAGE, 300.0)


def test_the_store_that_follows_a_refresh_is_no_gap() -> None:
    lifetime = SurvivalTTL()
    facts = Facts(1, 0.2, "image")
    lifetime.deadline(make_key(1), facts, 0.0)
    lifetime.used(make_key(1), 10.0)
    lifetime.deadline(make_key(1), facts, 10.25)
    lifetime.used(make_key(1), 20.0)
    lifetime.deadline(make_key(2), facts, 30.0)
    assert lifetime._modalities["image"].gaps.look(30.0).whole.tolist() == [10.0, 10.0]


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["deadline", "used", "ended"]), st.integers(0, 12), st.floats(0, 1e7), st.floats(0, 1e4),
        st.sampled_from(["image", "text", ""]),
    ),
    max_size=120,
)  # fmt: skip


@given(CALLS, st.floats(0.01, 0.999))
def test_whatever_is_called_a_deadline_is_within_its_bounds_and_repeats(
    calls: list[tuple[str, int, float, float, str]], quantile: float
) -> None:
    one, two = SurvivalTTL(quantile, max_seconds=500.0), SurvivalTTL(quantile, max_seconds=500.0)
    for call, n, now, cost, modality in calls:
        key = make_key(n, scope=n % 3)
        for lifetime in (one, two):
            if call == "used":
                lifetime.used(key, now)
            elif call == "ended":
                lifetime.ended(key, cost, n % 2 == 0)
        if call == "deadline":
            ends = one.deadline(key, Facts(1, cost, modality), now)
            assert ends == two.deadline(key, Facts(1, cost, modality), now)
            assert ends is not None
            assert now <= ends <= now + 500.0
    assert one.explain("image") == two.explain("image")


def test_modalities_and_scopes_are_bounded() -> None:
    lifetime = SurvivalTTL()
    for n in range(MOST_SCOPES + 100):
        lifetime.deadline(make_key(n, scope=n), Facts(1, 0.1, f"modality {n}"), float(n))
    assert len(lifetime._modalities) == MOST_MODALITIES
    assert len(lifetime._scopes) == MOST_SCOPES


def test_uses_that_arrive_late_lengthen_gaps_by_no_more_than_the_delay() -> None:
    """A cache drains its hits once a second: all uses of that second arrive with one time."""
    prompt, late = SurvivalTTL(0.9), SurvivalTTL(0.9)
    chance, uses = random.Random(2), [(0.0, n) for n in range(200)]
    heapq.heapify(uses)
    for lifetime in (prompt, late):
        for n in range(200):
            lifetime.deadline(make_key(n), IMAGE, 0.0)
    batch: list[Key] = []
    drained = 0.0
    while uses[0][0] < 200.0:
        now, n = heapq.heappop(uses)
        while now >= drained + 1.0:
            drained += 1.0
            for key in batch:
                late.used(key, drained)
            batch.clear()
        prompt.used(make_key(n), now)
        batch.append(make_key(n))
        heapq.heappush(uses, (now + chance.gammavariate(4.0, 2.0), n))
    for lifetime in (prompt, late):
        lifetime.deadline(make_key(999), IMAGE, 200.0)
    exact = Gamma(4.0, 2.0).quantile(0.9)
    assert said(prompt, "reuse") == pytest.approx(exact, rel=0.1)
    assert exact * 0.9 < said(late, "reuse") < exact * 1.1 + 1.0
