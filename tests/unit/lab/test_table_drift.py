"""The parts of table `drift`: real tokenizers, real reading, keys of moving parts, drawn months."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.keys.drift import DriftSettings, FrozenStatistics, QuantisedKey
from mmcache.lab import drift_explain, drift_months, drift_reading
from mmcache.lab.drift_cards import LINE_QUESTIONS, TWIN_EVERY, Card, Request, cards, requests
from mmcache.lab.drift_keys import Parts, Store, content, frozen
from mmcache.lab.drift_reading import Reading
from mmcache.lab.drift_tokens import tokenizer
from mmcache.model.errors import AssetError

QUESTIONS = "what color is the rectangle?", "is there not a teal circle?", "Übergröße 4821, 93.10"


@pytest.fixture(autouse=True)
def assets() -> None:
    try:
        tokenizer("v1")
        cards(1, 0)
        drift_reading.WEIGHTS.path.stat()
    except AssetError as error:
        pytest.skip(str(error))


def test_real_upgrades_renumber_repack_and_split_otherwise() -> None:
    v1, v3, july, september = (tokenizer(name) for name in ("v1", "v3", "tekken-2407", "tekken-2409"))
    for text in QUESTIONS:
        assert v1.pieces(text) == v3.pieces(text)
        assert v1.encode(text) != v3.encode(text)
        assert july.encode(text) == september.encode(text)
        assert b"".join(july.pieces(text)).decode() == text
        assert b"".join(v3.pieces(text)).decode() == "▁" + text.replace(" ", "▁")
    assert v3.pieces("4821 apples") != july.pieces("4821 apples")
    assert v1.encode("what color is the rectangle?") == (767, 3181, 349, 272, 26900, 28804)
    assert july.features("a b")[0] == 2


def test_tekken_splits_as_its_pattern_says() -> None:
    assert tokenizer("tekken-2407").pieces("HelloWorld 42") == [b"Hello", b"World", b" ", b"4", b"2"]


def test_print_is_read_and_blur_makes_it_less_sure() -> None:
    card = Card(0, "Ticket 7893 total 65.45", "circle", "red")
    clean, blurred = drift_reading.read(card.strip()), drift_reading.read(card.strip(), 4.0)
    assert clean.text == card.line
    assert clean.confidence > 0.9 > blurred.confidence
    assert clean.features().shape == (3,)


def test_uncertain_text_is_cut_off() -> None:
    assert Reading("abc", (0.9, 0.9, 0.9)).cut == "abc"
    assert Reading("abc", (0.9, 0.2, 0.9)).cut == "a"
    assert Reading("", ()).cut == ""
    assert Reading("", ()).confidence == 0


def test_cards_are_the_same_again_and_have_twins() -> None:
    made = cards(40, 3)
    assert made == cards(40, 3) != cards(40, 4)
    for place in range(TWIN_EVERY - 1, 40, TWIN_EVERY):
        assert made[place].drawing == made[place - 1].drawing
        assert made[place].line != made[place - 1].line
    assert made[0].picture().size == (320, 176)
    assert {request.card for request in requests(made, 500, 0)} <= set(range(40))


def test_moving_parts_move_the_naive_key_only() -> None:
    catalogue = cards(4, 0)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(4, 64)).astype(np.float32)
    asked = Request(1, LINE_QUESTIONS[0])
    parts = Parts(features, ("a", "b", "c", "d"), "v3")
    steady = parts.naive()(asked)
    assert parts.naive()(asked) == steady
    for change in (
        {"running": features + np.float32(1e-3)}, {"texts": ("a", "", "c", "d")}, {"vocabulary": "tekken-2407"}
    ):  # fmt: skip
        assert parts.with_(**change).naive()(asked) != steady
    key = QuantisedKey(FrozenStatistics.fit(features))
    assert frozen(key, features)(asked) == frozen(key, features.copy())(asked)
    assert len({content(catalogue)(Request(n, "q")) for n in range(4)}) == 4


def test_a_hit_on_another_cards_answer_is_wrong() -> None:
    catalogue = cards(4, 0)
    store = Store(catalogue, {})
    asked = [Request(0, LINE_QUESTIONS[0]), Request(0, LINE_QUESTIONS[0]), Request(1, LINE_QUESTIONS[0])]
    hits, wrong = store.ask(asked, lambda request: b"one key for all")
    assert (round(hits), round(wrong)) == (67, 33)


@pytest.mark.parametrize("traffic", [drift_months.even, drift_months.repeated, drift_months.daily])
def test_traffic_is_drawn_from_the_pool_and_again_the_same(traffic: object) -> None:
    pool = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    rows = traffic(pool, 1)(0, 300)  # type: ignore[operator]
    assert (rows == traffic(pool, 1)(0, 300)).all()  # type: ignore[operator]
    assert {row.tobytes() for row in rows} <= {row.tobytes() for row in pool}


def test_a_move_is_found_and_no_move_is_not() -> None:
    settings = DriftSettings(window=64, long=2, baseline=24, projections=4, bins=8)
    pool = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    monitor, _ = drift_months.learned(drift_months.even(pool, 0), settings)
    found = drift_months.delay(monitor, drift_months.even(pool + np.float32(1), 0, run=1))
    assert found.found
    assert found.requests <= 128
    assert drift_months.baseline(monitor).until == settings.samples * drift_months.SECONDS


def test_explain_names_every_injected_cause() -> None:
    assert drift_explain.named_right(["Order 12 total 3.40"]) == 100
