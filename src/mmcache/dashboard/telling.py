"""How causes and explanations speak: names that came from outside, times, counts and shares, in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from types import MappingProxyType

LONGEST = 80
"""Characters of a name that came from outside."""

Where = Mapping[str, str | list[str]]
"""Axis → its value, or values."""
EVERYWHERE: Where = MappingProxyType({})


def named(value: str, longest: int = LONGEST) -> str:
    """A name in which nothing hides: control, direction and unassigned characters are escaped, and it is cut short."""
    cut = value if len(value) <= longest else f"{value[: longest - 1]}…"
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in cut)


def clock(when: float) -> str:
    """`02:15:00 UTC`, of Unix seconds."""
    try:
        return datetime.fromtimestamp(when, UTC).strftime("%H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # a clock that was far off
        return f"{when:.0f} s"


def count(amount: float) -> str:
    """`1 234`: counts are estimates where not every lookup is recorded."""
    return f"{round(amount):,}".replace(",", " ") if isfinite(amount) else "?"


def percent(share: float) -> str:
    """`58 %`."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.1 or not share else f"{100 * share:.1f} %"


def pace(per_second: float) -> str:
    """`41 a second`, `3.0 a minute`."""
    number, unit = (per_second, "second") if per_second >= 1 else (60 * per_second, "minute")
    return f"{number:.0f} a {unit}" if number >= 10 else f"{number:.1f} a {unit}"


def ago(seconds: float) -> str:
    """`3.2 s`, `12 min`, `5.0 h`."""
    for unit, length, most in (("ms", 0.001, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", 3600.0, 172_800.0)):
        if seconds < most:
            return f"{seconds / length:.1f} {unit}" if seconds / length < 10 else f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.1f} days"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    shown = [named(name) for name in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else ""


def several(details: Sequence[str], most: int = 2) -> str:
    """` (a; b; …)`: different ones, each once; empty where there are none."""
    known = list(dict.fromkeys(detail for detail in details if detail))
    shown = [named(one) for one in known[:most]] + ["…"] * (len(known) > most)
    return f" ({'; '.join(shown)})" if known else ""


def place(where: Where) -> str:
    """`instance encoder-2, route /search`; `everywhere` where nothing is special."""
    return ", ".join(f"{axis} {listed([said] if isinstance(said, str) else said)}" for axis, said in where.items()) or (
        "everywhere"
    )
