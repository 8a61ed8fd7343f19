"""`prompt_of`: a request of OpenAI's chat interface, part by part. Unknown parts make the cache step aside."""

from __future__ import annotations

import base64
import binascii
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from mmcache.keys.arguments import DEEPEST
from mmcache.model.errors import InvalidInputError
from mmcache.semantic.prompt import Prompt, Unknown

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
    between the words counts exactly. The system messages that come first are `system`, all others before the last one
    `history`, compared exactly. What comes by address (but `data:`) or as a file's id, in any message, and parts of
    other types are unknown: nobody can say whether they are the same. Raises `InvalidInputError` for what is no such
    request.
    """
    if not isinstance(request, Mapping):
        raise InvalidInputError(f"a chat request is an object, not {type(request).__name__}")
    messages, tools = request.get("messages"), request.get("tools")
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise InvalidInputError("a chat request has messages, at least one")
    if not all(isinstance(message, Mapping) and isinstance(message.get("role"), str) for message in messages):
        raise InvalidInputError("each message of a chat request is an object with a role")
    if not isinstance(tools, list | tuple | None):
        raise InvalidInputError(f"the tools of a chat request are a list, not {type(tools).__name__}")
    *earlier, last = messages
    parts, turns = _parts(last.get("content")), _leading(earlier)
    return Prompt(
        text=PLACE.join(value for kind, value in parts if kind == "text"),
        pictures=[value for kind, value in parts if kind == "image"],
        sounds=[value for kind, value in parts if kind == "audio"],
        system=[_plain(message) for message in earlier[:turns]],
        history=[_plain(message) for message in earlier[turns:]],
        tools=None if tools is None else [_plain(tool) for tool in tools],
        sampling={name: _plain(request[name]) for name in SAMPLING & request.keys()},
        schema=_plain(request.get("response_format")),
        other={
            # Fields of the request, whatever they are called, stand apart from what is said of it here.
            "fields": {name: _plain(value) for name, value in request.items() if name not in _TAKEN},
            "message": {name: _plain(value) for name, value in last.items() if name not in ("role", "content")},
            "layout": _layout(parts),
        }
        | _unknown(earlier, last, parts),
    )


_TAKEN = SAMPLING | _DELIVERY | {"messages", "tools", "response_format"}
_SYSTEM = ("system", "developer")


def _leading(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many system messages come first."""
    return next((at for at, message in enumerate(messages) if message["role"] not in _SYSTEM), len(messages))


def _layout(parts: Sequence[tuple[str, Any]]) -> list[list[Any]]:
    """The kinds of parts, and where the text must be cut to have its parts back, if `PLACE` does not tell."""
    texts = [value for kind, value in parts if kind == "text"]
    unclear = len(texts) > 1 and any(PLACE in text for text in texts)
    return [[kind for kind, _ in parts], [len(text) for text in texts] if unclear else []]


def _unknown(
    earlier: Sequence[Mapping[str, Any]], last: Mapping[str, Any], parts: Sequence[tuple[str, Any]]
) -> dict[str, Unknown]:
    """Why the cache must step aside, if it must."""
    if last["role"] != "user":
        return {"last message": Unknown(f"not the user's, but of role {last['role']!r}")}
    if any(kind == "unknown" for kind, _ in parts):
        return {"last message": Unknown("one with parts that are not known: by address, or of another type")}
    for place, message in enumerate(earlier):
        if not _known(message):
            return {f"message {place}": Unknown("one with parts that are not known: by address, or of another type")}
    return {}


def _known(message: Mapping[str, Any]) -> bool:
    """Whether all that an earlier message shows the model is in it."""
    content = message.get("content")
    if message.get("audio") is not None:  # an earlier spoken answer, by its id
        return False
    if isinstance(content, list | tuple):
        return all(isinstance(part, str) or _enclosed(part) for part in content)
    return content is None or isinstance(content, str)


def _enclosed(part: Any) -> bool:
    """Whether a part of an earlier message holds its content, which then is compared exactly, as it is."""
    if not isinstance(part, Mapping):
        return False
    kind = part.get("type")
    if kind in ("text", "refusal"):
        return isinstance(part.get(kind), str)
    if not isinstance(kind, str) or set(part) != {"type", kind}:
        return False
    given = part[kind]
    if kind in ("image_url", "audio_url", "video_url"):
        address = given.get("url") if isinstance(given, Mapping) else given
        return isinstance(address, str) and address.startswith("data:")
    if not isinstance(given, Mapping):
        return False
    match kind:
        case "input_audio":
            return isinstance(given.get("data"), str) and set(given) <= {"data", "format"}
        case "file":
            return isinstance(given.get("file_data"), str) and set(given) <= {"file_data", "filename"}
    return False


def _plain(value: Any, depth: int = 0) -> Any:
    """Lists and dicts, whatever kind of sequence and mapping they came as. Too deep ones are left, and so unknown."""
    if depth > DEEPEST:
        return Unknown("nested too deep")
    if isinstance(value, Mapping):
        return {name: _plain(part, depth + 1) for name, part in value.items()}
    return [_plain(part, depth + 1) for part in value] if isinstance(value, list | tuple) else value


def _parts(content: Any) -> list[tuple[str, Any]]:
    """(kind, value) of a message's parts; kind is `text`, `image`, `audio` or `unknown`."""
    if isinstance(content, str):
        return [("text", _composed(content))]
    if not isinstance(content, list | tuple):
        return [("unknown", None)]
    return [_part(part) for part in content]


def _part(part: Any) -> tuple[str, Any]:
    if not isinstance(part, Mapping):
        return "unknown", None
    match part.get("type"), set(part) - {"type"}:
        case "text", names if names == {"text"} and isinstance(part["text"], str):
            return "text", _composed(part["text"])
        case "image_url", names if names == {"image_url"}:
            return _picture(part["image_url"])
        case "input_audio", names if names == {"input_audio"}:
            given = part["input_audio"]
            data = _decoded(given.get("data")) if isinstance(given, Mapping) else None
            return ("audio", data) if data is not None and set(given) <= {"data", "format"} else ("unknown", None)
    return "unknown", None


def _composed(text: str) -> str:
    """As `Prompt.text` is read, part by part: else where it is cut would differ for texts that do not."""
    return unicodedata.normalize("NFC", text)


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
