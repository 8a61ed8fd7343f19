"""What of a prompt counts exactly, and what is told of parts that cannot be known."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.semantic.world import MODEL, picture

from mmcache import Cache
from mmcache.keys.options import ContentOptions
from mmcache.model.errors import InvalidInputError
from mmcache.model.signature import Signature
from mmcache.semantic.prompt import Identified, Identifier, Prompt, Unknown, answer_key

SCHEMA = {"properties": {"reason": {"type": "string"}, "answer": {"type": "string"}}}
SWAPPED = {"properties": {"answer": {"type": "string"}, "reason": {"type": "string"}}}
SIGNATURE = Signature.of(MODEL)


def identified(*prompts: Prompt, told: list[str] | None = None) -> list[Identified | None]:
    with Cache() as cache:
        told = [] if told is None else told
        identifier = Identifier(cache.scopes, cache.memo, ContentOptions(), {}, tell=told.append)
        return [identifier.identify(one, SIGNATURE, "t", "n", alias=MODEL, form="value") for one in prompts]


def keys(*prompts: Prompt) -> list[bytes]:
    found = identified(*prompts)
    assert None not in found
    return [one.key for one in found if one is not None]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"documents": ["a", "b"]}, {"documents": ["b", "a"]}),
        ({"documents": ["a"]}, {"documents": ["a", "a"]}),
        ({"documents": ["a"]}, {"documents": {"a": ""}}),
        ({"documents": {"a": "1"}}, {"documents": {"a": "2"}}),
        ({"documents": {"a": "1"}}, {"documents": {"a": b"1"}}),
        ({"documents": {"a": "1", "b": "2"}}, {"documents": {"b": "2", "a": "1"}}),
        ({"tools": [{"name": "a", "x": 1}]}, {"tools": [{"x": 1, "name": "a"}]}),
        ({"tools": ["a", "b"]}, {"tools": ["b", "a"]}),
        ({"schema": SCHEMA}, {"schema": SWAPPED}),
        ({"schema": {"a": {"b": 1, "c": 1}, "d": {}}}, {"schema": {"a": {"c": 1, "b": 1}, "d": {}}}),
        ({"system": "a", "history": ""}, {"system": "", "history": "a"}),
        ({"other": {"sampling": {"seed": 1}}}, {"sampling": {"seed": 1}}),
        ({"version": "1"}, {}),
    ],
)
def test_what_differs_has_another_key(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, again, second = keys(Prompt("q", **one), Prompt("q", **copy.deepcopy(one)), Prompt("q", **other))
    assert first == again
    assert first != second


def test_the_order_of_settings_does_not_count() -> None:
    one, other = Prompt("q", sampling={"seed": 1, "n": 2}), Prompt("q", sampling={"n": 2, "seed": 1})
    assert len({*keys(one, other)}) == 1


_names = st.text("abc", max_size=2)
_nested = st.recursive(
    st.none() | st.integers(0, 2), lambda part: st.dictionaries(_names, part) | st.lists(part), max_leaves=6
)


@given(_nested, _nested)
def test_schemas_share_a_key_only_if_they_are_written_alike(one: Any, other: Any) -> None:
    first, second = keys(Prompt("q", schema=one), Prompt("q", schema=other))
    assert (first == second) == (repr(one) == repr(other))


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"documents": "terms.pdf"}, "documents=…\\) takes a list of names"),
        ({"documents": {"a", "b"}}, "documents=…\\) takes a list of names"),
        ({"documents": None}, "documents"),
        ({"documents": [1, "a"]}, "documents=…\\) has names that are strings, not 1"),
        ({"documents": [{"id": 1}]}, "documents"),
        ({"documents": [b"x"]}, "documents"),
        ({"documents": {1: "x"}}, "documents"),
        ({"sampling": 0.5}, "sampling=…\\) takes a mapping, not float"),
        ({"sampling": None}, "sampling"),
        ({"other": [1]}, "other=…\\) takes a mapping, not list"),
        ({"other": {1: 2}}, "other"),
        ({"tools": "search"}, "tools=…\\) takes a list"),
        ({"tools": {"name": "search"}}, "tools"),
        ({"pictures": "cat.jpg"}, "pictures=…\\) takes a list, also of one"),
        ({"sounds": b"x"}, "sounds"),
        ({"version": 3}, "version=…\\) takes a string, not int"),
        ({"text": 3}, "text"),
    ],
)
def test_parts_of_a_wrong_type_are_told(part: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        Prompt(**({"text": "q"} | part))


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"schema": object()}, "schema is a builtins.object"),
        ({"tools": [{"name": "a", "run": print}]}, "tools.*run"),
        ({"documents": {"a": object()}}, "documents.a"),
        ({"other": {"page": Unknown("a page by address")}}, "other.page is a page by address"),
        ({"history": [{1: 2}]}, "history"),
        ({"sampling": {"seed": {1}}}, "sampling.seed"),
    ],
)
def test_an_unknown_part_is_named(part: dict[str, Any], said: str) -> None:
    told: list[str] = []
    assert identified(Prompt("q", **part), told=told) == [None]
    (why,) = told
    assert re.search(said, why)


def test_a_key_can_be_made_again_from_what_is_stored() -> None:
    prompt = Prompt("q", pictures=[picture(1), picture(2)], documents=["a"])
    made = []
    with Cache() as cache:
        identifier = Identifier(cache.scopes, cache.memo, ContentOptions(), {})
        for _ in range(2):
            found = identifier.identify(prompt, SIGNATURE, "t", "n", alias=MODEL, form="value")
            assert found is not None
            salt, media = found.scope.salt, [part.digest for part in found.pictures]
            parts: list[Any] = [found.exact, found.words.digest, media, identifier.media_editions(salt, media, [])]
            assert answer_key(found.scope.digest, salt, *parts) == found.key
            for place, other in enumerate((bytes(16), bytes(16), media[::-1], b"another edition")):
                changed: list[Any] = [other if at == place else part for at, part in enumerate(parts)]
                assert answer_key(found.scope.digest, salt, *changed) != found.key
            made.append(found.key)
            identifier.editions[found.sources[-1]] = 1  # the second picture changes
    assert made[0] != made[1]


def test_a_canonical_prompt_keeps_its_other_parts() -> None:
    prompt = Prompt("q", documents={"a": b"1"}, tools=None)
    (found,) = identified(prompt)
    assert found is not None
    assert replace(found.canonical, pictures=()) == replace(prompt, pictures=())
