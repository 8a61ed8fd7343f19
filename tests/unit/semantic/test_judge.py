"""The default judge, and what the settings refuse."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.semantic.world import embed, semantic

from mmcache.model.errors import SettingsError
from mmcache.model.signature import Signature
from mmcache.semantic.judge import same_answer
from mmcache.semantic.settings import Semantic

ACUTE = "\N{COMBINING ACUTE ACCENT}"


@pytest.mark.parametrize(
    ("stored", "computed"),
    [
        ("Yes.", "yes"),
        ("yes .", "yes"),
        (" a\n b\N{NO-BREAK SPACE}c", "A b  c."),
        ("CAF\N{LATIN CAPITAL LETTER E WITH ACUTE}", f"cafe{ACUTE}"),
        ("1.", "1"),
        ("...", "..."),
        ("", " "),
        (1, 1.0),
        (math.nan, math.nan),
        (True, True),
        (None, None),
        (["Yes.", 1], ("yes", 1)),
        ({"a": 1, "b": ["x."]}, {"b": ["X"], "a": 1.0}),
    ],
)
def test_the_same(stored: Any, computed: Any) -> None:
    assert same_answer(stored, computed) is True


@pytest.mark.parametrize(
    ("stored", "computed"),
    [
        ("10\N{SUPERSCRIPT TWO} m", "102 m"),
        ("2\N{SUPERSCRIPT FIVE} m", "25 m"),
        ("\N{VULGAR FRACTION ONE HALF}", "1/2"),
        ("Ma\N{LATIN SMALL LETTER SHARP S}e", "Masse"),
        ("1.0", "1."),
        ("1.5", "15"),
        ("wait...", "wait"),
        (".", ""),
        ("yes", "no"),
        ("a b", "ab"),
        ("-1", "1"),
        ("1", 1),
        ("nan", math.nan),
        (True, 1),
        (False, 0),
        (None, "None"),
        (None, 0),
        ([True], [1]),
        ({1: "a"}, {True: "a"}),
        ({"a": 1}, {"A": 1}),
        ({"a": 1}, {"a": 1, "b": None}),
        (["a", "b"], ["b", "a"]),
        (math.nan, ["float", "nan"]),
    ],
)
def test_not_the_same(stored: Any, computed: Any) -> None:
    assert same_answer(stored, computed) is False


@pytest.mark.parametrize("other", [b"x", object(), {1, 2}, np.zeros(2), [np.zeros(2)], {"a": {"b": 1j}}])
def test_what_it_cannot_say(other: Any) -> None:
    assert same_answer(other, other) is None
    assert same_answer("x", other) is None


answers = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=2), part, max_size=3),
    max_leaves=6,
)


@given(answers, answers)
def test_an_answer_is_its_own_and_judging_is_symmetric(one: Any, other: Any) -> None:
    assert same_answer(one, one) is True
    assert same_answer(one, other) is same_answer(other, one)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("check_share", 0.0, "check_share=…\\) is a number from 0.001 to 1.0, not 0.0"),
        ("check_share", 0.0009, "check_share"),
        ("check_share", math.nan, "check_share"),
        ("max_error", "1 %", "max_error"),
        ("confidence", True, "confidence"),
        ("judge", "exact", "judge=…\\) is a function .* not 'exact'"),
        ("judge", None, "judge"),
        ("content", {"sample_rate": 8000}, "content=…\\) is a ContentOptions"),
        ("picture", "same", "picture=…\\) is a Nearness"),
        ("sound", 0, "sound=…\\) is a Nearness"),
        ("text", "e5-small", "text=…\\) is a function"),
        ("most_entries", True, "most_entries"),
        ("most_entries", 0, "most_entries"),
        ("text", None, "embedder='toy 1'.* pass it as text"),
        ("embedder", None, "needs embedder"),
    ],
)
def test_settings_that_cannot_be_are_told(field: str, value: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        semantic(**{field: value})


def test_an_embedding_may_bring_its_signature() -> None:
    class Embedding:
        signature = Signature.of("toy 2")

        def __call__(self, text: str) -> Any:
            return embed(text)

    assert Semantic(text=Embedding()).embedder_signature == Embedding.signature
    assert semantic(check_share=0.001).check_share == 0.001


def test_judges_without_a_name_are_told_apart() -> None:
    def judge(most: int, stored: Any, computed: Any) -> bool:
        return bool(abs(stored - computed) <= most)

    names = {
        semantic(judge=one).judge_name
        for one in (
            lambda stored, computed: True, lambda stored, computed: stored == computed, partial(judge, 1),
            partial(judge, 2), same_answer,
        )
    }  # fmt: skip
    assert len(names) == 5
    assert "same_answer" in names
