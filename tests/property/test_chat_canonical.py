"""Which requests of `/v1/chat/completions` and `/v1/responses` are the same."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.server.canonical.chat import chat
from mmcache.server.canonical.chat_fields import CHAT, MESSAGE
from mmcache.server.canonical.request import Bypass, Canonical
from mmcache.server.canonical.responses import responses
from mmcache.server.canonical.responses_fields import RESPONSES

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}, "far": {"type": "boolean"}}},
    },
}
CALLED = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "it"}'}}
FULL: dict[str, Any] = {
    "model": "llava",
    "messages": [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, PICTURE, PICTURE], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [CALLED]},
        {"role": "tool", "content": "far away", "tool_call_id": "c1"},
        {"role": "user", "content": "And now?"},
    ],
    "temperature": 0,
    "top_p": 0.9,
    "seed": 5,
    "n": 2,
    "stop": ["a", "b"],
    "max_tokens": 20,
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"17": -100, "4": 3},
    "tools": [TOOL, {"type": "function", "function": {"name": "wait"}}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
    "presence_penalty": 0.5,
    "frequency_penalty": 0.25,
    "reasoning_effort": "low",
    "cache_salt": "s1",
    "chat_template_kwargs": {"enable_thinking": False, "a": [1]},
    "mm_processor_kwargs": {"num_crops": 4},
    "guided_choice": ["cat", "dog"],
    "top_k": 3,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
}
ITEMS: dict[str, Any] = {
    "model": "llava",
    "store": False,
    "temperature": 0,
    "instructions": "Be short.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, {"type": "input_image"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "far away"},
        {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "xyz"},
    ],
    "tools": [{"type": "function", "name": "look", "parameters": {}}],
    "max_output_tokens": 5,
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low", "summary": "auto"},
}
READ: dict[str, tuple[Callable[..., Canonical | Bypass], dict[str, Any]]] = {
    "chat": (chat, FULL), "responses": (responses, ITEMS),
}  # fmt: skip
IDENTITIES = (b"cat" * 10, b"dog" * 10)


def key(read: Callable[..., Canonical | Bypass], request: Any) -> bytes | str:
    """The key, or why there is none. As the proxy reads it: from bytes."""
    found = read(json.loads(json.dumps(request)))
    return found.reason if isinstance(found, Bypass) else found.key_bytes(IDENTITIES[: len(found.media)])


ORDERED = frozenset(("tools", "functions", "response_format", "tool_calls", "text", "chat_template", "documents"))
"""In these, the order of an object's fields counts."""


def shuffled(value: Any, data: st.DataObject) -> Any:
    """The same, with its fields in another order, and numbers written as floats."""
    if isinstance(value, dict):
        names = data.draw(st.permutations([*value]))
        return {name: value[name] if name in ORDERED else shuffled(value[name], data) for name in names}
    return [shuffled(one, data) for one in value] if isinstance(value, list) else value


