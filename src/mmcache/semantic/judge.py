"""Who says whether a stored answer was right: by default, whether computing it anew gives the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

Judge = Callable[[Any, Any], bool | None]
"""`judge(stored, computed)`: right, wrong, or None where it cannot say, and nothing is learned. Symmetric or not."""

_BLANK = re.compile(r"\s+")


def same_answer(stored: Any, computed: Any) -> bool | None:
    """The default judge, "recompute and compare": the same words, whatever their case, spacing and closing full stop.

    Strings, lists of chunks of them, numbers, booleans, None, and lists and dicts of these; NaN equals NaN. None
    (cannot say) for anything else: pass `judge=` for arrays, or where many texts are right.
    """
    one, other = _plain(stored), _plain(computed)
    return None if one is _OTHER or other is _OTHER else one == other


_OTHER = object()


def _plain(value: Any) -> Any:
    """`value` with its strings normalised; `_OTHER` where some part of it is of another type."""
    if isinstance(value, str):
        return _BLANK.sub(" ", unicodedata.normalize("NFKC", value)).strip().rstrip(".").casefold()
    if isinstance(value, float):
        return "nan" if value != value else value
    if value is None or isinstance(value, bool | int):
        return (type(value).__name__, value) if isinstance(value, bool) else value
    if isinstance(value, list | tuple):
        parts = [_plain(part) for part in value]
        return _OTHER if any(part is _OTHER for part in parts) else parts
    if isinstance(value, dict):
        items = {name: _plain(part) for name, part in value.items()}
        return _OTHER if any(part is _OTHER for part in items.values()) else items
    return _OTHER
