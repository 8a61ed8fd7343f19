"""Amounts as Kubernetes writes them: `512Mi`, `2G`, `1e9`, `1500m`."""

from __future__ import annotations

import re
from decimal import ROUND_UP, Decimal

from mmcache.model.errors import SettingsError

PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][0-9]{1,2})?$"
_DECIMALS = r"(\.[0-9]{1,9})?"
MEMORY_PATTERN = (
    f"^([0-9]{{1,14}}{_DECIMALS}|[0-9]{{1,17}}{_DECIMALS}m|[0-9]{{1,11}}{_DECIMALS}(k|Ki)|[0-9]{{1,8}}{_DECIMALS}(M|Mi)|"
    f"[0-9]{{1,5}}{_DECIMALS}(G|Gi|[eE][0-9])|[0-9]{{1,2}}{_DECIMALS}(T|Ti|[eE]1[0-2]))$"
)
"""Of those, no more than 100 TiB, as near as a pattern comes to the limit of a node's memory."""
_MOST_LETTERS = 32
_UNITS = {"": Decimal(1), "m": Decimal("0.001")}
_UNITS |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)}
_UNITS |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_WRITTEN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:[eE]([0-9]{1,2})|([a-zA-Z]*))")


def parse(written: object) -> int:
    """Whole units, rounded up as Kubernetes does. Raises `SettingsError`."""
    text = str(written) if isinstance(written, int | str) and not isinstance(written, bool) else ""
    if len(text) > _MOST_LETTERS or not re.match(PATTERN, text) or (found := _WRITTEN.fullmatch(text)) is None:
        raise SettingsError(f"{written!r:.60} is no amount: write it like 512Mi or 2Gi")
    number, power, unit = found.groups()
    return int((Decimal(number) * (Decimal(10) ** int(power or 0)) * _UNITS[unit or ""]).to_integral_value(ROUND_UP))


def write(amount: int) -> str:
    """In the largest unit of 1024 that is exact."""
    for power, letter in reversed(list(enumerate("KMGT", 1))):
        if amount and amount % 1024**power == 0:
            return f"{amount // 1024**power}{letter}i"
    return str(amount)
