"""Values of attributes, as plain Python and bounded: whoever sends spans may send anything."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

TEXT = 4096
"""Characters of one value that are kept."""
WORD = 200
"""Characters of a value that is kept in a column: a name, a route, a tenant."""
DEPTH = 5
ITEMS = 64
ATTRIBUTES = 128
"""Of one span; further ones are left out."""
NAME = 200
SHEET = 8_192
"""Characters of JSON that many spans may share: of a process, of a signature."""
REST = 65_536
"""Characters of JSON of one span."""
_json = msgspec.json.Encoder()


def clipped(text: str, most: int) -> str:
    """The text, cut; what is cut says so."""
    return text if len(text) <= most else text[: most - 1] + "…"


def plain(value: Any, depth: int = DEPTH) -> Any:
    """What an `AnyValue` holds: text, number, bool, list, dict or None. Bytes are base64, infinities are texts."""
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return clipped(value.string_value, TEXT)
    if kind == "int_value":
        return value.int_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "double_value":
        number = value.double_value
        return number if math.isfinite(number) else str(number)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value[:TEXT]).decode()
    if kind == "array_value":
        return "…" if depth <= 0 else [plain(one, depth - 1) for one in value.array_value.values[:ITEMS]]
    if kind == "kvlist_value":
        return "…" if depth <= 0 else named(value.kvlist_value.values[:ITEMS], depth - 1)
    return None


def named(pairs: Iterable[Any], depth: int = DEPTH) -> dict[str, Any]:
    """Attributes by name; of two of one name the last stands."""
    found: dict[str, Any] = {}
    for pair in pairs:
        value = pair.value
        if value.HasField("string_value"):
            text = value.string_value
            found[pair.key] = text if len(text) <= TEXT else clipped(text, TEXT)
        else:
            found[pair.key] = plain(value, depth)
        if len(found) >= ATTRIBUTES:
            break
    if any(len(name) > NAME for name in found):
        found = {clipped(name, NAME): said for name, said in found.items()}
    return found


def sheet(said: Mapping[str, Any], most: int) -> str:
    """Attributes as JSON of at most so many characters; what has no room is left out, and counted."""
    text = _json.encode(said).decode()
    if len(text) <= most:
        return text
    kept: dict[str, Any] = {}
    room = most - 32
    for name, value in said.items():
        size = len(_json.encode({name: value}).decode())
        if size <= room:
            kept[name] = value
            room -= size
    return _json.encode(kept | {"…": f"{len(said) - len(kept)} more"}).decode()


def word(value: Any) -> str:
    """A value of a column: a short text, empty where there is none."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= WORD else clipped(text, WORD)


def number(value: Any, most: float) -> float:
    """A number from 0 to `most`; 0 for anything that is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return min(float(value), most) if 0 < value < math.inf else 0.0


def digits(value: Any, length: int) -> int:
    """A number that is written in so many hex digits; 0 for anything else."""
    if not isinstance(value, str) or len(value) != length or "_" in value:
        return 0
    try:
        return int(value, 16)
    except ValueError:
        return 0
