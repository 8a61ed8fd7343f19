"""`Field`: what one field of a request means for its answer. What no table names is not known, and so not cached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mmcache.server.canonical.request import MOST_CHARACTERS, RefusedError


def exact(value: Any) -> Any:
    """As it is, and with objects in the order in which they were written: a model may be shown them as text."""
    return value


def number(value: Any) -> Any:
    """1 and 1.0 are one number, and so are 0 and -0.0. What is no number is left: the upstream will refuse it."""
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value


def by_name(value: Any) -> Any:
    """An object of named settings: their order means nothing, what is in them is left as it is."""
    return dict(sorted(value.items())) if isinstance(value, dict) else value


def biases(value: Any) -> Any:
    """Token → bias."""
    return {name: number(bias) for name, bias in sorted(value.items())} if isinstance(value, dict) else value


def stops(value: Any) -> Any:
    """One sequence may be given without a list."""
    return [value] if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Field:
    """Part of the key, unless said otherwise."""

    read: Callable[[Any], Any] = exact
    absent: tuple[Any, ...] = ()
    """Values that mean the same as leaving it out."""
    bypass: str = ""
    """Why a request with any other value is not cached."""
    dropped: bool = False
    """Changes nothing in the answer, so no part of the key."""


NULL = (None,)
KEPT = Field()
OPTIONAL = Field(absent=NULL)
NUMBER = Field(number, NULL)
DROPPED = Field(dropped=True)


def bypasses(reason: str, *absent: Any) -> Field:
    """A field that is not cached, but for values that mean the same as leaving it out."""
    return Field(absent=(None, *absent), bypass=reason)


def read_fields(request: Mapping[str, Any], table: Mapping[str, Field]) -> dict[str, Any]:
    """The fields that count, in the order of their names. Raises `RefusedError`."""
    found: dict[str, Any] = {}
    for name in sorted(request):
        entry, value = table.get(name), request[name]
        if entry is None:
            raise RefusedError("unknown-field")
        if entry.dropped or any(_same(value, one) for one in entry.absent):
            continue
        if entry.bypass:
            raise RefusedError(entry.bypass)
        found[name] = entry.read(value)
    return found


def only(value: Mapping[str, Any], names: frozenset[str], reason: str = "unknown-field") -> None:
    """Raises `RefusedError` where `value` has other fields."""
    if not value.keys() <= names:
        raise RefusedError(reason)


def _same(value: Any, other: Any) -> bool:
    """1 is no True."""
    return isinstance(value, bool) == isinstance(other, bool) and value == other


def deterministic(request: Mapping[str, Any]) -> bool:
    """Whether it says itself that its answer does not depend on chance: temperature 0, or a seed.

    A negative seed is none: vLLM and llama.cpp take -1 as "draw one".
    """
    temperature, seed = request.get("temperature"), request.get("seed")
    if isinstance(temperature, int | float) and not isinstance(temperature, bool) and temperature == 0:
        return True
    return isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0


def flag(request: Mapping[str, Any], name: str) -> bool:
    """A field that is true, false, null or not there. Raises `RefusedError`."""
    value = request.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise RefusedError("malformed")


def model_of(request: Mapping[str, Any]) -> str:
    """Its name, exactly. Raises `RefusedError`."""
    model = request.get("model")
    if not isinstance(model, str) or not model or len(model) > MOST_CHARACTERS:
        raise RefusedError("no-model")
    return model


def check_tools(tools: Any, allowed: bool, kinds: frozenset[str], reasons: Mapping[str, str]) -> None:
    """Tools that the caller runs count in the key; those that the upstream runs see a world that changes."""
    if not tools:
        return
    if not allowed:
        raise RefusedError("tools")
    if not isinstance(tools, list):
        raise RefusedError("malformed")
    for tool in tools:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            raise RefusedError(reasons.get(str(kind), "unknown-tool"))
