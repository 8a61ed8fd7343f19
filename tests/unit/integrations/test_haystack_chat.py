"""Haystack's chat generators behind a cache: what may be repeated, and how a stream is."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "False")  # nothing leaves this machine
pytest.importorskip("haystack")

from haystack import Pipeline
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent, StreamingChunk, ToolCall
from haystack.tools import Tool

from mmcache.integrations.haystack import CacheConfig, CachedChatGenerator

COLD = {"temperature": 0}
GIF = base64.b64encode(b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01").decode()
PICTURE = ImageContent(GIF, mime_type="image/gif", validation=False)


@pytest.fixture
def config(tmp_path: Path) -> CacheConfig:
    return CacheConfig(root=str(tmp_path / "cache"), memory="16MiB")


def generator(config: CacheConfig, *replies: Any, **options: Any) -> CachedChatGenerator:
    """Another reply each time that the model is asked."""
    return CachedChatGenerator(MockChatGenerator(responses=list(replies or ("one", "two", "three"))), config, **options)


def text(outputs: dict[str, Any]) -> str:
    (reply,) = outputs["replies"]
    return str(reply.text)


def tool(**parameters: Any) -> Any:
    described = {"type": "object", "properties": parameters}
    return Tool(name="look", description="Looks.", parameters=described, function=print)


def test_a_repeated_request_is_answered_from_the_cache(config: CacheConfig) -> None:
    chat = generator(config)
    first, second = (chat.run(messages=[ChatMessage.from_user("What?")], generation_kwargs=COLD) for _ in range(2))
    assert text(first) == text(second) == "one"
    assert first["replies"][0].meta["mmcache"] == {"hit": False}
    meta = second["replies"][0].meta
    assert meta["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert meta["mmcache"] == {"hit": True, "saved_usage": first["replies"][0].meta["usage"]}
    assert meta["finish_reason"] == "stop"
    assert text(chat.run(messages="What?", generation_kwargs=COLD)) == "one"  # the same message


@pytest.mark.parametrize(
    "kwargs", [{}, {"temperature": 0.1}, {"temperature": False}, {"seed": -1}, {"seed": 1, "n": 2}]
)
def test_chance_is_not_cached_unless_allowed(config: CacheConfig, kwargs: dict[str, Any]) -> None:
    chat = generator(config)
    assert [text(chat.run(messages="What?", generation_kwargs=kwargs)) for _ in range(2)] == ["one", "two"]
    allowed = generator(config, sampled=True)
    again = [text(allowed.run(messages="What?", generation_kwargs=kwargs)) for _ in range(2)]
    assert again == (["one", "two"] if "n" in kwargs else ["one", "one"])


def test_parameters_of_the_component_count(config: CacheConfig) -> None:
    inner = MockChatGenerator(responses=["one", "two"])
    inner.generation_kwargs = {"temperature": 0}
    chat = CachedChatGenerator(inner, config)
    assert [text(chat.run(messages="What?")) for _ in range(2)] == ["one", "one"]
    assert text(chat.run(messages="What?", generation_kwargs={"temperature": 1})) == "two"


@pytest.mark.parametrize(
    "other",
    [
        {"messages": "Who?"},
        {"messages": [ChatMessage.from_system("Be brief."), ChatMessage.from_user("What?")]},
        {"messages": [ChatMessage.from_user("What?", name="Ann")]},
        {"messages": [ChatMessage.from_user("What?", meta={"cache_control": {"type": "ephemeral"}})]},
        {"messages": [ChatMessage.from_user(content_parts=["What?", PICTURE])]},
        {"messages": [ChatMessage.from_assistant("What?")]},
        {"generation_kwargs": COLD | {"max_completion_tokens": 5}},
        {"generation_kwargs": COLD | {"logprobs": True}},
        {"tools": [tool(a={"type": "string"})]},
        {"tools_strict": True},
        {"cache_tenant": "another"},
    ],
    ids=str,
)
def test_whatever_changes_a_reply_is_in_the_key(config: CacheConfig, other: dict[str, Any]) -> None:
    chat = generator(config)
    asked = {"messages": "What?", "generation_kwargs": COLD}
    assert text(chat.run(**asked)) == "one"
    assert text(chat.run(**(asked | other))) == "two"
    assert text(chat.run(**(asked | other))) == "two"


def test_the_order_of_a_tool_s_parameters_counts(config: CacheConfig) -> None:
    chat = generator(config)
    a, b = {"type": "string"}, {"type": "number"}
    for tools, expected in (([tool(a=a, b=b)], "one"), ([tool(b=b, a=a)], "two"), ([tool(a=a, b=b)], "one")):
        assert text(chat.run(messages="What?", generation_kwargs=COLD, tools=tools)) == expected


def test_pictures_count_by_their_bytes_and_history_without_bookkeeping(config: CacheConfig) -> None:
    chat = generator(config)

    def ask(**options: Any) -> str:
        picture = ImageContent(GIF, **({"mime_type": "image/gif", "validation": False} | options))
        answered = ChatMessage.from_assistant("A dot.", meta={"usage": options, "mmcache": {"hit": bool(options)}})
        messages = [ChatMessage.from_user(content_parts=["What?", picture]), answered, ChatMessage.from_user("Sure?")]
        return text(chat.run(messages=messages, generation_kwargs=COLD))

    assert ask() == "one"
    assert ask(meta={"file_path": "elsewhere"}) == "one"
    assert ask(detail="low") == "two"


@pytest.mark.parametrize(
    "reply",
    [
        ChatMessage.from_assistant("cut", meta={"finish_reason": "length"}),
        ChatMessage.from_assistant("hidden", meta={"finish_reason": "content_filter"}),
        ChatMessage.from_assistant("unsaid", meta={"finish_reason": None}),
    ],
    ids=lambda reply: reply.text,
)
def test_what_is_not_whole_is_not_kept(config: CacheConfig, reply: Any) -> None:
    chat = generator(config, reply, "whole")
    assert [text(chat.run(messages="What?", generation_kwargs=COLD)) for _ in range(3)] == [
        reply.text,
        "whole",
        "whole",
    ]


def test_tool_calls_come_back(config: CacheConfig) -> None:
    call = ToolCall(tool_name="look", arguments={"at": [1, 2.5]}, id="call-1")
    chat = generator(config, ChatMessage.from_assistant(tool_calls=[call]), "other")
    for _ in range(2):
        (reply,) = chat.run(messages="What?", generation_kwargs=COLD)["replies"]
        assert reply.tool_calls == [call]


def test_a_stream_is_recorded_once_and_given_again(config: CacheConfig) -> None:
    chat = generator(config, "a few words")
    streams: list[list[StreamingChunk]] = [[], []]
    for chunks in streams:
        chat.run(messages="What?", generation_kwargs=COLD, streaming_callback=chunks.append)
    assert [chunk.content for chunk in streams[0]] == ["a ", "few ", "words"]
    assert streams[1] == streams[0]
    assert streams[1][-1].finish_reason == "stop"


def test_a_callback_that_fails_keeps_nothing(config: CacheConfig) -> None:
    chat = generator(config)

    def fail(chunk: Any) -> None:
        raise RuntimeError("the client has gone")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="gone"):
            chat.run(messages="What?", generation_kwargs=COLD, streaming_callback=fail)


async def test_the_async_twin_streams_too(config: CacheConfig) -> None:
    chat = generator(config, "a few words")
    streams: list[list[str]] = [[], []]
    for chunks in streams:

        async def callback(chunk: Any, chunks: list[str] = chunks) -> None:
            chunks.append(chunk.content)

        outputs = await chat.run_async(messages="What?", generation_kwargs=COLD, streaming_callback=callback)
        assert text(outputs) == "a few words"
    assert streams[0] == streams[1] == ["a ", "few ", "words"]


def test_it_goes_to_yaml_and_back(config: CacheConfig) -> None:
    pipeline = Pipeline()
    pipeline.add_component("chat", generator(config, sampled=True))
    again = Pipeline.loads(pipeline.dumps(), allowed_modules=["mmcache.*"])
    assert again == pipeline
    answers = [text(one.run({"chat": {"messages": "What?"}})["chat"]) for one in (pipeline, again)]
    assert answers == ["one", "one"]
