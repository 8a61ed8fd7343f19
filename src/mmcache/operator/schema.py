"""What of a value does not fit its OpenAPI schema, as the API server would say it.

A server asks when something is written. What lies there longer than our definition, or came past an older one, nobody
has asked about; and names become parts of paths and of scripts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (Mapping,), "array": (list, tuple), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float),
}  # fmt: skip


def faults(value: Any, schema: Schema, at: str = "", free: Collection[str] = ()) -> list[str]:
    """One sentence each, which begins with the path. free: paths whose limits somebody else looks after."""
    return list(_faults(value, schema, at, free))


def _faults(value: Any, schema: Schema, at: str, free: Collection[str]) -> Iterator[str]:
    kind = schema.get("type")
    if kind is None:  # an integer or a string: whoever reads it says what is wrong
        return
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield f"{at} must be of type {kind}, not {value!r:.60}"
    elif isinstance(value, Mapping):
        yield from _members(value, schema, at, free)
    elif isinstance(value, str):
        yield from _text(value, schema, at)
    elif isinstance(value, Sequence):
        for number, one in enumerate(value):
            yield from _faults(one, schema["items"], f"{at}[{number}]", free)
    elif at not in free:
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            yield f"{at} must be {low}..{high}, not {value}"


def _members(value: Mapping[str, Any], schema: Schema, at: str, free: Collection[str]) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield f"{_below(at, name)} is required"
    if len(value) > schema.get("maxProperties", len(value)):
        yield f"{at} may have {schema['maxProperties']} entries at most, not {len(value)}"
    for name, one in value.items():
        told = known.get(name, others)
        if told is not None and one is not None:
            yield from _faults(one, told, _below(at, name), free)


def _text(value: str, schema: Schema, at: str) -> Iterator[str]:
    if value not in schema.get("enum", (value,)):
        yield f"{at} must be one of {', '.join(schema['enum'])}, not {value!r:.60}"
    elif not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{at} must have {schema.get('minLength', 0)}..{schema['maxLength']} letters, not {len(value)}"
    # `fullmatch`, since `$` alone would let a newline pass at the end.
    elif "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield f"{at} must be like {schema['pattern']}, not {value!r:.60}"


def _below(at: str, name: object) -> str:
    return f"{at}.{name}" if at else str(name)
