"""`chat`: a request to `/v1/chat/completions` → `Canonical`, or why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mmcache.server.canonical.chat_fields import CHAT, MESSAGE, MOST_CHOICES, STREAM_OPTIONS, TEXT_PARTS, TOOL_KINDS
from mmcache.server.canonical.fields import check_tools, deterministic, flag, model_of, only, read_fields
from mmcache.server.canonical.request import Bypass, Canonical, Media, Place, RefusedError


def chat(request: Any, *, sampled: bool = False, tools: bool = True) -> Canonical | Bypass:
    """What `request` (a parsed body) asks for.

    sampled: cache requests that leave their answer to chance, too. tools: cache requests with tools.
    The order of an object's fields means nothing in the request itself, its messages and their parts. In what a model
    may be shown as text (tools, earlier calls of them, schemas, documents) it is kept, as is that of all lists.
    """
    try:
        return _chat(request, sampled, tools)
    except RefusedError as error:
        return Bypass(error.reason)


def _chat(request: Any, sampled: bool, tools: bool) -> Canonical:
    if not isinstance(request, dict):
        raise RefusedError("malformed")
    model, streamed = model_of(request), flag(request, "stream")
    rest = {name: value for name, value in request.items() if name not in ("model", "messages", "stream")}
    fields = read_fields(rest, CHAT)
    if not (sampled or deterministic(request)):
        raise RefusedError("not-deterministic")
    if "modalities" in fields:  # other than text alone
        raise RefusedError("audio-output")
    for name in ("tools", "functions"):
        if fields.get(name) and not tools:
            raise RefusedError("tools")
    check_tools(fields.get("tools"), tools, TOOL_KINDS, {})
    if fields.get("tools"):  # both servers' documented defaults, where there are tools
        _leave(fields, "tool_choice", "auto")
        _leave(fields, "parallel_tool_calls", True)
    choices = fields.get("n", 1)
    if not isinstance(choices, int) or isinstance(choices, bool) or not 1 <= choices <= MOST_CHOICES:
        raise RefusedError("malformed")
    usage = _stream_options(fields)
    media: list[Media] = []
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedError("malformed")
    told = [_message(message, ("messages", place), media) for place, message in enumerate(messages)]
    tree = [model, told, fields]
    limits = [fields.get(name) for name in ("max_tokens", "max_completion_tokens")]
    most = min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=0)
    return Canonical(model, "sse" if streamed else "json", choices, usage, tree, tuple(media), most)


def _leave(fields: dict[str, Any], name: str, default: Any) -> None:
    """Leave a default out."""
    if type(fields.get(name)) is type(default) and fields[name] == default:
        del fields[name]


def _stream_options(fields: dict[str, Any]) -> bool:
    """Whether the usage is to be told; what is not asked for is left out."""
    options = fields.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise RefusedError("malformed")
    only(options, STREAM_OPTIONS)
    asked = {name: options[name] for name in sorted(options) if options[name] is not None}
    _leave(asked, "include_usage", False)
    _leave(asked, "continuous_usage_stats", False)
    if asked:
        fields["stream_options"] = asked
    else:
        del fields["stream_options"]
    return asked.get("include_usage") is True


def _message(message: Any, place: Place, media: list[Media]) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RefusedError("malformed")
    only(message, MESSAGE)
    if message.get("audio") is not None:  # an earlier spoken answer, by its id
        raise RefusedError("audio-history")
    told = {name: message[name] for name in sorted(message)}
    if isinstance(message.get("content"), list):
        parts = enumerate(message["content"])
        told["content"] = [_part(part, (*place, "content", number), media) for number, part in parts]
    elif not isinstance(message.get("content"), str | None):
        raise RefusedError("malformed")
    return told


def _part(part: Any, place: Place, media: list[Media]) -> Any:
    """Words as they are: a text by itself and a list of one text are two things to a chat template."""
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise RefusedError("unknown-part")
    return text_part(part, TEXT_PARTS) or medium(part, place, media)


def text_part(part: Mapping[str, Any], kinds: Mapping[str, frozenset[str]]) -> dict[str, Any] | None:
    """A part that is words alone; None for others. Raises `RefusedError`."""
    if (names := kinds.get(part["type"])) is None:
        return None
    only(part, names)
    return {name: part[name] for name in sorted(part)}


def medium(part: Mapping[str, Any], place: Place, media: list[Media]) -> list[Any]:
    """What stands for a part whose content is to be identified."""
    media.append(Media(place, part))
    return ["media", len(media) - 1]
