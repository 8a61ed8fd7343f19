"""Chat messages as parts of a key, and replies as values that the cache stores."""

from __future__ import annotations

import base64
import json
from typing import Any

from blake3 import blake3
from haystack.dataclasses import ChatMessage, FileContent, ImageContent, StreamingChunk
from haystack.tools import flatten_tools_or_toolsets

from mmcache.integrations.haystack.door import NotStored
from mmcache.integrations.haystack.freezing import unused
from mmcache.keys.framing import framed
from mmcache.model.errors import InvalidInputError

_BOOKKEEPING = {"mmcache", "usage", "model", "index", "finish_reason", "completion_start_time", "id", "logprobs"}
"""Of a message's `meta`: how it was made, which no model is shown."""
_WHOLE = {"stop", "tool_calls"}
"""Reasons to finish that mean that nothing is missing."""


def chat_bytes(inputs: dict[str, Any], kwargs: dict[str, Any], tools: Any, streamed: bool) -> bytes:
    """All that a reply depends on, besides the generator. The order of names in tools and schemas counts, for models
    read them in it. Raises `InvalidInputError` for what has no canonical bytes."""
    messages = inputs.get("messages")
    given = [ChatMessage.from_user(messages)] if isinstance(messages, str) else messages
    if not isinstance(given, list) or not all(type(one) is ChatMessage for one in given):
        raise InvalidInputError("messages are a list of ChatMessages, or a text")
    rest = {name: value for name, value in inputs.items() if name != "messages"}
    try:
        specs = [tool.tool_spec for tool in flatten_tools_or_toolsets(tools)]
        told = [_exact(dict(sorted(part.items()))) for part in (kwargs, rest)]
        return framed("chat", *map(_message, given), b"", *told, _exact(specs), b"\1" if streamed else b"\0")
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"a part of the chat has no canonical bytes: {error}") from error


def _message(message: Any) -> bytes:
    parts = []
    for part in message._content:
        if isinstance(part, ImageContent):
            parts.append(_medium("image", part.base64_image, [part.mime_type, part.detail]))
        elif isinstance(part, FileContent):
            parts.append(_medium("file", part.base64_data, [part.mime_type, part.filename, part.extra]))
        else:
            parts.append(framed("part", type(part).__name__.encode(), _exact(part.to_dict())))
    meta = {name: value for name, value in sorted(message.meta.items()) if name not in _BOOKKEEPING}
    return framed("message", _exact([message.role.value, message.name, meta]), *parts)


def _medium(kind: str, encoded: str, rest: list[Any]) -> bytes:
    """By its bytes, however they are wrapped as base64."""
    return framed(kind, blake3(base64.b64decode(encoded)).digest(), _exact(rest))


def _exact(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False).encode()


def deterministic(kwargs: dict[str, Any]) -> bool:
    """Whether the request says itself that its one answer does not depend on chance: temperature 0, or a seed."""
    if kwargs.get("n") not in (None, 1):
        return False
    temperature, seed = kwargs.get("temperature"), kwargs.get("seed")
    if isinstance(temperature, int | float) and not isinstance(temperature, bool) and temperature == 0:
        return True
    return isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0


def frozen_replies(outputs: dict[str, Any], chunks: list[Any]) -> dict[str, Any] | NotStored:
    """Only whole replies are kept: not what was cut off, filtered, or does not say."""
    replies = outputs.get("replies")
    if not isinstance(replies, list) or not replies or outputs.keys() != {"replies"}:
        return NotStored(outputs)
    if not all(type(one) is ChatMessage and one.meta.get("finish_reason") in _WHOLE for one in replies):
        return NotStored(outputs)
    try:
        kept = {"replies": [one.to_dict() for one in replies], "chunks": [chunk.to_dict() for chunk in chunks]}
        json.dumps(kept)
    except (TypeError, ValueError, RecursionError):
        return NotStored(outputs)
    return kept


def thawed_replies(stored: dict[str, Any], hit: bool) -> dict[str, Any]:
    """The other way round; on a hit, what was used is nothing, and what was saved is said."""
    replies = []
    for told in stored["replies"]:
        meta = told.get("meta") or {}
        said: dict[str, Any] = {"hit": hit} | ({"saved_usage": meta["usage"]} if hit and "usage" in meta else {})
        replies.append(ChatMessage.from_dict(told | {"meta": {**(unused(meta) if hit else meta), "mmcache": said}}))
    return {"replies": replies}


def thawed_chunks(stored: dict[str, Any]) -> list[Any]:
    """As they were streamed."""
    return [StreamingChunk.from_dict(chunk) for chunk in stored["chunks"]]
