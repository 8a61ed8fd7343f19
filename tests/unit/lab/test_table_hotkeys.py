"""Table `hotkeys`: its streams and rules on made-up pictures, and the table on few real ones."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.hotkeys.score import Attended
from mmcache.lab.hotkeys_predict import FITTED, RULES, WARM, fit, judge_all, replay
from mmcache.lab.hotkeys_readings import Reading, Seen, topics
from mmcache.lab.hotkeys_stream import KINDS, draw
from mmcache.lab.table import silent
from mmcache.lab.table_hotkeys import STREAMS, WORDS, HotkeysTable
from mmcache.model.errors import AssetError


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
    assert set(found) == {*RULES, *FITTED} == set(WORDS)
    best = max(found, key=lambda rule: found[rule].f1)
    assert best == "oracle"
    assert found["window"].f1 > 2 * found["random"].f1
    assert 0 < found["random"].average_precision < found["window"].average_precision


def test_logistic_regression_finds_its_weights() -> None:
    random = np.random.default_rng(0)
    features = random.normal(size=(20_000, 2))
    true = random.random(20_000) < 1 / (1 + np.exp(-(2 * features[:, 0] - features[:, 1] - 1)))
    assert fit(features, true) == pytest.approx([2.0, -1.0, -1.0], abs=0.1)


@pytest.mark.slow
def test_the_table_on_few_pictures() -> None:
    try:
        found = HotkeysTable().run(quick=True, seeds=(0,), progress=silent)
    except AssetError as error:
        pytest.skip(str(error))
    rows = {row.id: row.ours or 0.0 for row in found.rows}
    for kind in STREAMS:
        assert rows[f"{kind}/next/window"] > 2 * rows[f"{kind}/next/random"]
        assert rows[f"{kind}/next/oracle"] >= rows[f"{kind}/next/window"]
    assert any("made-up" in line or "who asks" in line for line in found.simulated)