ABSENT: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"stream": False}, {"stream": None}, {"store": False}, {"modalities": ["text"]}, {"user": "ann"},
        {"prompt_cache_key": "k"}, {"priority": 3}, {"audio": None}, {"verbosity": None}, {"prediction": None},
        {"service_tier": None}, {"metadata": None}, {"seed": 5.0}, {"temperature": 0.0}, {"temperature": -0.0},
        {"max_tokens": 20.0}, {"logit_bias": {"4": 3.0, "17": -100.0}}, {"top_k": 3.0},
    ],
    "responses": [
        {"stream": False}, {"background": False}, {"background": None}, {"truncation": "disabled"}, {"priority": 1},
        {"previous_response_id": None}, {"conversation": None}, {"prompt": None}, {"temperature": 0.0},
        {"max_output_tokens": 5.0}, {"reasoning": {"summary": "auto", "effort": "low"}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("dialect", READ)
@given(data=st.data())
def test_order_and_defaults_mean_nothing(dialect: str, data: st.DataObject) -> None:
    read, request = READ[dialect]
    other = shuffled(request, data)
    for more in data.draw(st.lists(st.sampled_from(ABSENT[dialect]), max_size=4)):
        other |= more
    assert isinstance(expected := key(read, request), bytes)
    assert key(read, other) == expected


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where texts, numbers and nulls stand."""
    if isinstance(value, dict):
        return [leaf for name, one in value.items() for leaf in leaves(one, (*path, name))] or [path]
    if isinstance(value, list):
        return [leaf for place, one in enumerate(value) for leaf in leaves(one, (*path, place))] or [path]
    return [path]


def changed(request: Any, path: tuple[Any, ...], value: Any) -> Any:
    """`request` with another value there."""
    other = copy.deepcopy(request)
    holder = other
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return other


def at(request: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        request = request[step]
    return request


NEW = st.one_of(st.text(max_size=3), st.integers(-3, 300), st.booleans(), st.floats(0, 2), st.none())


@pytest.mark.parametrize("dialect", READ)
@given(data=st.data())
def test_any_other_value_anywhere_is_another_request(dialect: str, data: st.DataObject) -> None:
    read, request = READ[dialect]
    media = [found.place for found in read(request).media]  # type: ignore[union-attr]
    places = [path for path in leaves(request) if path[:4] not in media]  # these are told apart by their identities
    path = data.draw(st.sampled_from(places))
    value, old = data.draw(NEW), at(request, path)
    if isinstance(value, int | float) and isinstance(old, int | float) and value == old and type(value) is not bool:
        return
    if json.dumps(value) == json.dumps(old):
        return
    assert key(read, changed(request, path, value)) != key(read, request)


@pytest.mark.parametrize("dialect", READ)
@given(data=st.data())
def test_what_is_left_out_counts(dialect: str, data: st.DataObject) -> None:
    read, request = READ[dialect]
    name = data.draw(st.sampled_from([*request]))
    other = {field: value for field, value in request.items() if field != name}
    assert key(read, other) != key(read, request)


@pytest.mark.parametrize("dialect", READ)
@given(data=st.data())
def test_the_order_of_lists_counts(dialect: str, data: st.DataObject) -> None:
    read, request = READ[dialect]
    field = data.draw(st.sampled_from([name for name in ("messages", "tools", "stop", "input") if name in request]))
    order = data.draw(st.permutations(request[field]))
    assert (key(read, request | {field: order}) == key(read, request)) == (order == request[field])


@given(st.sampled_from([*CHAT, *MESSAGE, *RESPONSES]), st.text(min_size=1, max_size=4))
def test_a_field_that_nobody_knows_is_not_cached(name: str, more: str) -> None:
    unknown = name + "\x00" + more
    assert key(chat, FULL | {unknown: 1}) == "unknown-field"
    assert key(responses, ITEMS | {unknown: 1}) == "unknown-field"
    message = FULL["messages"][0] | {unknown: 1}
    assert key(chat, FULL | {"messages": [message]}) == "unknown-field"


_ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([*READ]), st.data(), _ANYTHING)
def test_no_value_anywhere_makes_it_raise(dialect: str, data: st.DataObject, value: Any) -> None:
    read, request = READ[dialect]
    path = data.draw(st.sampled_from(leaves(request)))
    read(changed(request, path[: data.draw(st.integers(1, len(path)))], value))


@given(st.dictionaries(st.sampled_from([*CHAT, "messages", "model", "stream"]), _ANYTHING, max_size=6))
def test_no_request_makes_it_raise(request: dict[str, Any]) -> None:
    for read, full in READ.values():
        for asked in (request, full | request):
            found = read(asked)
            if isinstance(found, Canonical):
                found.key_bytes([b""] * len(found.media))


def test_pictures_count_by_content_and_by_place() -> None:
    one, other = chat(FULL), chat(FULL | {"messages": FULL["messages"][::-1]})
    assert isinstance(one, Canonical)
    assert isinstance(other, Canonical)
    assert [media.place for media in one.media] == [("messages", 1, "content", 1), ("messages", 1, "content", 2)]
    assert len({found.key_bytes(ids) for found in (one, other) for ids in (IDENTITIES, IDENTITIES[::-1])}) == 4


USER = FULL["messages"][-1]
BASE = {"model": "m", "temperature": 0, "messages": [USER]}
SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"n": 1}),
    ({}, {"logprobs": False, "stop": None, "n": None}),
    ({"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": True}),
    ({"stop": "x"}, {"stop": ["x"]}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": False}}),
    ({"stream": True}, {"stream": True, "stream_options": {}}),
    ({"metadata": {"a": "1", "b": "2"}}, {"metadata": {"b": "2", "a": "1"}}),
]
OTHER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"stream": True}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    ({}, {"messages": [{"role": "user", "content": [{"type": "text", "text": "And now?"}]}]}),
    ({}, {"top_p": 1}),  # vLLM's model may have another default
    ({}, {"response_format": {"type": "text"}}),
    ({}, {"tools": []}),
    ({}, {"tool_choice": "auto"}),
    ({}, {"add_generation_prompt": True}),
    ({"max_tokens": 5}, {"max_completion_tokens": 5}),
    ({"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": None}),
    ({"tools": [TOOL]}, {"tools": [dict(reversed(TOOL.items()))]}),
    ({"seed": 1}, {"seed": 2}),
    ({"top_logprobs": 0}, {"top_logprobs": False}),
    ({"documents": [{"text": "1"}]}, {"documents": [{"text": 1}]}),
    ({"documents": [{"text": 1}]}, {"documents": [{"text": 1.0}]}),  # a template may write it out
    ({}, {"messages": [USER | {"content": "And now? "}]}),
    ({}, {"messages": [USER | {"content": "And now\u037e"}]}),  # a question mark in Greek: equal in NFC
    ({"messages": [USER | {"content": "caf\u00e9"}]}, {"messages": [USER | {"content": "cafe\u0301"}]}),
    ({}, {"safety_identifier": "ann"}),
    ({}, {"cache_salt": "ann"}),
    ({}, {"model": "M"}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert isinstance(key(chat, BASE | one), bytes)
    assert key(chat, BASE | one) == key(chat, BASE | other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_not_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert isinstance(key(chat, BASE | one), bytes)
    assert isinstance(key(chat, BASE | other), bytes)
    assert key(chat, BASE | one) != key(chat, BASE | other)


NOT_CACHED: list[tuple[dict[str, Any], str]] = [
    ({"temperature": 0.7}, "not-deterministic"),
    ({"temperature": 1e-9}, "not-deterministic"),
    ({"temperature": False}, "not-deterministic"),
    ({"temperature": None, "seed": -1}, "not-deterministic"),
    ({"temperature": None, "seed": True}, "not-deterministic"),
    ({"store": True}, "store"),
    ({"modalities": ["text", "audio"]}, "audio-output"),
    ({"audio": {"voice": "alloy", "format": "wav"}}, "audio-output"),
    ({"web_search_options": {}}, "web-search"),
    ({"moderation": {"model": "m"}}, "moderation"),
    ({"vllm_xargs": {"a": 1}}, "extension"),
    ({"kv_transfer_params": {"a": 1}}, "transfer"),
    ({"logits_processors": ["x"]}, "unknown-field"),
    ({"stream_options": {"new": 1}}, "unknown-field"),
    ({"tools": [{"type": "web_search"}]}, "unknown-tool"),
    ({"tools": [{"function": {}}]}, "unknown-tool"),
    ({"n": 0}, "malformed"),
    ({"n": 129}, "malformed"),
    ({"n": 1e308}, "malformed"),
    ({"n": "2"}, "malformed"),
    ({"stream": 1}, "malformed"),
    ({"model": None}, "no-model"),
    ({"model": "m" * 513}, "no-model"),
    ({"messages": "hi"}, "malformed"),
    ({"messages": [{"content": "hi"}]}, "malformed"),
    ({"messages": [USER | {"content": 5}]}, "malformed"),
    ({"messages": [USER | {"content": ["hi"]}]}, "unknown-part"),
    ({"messages": [USER | {"content": [["media", 0]]}]}, "unknown-part"),
    ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "audio-history"),
    ({"messages": [USER | {"weight": 1}]}, "unknown-field"),
    ({"messages": [USER | {"content": [{"type": "text", "text": "a", "new": 1}]}]}, "unknown-field"),
]


@pytest.mark.parametrize(("changes", "reason"), NOT_CACHED)
def test_not_cached(changes: dict[str, Any], reason: str) -> None:
    assert key(chat, BASE | changes) == reason


RESPONSE = {"model": "m", "temperature": 0, "store": False, "input": "hi"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"store": True}, "store"),
        ({"store": None}, "store"),
        ({"previous_response_id": "r"}, "previous-response"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "p"}}, "prompt-template"),
        ({"tools": [{"type": "web_search_preview"}]}, "web-search"),
        ({"tools": [{"type": "file_search"}]}, "file-search"),
        ({"tools": [{"type": "code_interpreter"}]}, "code-interpreter"),
        ({"tools": [{"type": "computer_use_preview"}]}, "computer-use"),
        ({"tools": [{"type": "mcp"}]}, "mcp"),
        ({"tools": [{"type": "new"}]}, "unknown-tool"),
        ({"input": [{"type": "item_reference", "id": "m"}]}, "item-reference"),
        ({"input": [{"type": "computer_call"}]}, "unknown-item"),
        ({"input": []}, "malformed"),
        ({"include": ["message.input_image.image_url"]}, "include"),
        ({"include": "x"}, "include"),
        ({"enable_response_messages": True}, "include"),
        ({"temperature": 1}, "not-deterministic"),
        ({"context_management": [{"type": "compaction"}]}, "context-management"),
    ],
)
def test_responses_that_are_not_cached(changes: dict[str, Any], reason: str) -> None:
    assert isinstance(key(responses, RESPONSE), bytes)
    assert key(responses, RESPONSE | changes) == reason


def test_opting_in_and_out() -> None:
    warm = BASE | {"temperature": 1}
    assert isinstance(chat(warm, sampled=True), Canonical)
    assert chat(BASE | {"tools": [TOOL]}, tools=False) == Bypass("tools")
    assert chat(BASE | {"functions": [{"name": "look"}]}, tools=False) == Bypass("tools")
    assert isinstance(chat(BASE | {"temperature": None, "seed": 7}), Canonical)
