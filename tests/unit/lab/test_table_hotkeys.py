"""Table `hotkeys`: its streams and rules on made-up pictures, and the table on few real ones."""

from __future__ import annotations

from csv import DictReader

import numpy as np
import pytest

from mmcache.hotkeys.score import Attended
from mmcache.lab.hotkeys_judged import Judged
from mmcache.lab.hotkeys_predict import FITTED, RULES, fit, half_life, judge_all
from mmcache.lab.hotkeys_readings import Reading, Seen, topics
from mmcache.lab.hotkeys_replay import HALF_LIVES, LIVE_SCORES, WARM, Cases, hot, live, replay
from mmcache.lab.hotkeys_rows import GAINS, SHOWN, STREAMS, TASKS, WORDS, Findings, chosen, csv, rows
from mmcache.lab.hotkeys_stream import KINDS, draw
from mmcache.lab.table import silent
from mmcache.lab.table_hotkeys import DRAWN, HotkeysTable
from mmcache.model.errors import AssetError, InvalidInputError


def pictures(count: int = 60) -> list[Seen]:
    random = np.random.default_rng(0)
    found = []
    for place in range(count):
        topic = f"topic-{place % 6}"
        nats = [Attended(*random.uniform(0.5, 2.0, 2)) for _ in range(3)]
        found.append(Seen((topic,), tuple(Reading(topic if i else "", one) for i, one in enumerate(nats))))
    return found


def test_a_stream_is_the_same_each_time_and_its_uses_are_its_requests() -> None:
    seen = pictures()
    for kind in KINDS:
        one, again = (draw(kind, seen, 3, windows=20, a_window=300) for _ in range(2))
        assert (one.uses == again.uses).all()
        assert (one.rates == again.rates).all()
        for uses, (which, question) in zip(one.uses, one.requests, strict=True):
            assert (np.bincount(which, minlength=len(seen)) == uses).all()
            assert question.min() >= 0
            assert question.max() < 3
    assert (draw("trends", seen, 3, windows=20).uses != draw("trends", seen, 4, windows=20).uses).any()


def test_trends_ask_about_their_topic_and_the_control_does_not() -> None:
    seen = pictures()
    shares = {}
    for kind in ("trends", "control"):
        stream = draw(kind, seen, 0, windows=60, a_window=100)
        asked = np.concatenate([question for _, question in stream.requests])
        shares[kind] = (asked > 0).mean()
    assert shares["control"] == pytest.approx(2 / 3, abs=0.02)
    assert shares["trends"] > shares["control"] + 0.02


def test_topics_need_enough_pictures() -> None:
    assert topics(pictures(60)) == {f"topic-{i}": list(range(i, 60, 6)) for i in range(6)}
    assert topics(pictures(12)) == {}


def test_spans_are_in_order_and_nothing_of_later_is_fitted_on() -> None:
    cases = replay(draw("trends", pictures(), 0, windows=40, a_window=300), pictures(), 0.1)
    early, middle, last = (cases.window[cases.span(place, fresh=True)] for place in range(3))
    assert early.min() == WARM
    assert early.max() < middle.min()
    assert middle.max() < last.min()
    assert cases.fresh[cases.span(2, fresh=True)].all()
    assert set(cases.window[cases.span(2, fresh=False)]) == set(range(26, 39))


def test_who_knows_the_next_window_finds_the_most_and_chance_the_least() -> None:
    seen = pictures()
    found = judge_all(replay(draw("control", seen, 0, windows=80, a_window=400), seen, 0.1), fresh=False)
    assert set(found) == {*RULES, *LIVE_SCORES, *FITTED} == set(WORDS)
    best = max(found, key=lambda rule: found[rule].f1)
    assert best == "oracle"
    assert found["window"].f1 > 2 * found["random"].f1
    assert 0 < found["random"].average_precision < found["window"].average_precision
    share = found["all"].true.mean()
    assert found["all"].f1 == pytest.approx(2 * share / (1 + share))
    assert found["live"].half_life in HALF_LIVES
    assert found["window"].half_life is None


