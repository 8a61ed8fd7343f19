"""Views of hot keys in what OTLP says of logs: a record of that event name, whose body is a view as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from mmcache.dashboard.values import clipped, digits, named, word
from mmcache.hotkeys.view import EVENT_NAME, Community, HotEdge, HotKey, HotView, decode

MOST_VIEWS = 64
"""Of one body: a process sends one at a time, a collector those of several."""
PARTS = 12
"""Of a score."""
PART_NAME = 40
MOST_MERGED = 32
_SAFE = 2**53
"""Of whole numbers, what JavaScript tells apart."""
_LARGE = 1e15
"""Of a score, a heat, a weight: their sums stay finite."""


@dataclass(slots=True)
class ReadViews:
    """What a request held."""

    views: list[HotView] = field(default_factory=list)
    others: int = 0
    """Records of something else."""
    refused: Counter[str] = field(default_factory=Counter)
    """Why, and how many."""


def views_of(request: Any) -> ReadViews:
    """Views of an `ExportLogsServiceRequest`. Whose a view is, its resource says; what it says itself stands only where
    that says nothing. What is no view is refused."""
    read = ReadViews()
    for resource, record in _records(request):
        if not _ours(record):
            read.others += 1
        elif len(read.views) >= MOST_VIEWS:
            read.refused[f"a body has at most {MOST_VIEWS} of them"] += 1
        else:
            try:
                view = _bounded(decode(_body(record)))
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                read.refused[str(error)[:200]] += 1
                continue
            read.views.append(
                msgspec.structs.replace(
                    view,
                    service=word(resource.get("service.name")) or view.service,
                    instance=word(resource.get("service.instance.id")) or view.instance,
                )
            )
    return read


def _records(request: Any) -> Iterator[tuple[Mapping[str, Any], Any]]:
    for group in request.resource_logs:
        resource = named(group.resource.attributes)
        for scope in group.scope_logs:
            for record in scope.log_records:
                yield resource, record


def _ours(record: Any) -> bool:
    """By the field of OTLP 1.5, or by the attribute of before."""
    name = getattr(record, "event_name", "")
    return bool(name == EVENT_NAME or (not name and named(record.attributes).get("event.name") == EVENT_NAME))


def _body(record: Any) -> bytes:
    if record.body.HasField("string_value"):
        return str(record.body.string_value).encode()
    if record.body.HasField("bytes_value"):
        return bytes(record.body.bytes_value)
    raise ValueError("the body of such a record is a view as JSON, a text")


def _bounded(view: HotView) -> HotView:
    """Its texts cut, its numbers within bounds. Raises `ValueError` for keys or communities that cannot be named."""
    if any(not digits(one.key, 16) for one in view.keys):
        raise ValueError("a key is 16 hex digits")
    if len({one.key.lower() for one in view.keys}) < len(view.keys):
        raise ValueError("a view that names a key twice")
    communities = [_community(one) for one in view.communities]
    if len({one.id for one in communities}) < len(communities):
        raise ValueError("a view that names a community twice")
    return HotView(
        at=_number(view.at, 4e9),
        service=word(view.service),
        instance=word(view.instance),
        keys=[_key(one) for one in view.keys],
        edges=[HotEdge(one.source, one.target, _number(one.weight)) for one in view.edges],
        communities=communities,
        tracked_keys=_whole(view.tracked_keys),
        tracked_edges=_whole(view.tracked_edges),
        seconds=_number(view.seconds),
    )


def _key(one: HotKey) -> HotKey:
    parts = list(one.parts.items())[:PARTS]
    return HotKey(
        key=one.key.lower(),
        score=_signed(one.score),
        parts={clipped(name, PART_NAME): _signed(value) for name, value in parts},
        heat=_number(one.heat),
        modality=word(one.modality),
        tenant=word(one.tenant),
        tier=word(one.tier),
        bytes=_whole(one.bytes),
        expected_hours=None if one.expected_hours is None else _number(one.expected_hours),
        confidence=None if one.confidence is None else _number(one.confidence, 1.0),
        community=_id(one.community),
    )


def _community(one: Community) -> Community:
    if not _id(one.id):
        raise ValueError("a community's id is not 0")
    merged = [_id(other) for other in one.merged[:MOST_MERGED]]
    return Community(
        one.id, _whole(one.size), _number(one.weight), one.state, _number(one.since, 4e9), [o for o in merged if o]
    )


def _id(number: int) -> int:
    if not 0 <= number < _SAFE:
        raise ValueError("a community's id is a whole number, less than 2**53")
    return number


def _whole(number: int) -> int:
    return min(max(number, 0), _SAFE - 1)


def _number(value: float, most: float = _LARGE) -> float:
    return min(max(value, 0.0), most) if math.isfinite(value) else 0.0


def _signed(value: float) -> float:
    return min(max(value, -_LARGE), _LARGE) if math.isfinite(value) else 0.0
