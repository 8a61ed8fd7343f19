"""A question: a window, and which lookups of it. Its values are never part of a query's text."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mmcache.dashboard.dictionary import Dictionary, Facets
from mmcache.dashboard.rows import AXES, Window
from mmcache.dashboard.values import digits
from mmcache.model.errors import DashboardError

HOUR = 3600.0
VALUES = 50
"""Of one filter."""
_LATEST = 4e9


class WrongQuestionError(DashboardError):
    """A parameter makes no sense."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=400, code="parameter")


@dataclass(frozen=True)
class Question:
    """`filters`: of an axis, any of these values. `keys`: any of these; none = all."""

    window: Window
    filters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keys: tuple[int, ...] = ()

    def chosen(self, known: Dictionary) -> NDArray[np.bool_]:
        """Which facets are asked for: bool[facets]; only lookups."""
        table = known.facets.table()
        mask: NDArray[np.bool_] = table[:, 0] == 1
        for axis, values in self.filters.items():
            words = known.words[axis]
            ids = [number for value in values if (number := words.find(value)) is not None]
            mask &= np.isin(table[:, Facets.COLUMNS.index(axis)], ids)
        return mask


def question(given: Sequence[tuple[str, str]], also: Sequence[str] = ()) -> Question:
    """Of a URL's parameters. also: names that are not looked at. Raises `WrongQuestionError`."""
    filters: dict[str, list[str]] = {}
    bounds: dict[str, float] = {}
    keys = []
    for name, value in given:
        if name in AXES:
            filters.setdefault(name, []).append(value)
        elif name in ("from", "to"):
            bounds[name] = _seconds(name, value)
        elif name == "key":
            if not (key := digits(value.lower(), 16)):
                raise WrongQuestionError("key is 16 hex digits")
            keys.append(key)
        elif name not in also:
            raise WrongQuestionError(f"there is no parameter {name[:40]!r}")
    if any(len(values) > VALUES for values in filters.values()) or len(keys) > VALUES:
        raise WrongQuestionError(f"a filter takes at most {VALUES} values")
    end = bounds.get("to", time.time())
    start = bounds.get("from", end - HOUR)
    if start >= end:
        raise WrongQuestionError("from is before to")
    return Question(Window(start, end), {name: tuple(values) for name, values in filters.items()}, tuple(keys))


def whole(given: Mapping[str, str], name: str, default: int, most: int) -> int:
    """A parameter from 1 to `most`; a larger one is `most`. Raises `WrongQuestionError`."""
    text = given.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
        raise WrongQuestionError(f"{name} is a whole number from 1 to {most}")
    return min(int(text), most)


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= _LATEST:
        raise WrongQuestionError(f"{name} is a time in Unix seconds")
    return seconds
