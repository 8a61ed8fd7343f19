"""`prompt_of`: a request of OpenAI's chat interface, part by part. Unknown parts make the cache step aside."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from mmcache.model.errors import InvalidInputError
from mmcache.semantic.prompt import UNKNOWN, Prompt

SAMPLING = frozenset(
    (
        "temperature", "top_p", "top_k", "min_p", "seed", "n", "stop", "max_tokens", "max_completion_tokens",
        "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "reasoning_effort",
        "verbosity",
    )
)  # fmt: skip
_DELIVERY = frozenset(("stream", "stream_options", "model"))
"""Not part of the prompt: how the answer is sent, and who gives it."""
PLACE = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands where a picture or sound stood between words."""


def prompt_of(request: Mapping[str, Any]) -> Prompt:
    """The prompt of `request`, as sent to `/v1/chat/completions` (a dict).

    The last message must be the user's: its words are the text, its pictures and sounds stay in order; where they stand
    between the words counts exactly. Earlier messages are history, compared exactly. Pictures given by address, and
    parts of other types, are unknown: nobody can say whether they are the same. Raises `InvalidInputError` for what is
    no such request.
    """
    messages = request.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise InvalidInputError("a chat request has messages, at least one")
    if not all(isinstance(message, Mapping) and isinstance(message.get("role"), str) for message in messages):
        raise InvalidInputError("each message of a chat request is an object with a role")
    *earlier, last = messages
    other = {name: value for name, value in request.items() if name not in _TAKEN}
    if last["role"] != "user":
        other["last message"] = UNKNOWN
    parts = _parts(last.get("content"))
    other["layout"] = [kind for kind, _ in parts]
    if extra := {name: value for name, value in last.items() if name not in ("role", "content")}:
        other["last message's"] = extra
    if "unknown" in other["layout"]:
        other["unknown part"] = UNKNOWN
    system = [message for message in earlier if message["role"] in ("system", "developer")]
    return Prompt(
        text=PLACE.join(value for kind, value in parts if kind == "text"),
        pictures=[value for kind, value in parts if kind == "image"],
        sounds=[value for kind, value in parts if kind == "audio"],
        system=[_plain(message) for message in system],
        history=[_plain(message) for message in earlier if message not in system],
        tools=[_plain(tool) for tool in request.get("tools") or ()],
        sampling={name: request[name] for name in SAMPLING & request.keys()},
        schema=_plain(request.get("response_format")),
        other={name: _plain(value) for name, value in other.items()},
    )


_TAKEN = SAMPLING | _DELIVERY | {"messages", "tools", "response_format"}


def _plain(value: Any) -> Any:
    """Lists and dicts, whatever kind of sequence and mapping they came as."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _parts(content: Any) -> list[tuple[str, Any]]:
    """(kind, value) of a message's parts; kind is `text`, `image`, `audio` or `unknown`."""
    if isinstance(content, str):
        return [("text", content)]
    if not isinstance(content, Sequence):
        return [("unknown", None)]
    return [_part(part) for part in content]


def _part(part: Any) -> tuple[str, Any]:
    if not isinstance(part, Mapping):
        return "unknown", None
    match part.get("type"), set(part) - {"type"}:
        case "text", names if names == {"text"} and isinstance(part["text"], str):
            return "text", part["text"]
        case "image_url", names if names == {"image_url"}:
            return _picture(part["image_url"])
        case "input_audio", names if names == {"input_audio"}:
            given = part["input_audio"]
            data = _decoded(given.get("data")) if isinstance(given, Mapping) else None
            return ("audio", data) if data is not None and set(given) <= {"data", "format"} else ("unknown", None)
    return "unknown", None


def _picture(given: Any) -> tuple[str, Any]:
    """Only pictures that come with the request. `detail` changes what the model sees, so it makes them unknown."""
    address = given.get("url") if isinstance(given, Mapping) and set(given) == {"url"} else given
    if not isinstance(address, str) or not address.startswith("data:image/"):
        return "unknown", None
    head, _, data = address.partition(",")
    found = _decoded(data) if head.endswith(";base64") else None
    return ("unknown", None) if found is None else ("image", found)


def _decoded(data: Any) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) and data else None
    except binascii.Error:
        return None
