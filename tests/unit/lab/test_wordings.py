"""Sentences with alternatives: every wording is one of the sentence's, and means what it was asked to mean."""

from __future__ import annotations

import random

import pytest

from mmcache.lab.data.meanings import Household, pairs
from mmcache.lab.data.wordings import Slot, parse, say, slots
from mmcache.model.errors import AssetError, InvalidInputError


def wordings(template: str, **values: str) -> set[str]:
    draw = random.Random(0)
    rules = {"the": parse("(the|my)")}
    return {say(parse(template), rules, values, draw)[0] for _ in range(200)}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("timer[s]", {"timer", "timers"}),
        ("[please] stop", {"please stop", "stop"}),
        ("(on;now)", {"on now", "now on"}),
        ("[<the> ]lamp", {"the lamp", "my lamp", "lamp"}),
        ("(5|6)( |-)hour", {"5 hour", "5-hour", "6 hour", "6-hour"}),
        ("dim {area}", {"dim attic"}),
    ],
)
def test_each_wording_is_one_of_the_templates(template: str, expected: set[str]) -> None:
    assert wordings(template, area="attic") == expected


def test_what_a_template_mentions() -> None:
    assert slots(parse("[<the>] {area} to {level:brightness}"), {"the": "the"}) == {
        Slot("area", "area"),
        Slot("level", "brightness"),
    }


@pytest.mark.parametrize("template", ["(on", "on)", "[on)", "a [b (c]"])
def test_unmatched_brackets_are_refused(template: str) -> None:
    with pytest.raises(InvalidInputError):
        parse(template)


def test_a_text_never_means_two_things() -> None:
    try:
        household = Household(20, 4, 3)
    except AssetError as error:
        pytest.skip(str(error))
    meant: dict[str, tuple[str, ...]] = {}
    for asked in household.stream(2000):
        assert meant.setdefault(asked.text, asked.meaning) == asked.meaning
    assert len(meant) > len(household.meanings)
    again = Household(20, 4, 3)
    assert again.meanings == household.meanings


def test_pairs_are_labelled_by_kind() -> None:
    try:
        found = pairs()
    except AssetError as error:
        pytest.skip(str(error))
    assert len(found) == 592
    assert {pair.kind for pair in found if pair.same} == {"paraphrase", "near_repeat"}