def test_a_half_life_is_chosen_without_a_look_at_the_last_span() -> None:
    seen = pictures()
    cases = replay(draw("control", seen, 0, windows=60, a_window=400), seen)
    assert {half_life(cases, name, fresh=False) for name in LIVE_SCORES} <= set(HALF_LIVES)
    middle, last = cases.span(1, fresh=False), cases.span(2, fresh=False)
    features = {name: column.copy() for name, column in cases.features.items()}
    for half in HALF_LIVES:  # one is right in the span for choosing, another one in the test
        features[live("live", half)][:] = 0.0
    features[live("live", 3.0)][middle] = cases.true[middle]
    features[live("live", 10.0)][last] = cases.true[last]
    told = Cases(features, cases.true, cases.fresh, cases.window, cases.windows, cases.unknown)
    assert half_life(told, "live", fresh=False) == 3.0
    assert judge_all(told, fresh=False)["live"].half_life == 3.0


def test_what_the_future_holds_changes_no_score_of_now() -> None:
    seen = pictures()
    stream = draw("trends", seen, 0, windows=30, a_window=300)
    cut = type(stream)(stream.rates[:20], stream.requests[:20], stream.uses[:20])
    whole, half = replay(stream, seen), replay(cut, seen)
    for name, column in half.features.items():
        assert (whole.features[name][: len(column)] == column).all(), name


def test_the_most_used_and_who_ties_with_them_are_hot() -> None:
    assert hot([5, 1, 1, 1, 1, 1, 1, 1, 1, 1]).tolist() == [True] + 9 * [False]
    assert hot([5, 5, 1, 1, 1, 1, 1, 1, 1, 1]).tolist() == 2 * [True] + 8 * [False]
    assert not hot(np.zeros(20)).any()
    assert hot([]).tolist() == []
    assert hot(np.arange(550)).sum() == 55  # not 56, as 0.1 · 550 is in floating point


def test_what_are_no_uses() -> None:
    for uses in ([-1.0], [float("nan")], [[1.0]]):
        with pytest.raises(InvalidInputError):
            hot(uses)
    with pytest.raises(InvalidInputError):
        hot([1.0], share=0.0)


def findings() -> Findings:
    found = Findings()
    for place, rule in enumerate(WORDS):
        for kind in STREAMS:
            for task in TASKS:
                half = 0.5 if rule.startswith("live") else None
                true = np.array([True, False, False, False])
                found[kind, task, rule] = [
                    Judged(0.01 * place + 0.1 * seed, 0.5, 0.25, true * 1.0, true, half) for seed in (0, 1)
                ]
    return found


def test_the_first_row_is_the_verdict_and_the_rest_can_be_read() -> None:
    made = list(rows(findings()))
    first, *rest = made
    assert (first.id, first.target, first.published) == ("turns/live", 82.6, 82.6)
    assert [row.id for row in rest if row.published is not None] == ["next/live"]
    assert not any(row.target for row in rest)
    assert len(made) == sum(map(len, SHOWN.values())) + len(GAINS) * len(STREAMS) <= 40
    gain = next(row for row in made if row.id == "gain/sign/control")
    assert gain.ours == pytest.approx(-1.0)  # of its rules, one after the other in `WORDS`
    assert set(DRAWN) <= set(WORDS)
    assert chosen(findings()) == "0.5 in 6"


def test_all_figures_are_in_the_csv_file() -> None:
    head, *lines = csv(findings()).splitlines()
    assert len(lines) == len(STREAMS) * len(TASKS) * len(WORDS)
    reader = list(DictReader([head, *lines]))
    sure = next(line for line in reader if line["rule"] == "entropy, lower is hotter")
    assert (sure["precision"], sure["recall"], sure["average_precision"]) == ("50.000", "25.000", "100.000")
    assert {line["half_lives"] for line in reader} == {"", "0.5 0.5"}


def test_logistic_regression_finds_its_weights() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(20_000, 2))
    true = random.random(20_000) < 1 / (1 + np.exp(-(2 * features[:, 0] - features[:, 1] - 1)))
    assert fit(features, true) == pytest.approx([2.0, -1.0, -1.0], abs=0.1)


@pytest.mark.slow
def test_the_table_on_few_pictures() -> None:
    table = HotkeysTable()
    try:
        found = table.run(quick=True, seeds=(0,), progress=silent)
    except AssetError as error:
        pytest.skip(str(error))
    figures = {row.id: row.ours or 0.0 for row in found.rows}
    assert len(table.pages(found)["csv"].splitlines()) == 1 + len(STREAMS) * len(TASKS) * len(WORDS)
    assert figures["next/window"] > 2 * figures["next/all"]
    assert figures["next/oracle"] >= figures["next/window"]
    assert any("made-up" in line or "who asks" in line for line in found.simulated)
