"""`responses`: a request to `/v1/responses` → `Canonical`, or why not."""

from __future__ import annotations

from typing import Any

from mmcache.server.canonical.chat import medium, text_part
from mmcache.server.canonical.fields import check_tools, deterministic, flag, model_of, only, read_fields
from mmcache.server.canonical.request import Bypass, Canonical, Media, Place, RefusedError
from mmcache.server.canonical.responses_fields import (
    INCLUDED,
    ITEMS,
    RESPONSES,
    STREAM_OPTIONS,
    TEXT_PARTS,
    TOOL_KINDS,
    TOOL_REASONS,
)


def responses(request: Any, *, sampled: bool = False, tools: bool = True) -> Canonical | Bypass:
    """What `request` (a parsed body) asks for; options and orders as for `chat`.

    Only with `store: false`: left out it means true, and then the caller may come back to the answer's id, which the
    upstream must know, as long as it promised.
    """
    try:
        return _responses(request, sampled, tools)
    except RefusedError as error:
        return Bypass(error.reason)


def _responses(request: Any, sampled: bool, tools: bool) -> Canonical:
    if not isinstance(request, dict):
        raise RefusedError("malformed")
    model, streamed = model_of(request), flag(request, "stream")
    apart = ("model", "input", "stream", "store")
    fields = read_fields({name: value for name, value in request.items() if name not in apart}, RESPONSES)
    if request.get("store") is not False:
        raise RefusedError("store")
    check_tools(fields.get("tools"), tools, TOOL_KINDS, TOOL_REASONS)
    if not (sampled or deterministic(request)):
        raise RefusedError("not-deterministic")
    check_include(fields.get("include"))
    if (options := fields.get("stream_options")) is not None:
        if not isinstance(options, dict):
            raise RefusedError("malformed")
        only(options, STREAM_OPTIONS)
    media: list[Media] = []
    given = request.get("input")
    if isinstance(given, list) and given:
        given = [_item(item, ("input", place), media) for place, item in enumerate(given)]
    elif not isinstance(given, str):
        raise RefusedError("malformed")
    tree = [model, given, fields]
    return Canonical(model, "sse" if streamed else "json", 1, False, tree, tuple(media))


def check_include(include: Any) -> None:
    """What is said again of the input has its form, not its content alone. Raises `RefusedError`."""
    if include is not None and not (isinstance(include, list) and all(one in INCLUDED for one in include)):
        raise RefusedError("include")


def _item(item: Any, place: Place, media: list[Media]) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise RefusedError("malformed")
    kind = item.get("type", "message" if "role" in item else None)
    names = ITEMS.get(kind) if isinstance(kind, str) else None
    if names is None:
        raise RefusedError("item-reference" if kind == "item_reference" else "unknown-item")
    only(item, names)
    told = {name: item[name] for name in sorted(item)}
    for name in ("content", "output"):
        if kind != "reasoning" and isinstance(item.get(name), list):
            parts = enumerate(item[name])
            told[name] = [_part(part, (*place, name, number), media) for number, part in parts]
    return told


def _part(part: Any, place: Place, media: list[Media]) -> Any:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise RefusedError("unknown-part")
    return text_part(part, TEXT_PARTS) or medium(part, place, media)
