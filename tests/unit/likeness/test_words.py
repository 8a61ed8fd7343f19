"""What only one of two texts has."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mmcache.likeness.base import WordDifference as D
from mmcache.likeness.words import analyse, differences

SAME = [
    ("what colour is the shape?", "What color is the shape"),
    ("which color is the shape?", "what colour is the shape?"),
    ("show 3 cats", "show three cats"),
    ("the 3rd row", "the third row"),
    ("twenty-three apples", "23 apples"),
    ("two hundred and five apples", "205 apples"),
    ("two thousand twenty four", "2024"),
    ("one million five hundred thousand", "1500000"),
    ("1,000 people", "1000 people"),
    ("a 5km run", "a 5 kilometres run"),
    ("five kilometers", "5 km"),
    ("it costs $5", "it costs 5 dollars"),
    ("5 % of them", "5 percent of them"),
    ("at 3 pm", "at 15:00"),
    ("at 12am", "at 00:00"),
    ("on March 1, 2024", "on 2024-03-01"),
    ("on 1st of March 2024", "on Mar 1 2024"),
    ("isn't it red", "is not it red"),
    ("it won't go", "it will not go"),
    ("you can\u2019t", "you cannot"),
    ("what's in the photo", "what is in the picture"),
    ("WHAT COLOR IS IT", "what color is it"),
    ("cafe\u0301", "caf\u00e9"),
    ("please show the cat.", "show a cat"),
    ("a well-known cat", "a well known cats"),
]

DIFFERENT = [
    ("is there a red shape?", "is there not a red shape?", D.NEGATION),
    ("is it red", "isn't it red", D.NEGATION),
    ("with sugar", "without sugar", D.NEGATION | D.CONTENT),
    ("il est rouge", "il n'est pas rouge", D.NEGATION),
    ("es ist rot", "es ist nicht rot", D.NEGATION),
    ("es rojo", "no es rojo", D.NEGATION),
    ("он красный", "он не красный", D.NEGATION),
    ("show 3 cats", "show 4 cats", D.NUMBER),
    ("version 3.1", "version 3.10", D.NUMBER),
    ("1.000 Euro", "1 Euro", D.NUMBER),
    ("agent 007", "agent 7", D.NUMBER),
    ("one two three", "123", D.NUMBER),
    ("nineteen eighty-four", "103", D.NUMBER),
    ("5 km", "5 miles", D.NUMBER),
    ("it costs $5", "it costs €5", D.NUMBER),
    ("is it -5 degrees", "is it 5 degrees", D.NUMBER),
    ("the first row", "the second row", D.NUMBER),
    ("at 3 pm", "at 3 am", D.NUMBER),
    ("on 2024-03-01", "on 2024-03-02", D.NUMBER),
    ("are all red", "are some red", D.NUMBER),
    ("half of it", "all of it", D.NUMBER),
    ('say "Hello"', 'say "hello"', D.QUOTED),
    ('what is "it"', "what is it", D.QUOTED | D.CONTENT),
    ("at 3:00", "at 3 am", D.NUMBER),
    ("any news", "any new", D.CONTENT),
    ("call get_user", "call get_users", D.QUOTED),
    ("call getUser", "call getuser", D.QUOTED | D.CONTENT),
    ("open /etc/passwd.", "open /etc/shadow.", D.QUOTED),
    ("http://a.b/c?x=1", "http://a.b/c?x=2", D.QUOTED),
    ("mail a@b.example", "mail c@b.example", D.QUOTED),
    ("part AB-12x4", "part AB-12x5", D.QUOTED),
    ("run `ls -l`", "run `ls -a`", D.QUOTED),
    ("who is Anna", "who is Hanna", D.NAME),
    ("option A", "option B", D.NAME),
    ("help us win", "help US win", D.NAME | D.CONTENT),
    ("is the cat on the dog", "is the dog on the cat", D.ORDER),
    ("from A to B", "to A from B", D.ORDER),
    ("a > b", "b > a", D.ORDER),
    ("is the big cat on the dog", "is the dog on the cat", D.CONTENT | D.ORDER),
    ("red", "blue", D.CONTENT),
    ("is it on the box", "is it under the box", D.CONTENT),
    ("is it open", "is it closed", D.CONTENT),
    ("it is", "it was", D.CONTENT),
    ("C++", "C#", D.CONTENT),
    ("2 + 2", "2 * 2", D.CONTENT),
    ("a<b", "a>b", D.CONTENT),
    ("how is it 😀", "how is it 😢", D.CONTENT),
    ("有3只猫", "有4只猫", D.NUMBER),
    ("猫在哪里", "狗在哪里", D.CONTENT),
    ("แมวอยู่ที่ไหน", "แมวอยู่ที่นั่น", D.CONTENT),
    ("कमल", "कमला", D.CONTENT),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_other_spellings_make_no_difference(one: str, other: str) -> None:
    assert differences(one, other) is D.NONE


@pytest.mark.parametrize(("one", "other", "expected"), DIFFERENT)
def test_what_turns_an_answer_around_is_named(one: str, other: str, expected: D) -> None:
    assert differences(one, other) == differences(other, one) == expected


def test_may_is_a_month_only_beside_a_day() -> None:
    assert differences("may I see May 3", "may I see 3 May") is D.NONE
    assert differences("it may rain", "it must rain") is D.CONTENT


_PIECES = "is,the,cat,on,dog,not,red,3,three,Anna,/x/y,get_user,isn't,.,?,twenty,one,half,2024-01-01,+,',3 pm,五,\u200b"
words = st.sampled_from([*_PIECES.split(","), '"a b"'])
sentences = st.lists(words, max_size=12).map(" ".join)


@given(sentences | st.text(max_size=60), sentences | st.text(max_size=60))
@example("'" * 50, "`" * 50)
def test_symmetric_reflexive_and_the_same_for_analysed_texts(one: str, other: str) -> None:
    found = differences(one, other)
    assert found == differences(other, one) == differences(analyse(one), analyse(other))
    assert differences(one, one) is D.NONE
    a, b = analyse(one), analyse(other)
    assert (found is D.NONE) == (a.keys == b.keys)
    assert len(a.keys) == len(a.classes)


@given(st.text(max_size=40), st.characters(exclude_categories=("Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Mn", "Me", "Mc")))
def test_an_added_sign_is_never_overlooked(text: str, sign: str) -> None:
    """Whatever is added as a word of its own makes a difference, but for stops and "a"."""
    added = f"{text} {sign * 2} z"
    if sign not in ".,;:!?…¿¡。、，？！；：؟،।" and not sign.isspace():
        assert differences(f"{text} z", added) is not D.NONE


@pytest.mark.parametrize("piece", ["a.", "«", "'", "a'", "1,", "x", "/a", "one hundred ", "a@", "`", "a_", "-1", "3 "])
def test_long_texts_take_linear_time(piece: str) -> None:
    """Nothing is asserted of time; a quadratic rule would hang here."""
    assert analyse(piece * (60_000 // len(piece))).keys or piece == "`"
