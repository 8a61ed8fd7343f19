"""Who says whether a stored answer was right: by default, whether computing it anew gives the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

Judge = Callable[[Any, Any], bool | None]
"""`judge(stored, computed)`: right, wrong, or None where it cannot say, and nothing is learned. Symmetric or not."""

_BLANK = re.compile(r"\s+")
_STOP = re.compile(r"(?<=[^.\s])\s*\.$")
"""One closing full stop; three are words left out."""


def same_answer(stored: Any, computed: Any) -> bool | None:
    """The default judge, "recompute and compare": the same words, whatever their case, spacing and closing full stop.

    Strings, lists of chunks of them, numbers, booleans, None, and lists and dicts of these, dicts in any order; NaN
    equals NaN, 1 equals 1.0, and neither equals True or "1". Characters are equal in their canonical composition (NFC)
    only: ² is not 2. None (cannot say) for anything else: pass `judge=` for arrays, where many texts are right, or
    where case or spacing means something (mW and MW, code).
    """
    one, other = _plain(stored), _plain(computed)
    return None if one is _OTHER or other is _OTHER else one == other


_OTHER = object()


def _plain(value: Any) -> Any:
    """`value` with its strings normalised, and tags, which no value is, on what would equal another type's; `_OTHER`
    where some part of it is of a type not named above."""
    if isinstance(value, str):
        lowered = unicodedata.normalize("NFC", value.lower())  # not casefold: it makes one word of Maße and Masse
        return _STOP.sub("", _BLANK.sub(" ", lowered).strip())
    if isinstance(value, float):
        return ("float", "nan") if value != value else value
    if value is None or isinstance(value, bool | int):
        return ("bool", value) if isinstance(value, bool) else value
    if isinstance(value, list | tuple):
        parts = [_plain(part) for part in value]
        return _OTHER if any(part is _OTHER for part in parts) else parts
    if isinstance(value, dict):
        items = {(type(name), name): _plain(part) for name, part in value.items()}
        return _OTHER if any(part is _OTHER for part in items.values()) else items
    return _OTHER
