"""Streams of table `semantic`, and how what a cache did with them is counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mmcache.calibration.base import Decision, Verdict
from mmcache.lab import semantic_serial
from mmcache.lab.data.picture_questions import asked, facts
from mmcache.lab.semantic_contender import score
from mmcache.lab.semantic_stream import Request, answer_of, picture, replay, same_answer, stream, truth
from mmcache.lab.semantic_words import Corpus, Tally, best_within, by_calibration, by_threshold
from mmcache.likeness.base import Likeness, WordDifference
from mmcache.model.errors import AssetError


def have_pictures() -> None:
    try:
        asked("train")
        picture(0, "plain")
    except AssetError as error:
        pytest.skip(str(error))


def test_the_truth_is_what_the_package_says() -> None:
    have_pictures()
    known = facts("train")
    told = [one for one in asked("train") if one.picture in known]
    assert len(told) > 30_000
    assert all(truth(one.question, *known[one.picture]) == one.answer for one in told)


def test_questions_take_nothing_for_granted() -> None:
    assert truth("what color is the circle?", "red", "triangle") is None
    assert truth("is no circle present?", "red", "triangle") == "yes"
    assert truth("what is the red shape?", "red", "triangle") == "triangle"


def test_a_stream_has_repeats_edits_and_right_answers() -> None:
    have_pictures()
    requests = stream(1, 500, 10)
    known = facts("train")
    assert {request.variant for request in requests} == {"plain", "jpeg", "crop"}
    assert len({(request.text, request.name) for request in requests}) < 500
    assert all(truth(request.text, *known[request.picture]) == request.answer for request in requests)
    assert requests == stream(1, 500, 10)
    assert len({(one.text, one.picture) for one in replay()}) == 38_575


class Blind:
    """Looks at the words only."""

    name = "blind"

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def ask(self, request: Request, compute: Callable[[], str]) -> str:
        if request.text not in self._known:
            self._known[request.text] = compute()
        return self._known[request.text]

    def close(self) -> None:
        """Nothing."""


def test_served_replies_show_where_they_come_from() -> None:
    requests = [
        Request("what color?", 1, "plain", "red"),
        Request("what color?", 1, "jpeg", "red"),
        Request("what color?", 2, "plain", "red"),
        Request("what color?", 3, "plain", "blue"),
    ]
    found = score(Blind(), requests)
    assert (found.hits, found.wrong, found.blind, found.blind_wrong) == (3, 1, 2, 1)
    assert same_answer("red@1", "red@2")
    assert answer_of("red@1") == "red"


def corpus() -> Corpus:
    """Four wordings: two of one meaning, and one of another that lies between them."""
    angles = np.array([0.0, 0.2, 0.1, 2.0])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return Corpus(("a", "b", "c", "d"), vectors, (0, 0, 1, 2), (0, 1, 2, 3, 0, 1))


def test_one_threshold_serves_what_is_near() -> None:
    tally = by_threshold(corpus(), corpus().stream, 0.97)
    assert (tally.hits, tally.wrong, tally.exact) == (3, 1, 1)  # b for a, c for a, b again; d is far, a is stored
    assert by_threshold(corpus(), corpus().stream, 1.01).hits == 0
    assert by_threshold(corpus(), corpus().stream, 0.97, lambda first, second: WordDifference.CONTENT).hits == 0


class Always:
    """Serves all, or checks all."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict, self.taught = verdict, list[bool]()

    def decide(self, likeness: Likeness, draw: float) -> Decision:
        assert 0 <= draw < 1
        assert likeness.asked != likeness.stored
        return Decision(self.verdict, 1.0, "")

    def withdraw(self, decision: Decision) -> None:
        raise NotImplementedError

    def learn(self, likeness: Likeness, decision: Decision, right: bool) -> None:
        self.taught.append(right)

    def state(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        raise NotImplementedError

    def summary(self) -> dict[str, float]:
        return {}


def test_a_rule_learns_from_all_that_is_computed() -> None:
    serving, checking = Always(Verdict.SERVE), Always(Verdict.CHECK)
    same = lambda first, second: WordDifference.NONE  # noqa: E731
    served = by_calibration(corpus(), corpus().stream, serving, 0, same)
    assert (served.hits, served.wrong, served.exact, serving.taught) == (4, 2, 1, [])
    checked = by_calibration(corpus(), corpus().stream, checking, 0, same)
    assert (checked.hits, checked.checked, checked.exact) == (0, 3, 2)
    assert checking.taught == [True, False, False]


def test_the_best_threshold_is_chosen_within_an_error() -> None:
    loose, strict = Tally(10, near=[False, True, False], when=[1, 5, 8]), Tally(10, near=[False], when=[9])
    assert best_within([loose, strict], 0.0) is strict
    assert best_within([loose, strict], 0.5) is loose
    assert (loose.late(), loose.error) == (2, 1 / 3)


def test_units_differ_in_their_label_only() -> None:
    first, second = (semantic_serial.Unit("disc", "teal", number) for number in (10_000, 10_001))
    assert first.answer("kind") == second.answer("kind")
    assert first.answer("serial") != second.answer("serial")
    assert semantic_serial.drawn(first) != semantic_serial.drawn(second)
    assert semantic_serial.drawn(first) != semantic_serial.drawn(first, 90)
    requests = semantic_serial.stream(0, 200)
    assert {request.topic for request in requests} == {"kind", "serial"}
