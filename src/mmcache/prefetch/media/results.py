"""What models answer, made plain: an encoder of the user's may give what it likes; what makes no sense is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mmcache.model.errors import InvalidInputError
from mmcache.prefetch.media.task import Box

MOST_REGIONS = 256
"""Regions that are read of one frame."""


def boxes(found: Any, size: tuple[int, int]) -> list[Box]:
    """x, y, width, height within a picture of `size`. Raises `InvalidInputError` for what are no boxes."""
    width, height = size
    kept: dict[Box, None] = {}
    for x, y, w, h in _rows(found, 4, "boxes: x, y, width, height"):
        left, upper = max(0, x), max(0, y)
        right, lower = min(width, x + w), min(height, y + h)
        if right > left and lower > upper:
            kept[left, upper, right - left, lower - upper] = None
    return list(kept)[:MOST_REGIONS]


def spans(found: Any, samples_ms: int) -> list[tuple[int, int]]:
    """Start and end in ms, in order and apart, within the sound. Raises `InvalidInputError` for what are no spans."""
    kept: list[tuple[int, int]] = []
    for start, end in sorted(_rows(found, 2, "spans: start, end in ms")):
        start, end = max(0, start, kept[-1][1] if kept else 0), min(end, samples_ms)
        if end > start:
            kept.append((start, end))
    return kept


def words(found: Any) -> tuple[str, float]:
    """Text and score (1 where there is none). Raises `InvalidInputError` for what is no text."""
    if isinstance(found, Mapping):
        text, score = found.get("text"), found.get("score", 1.0)
    else:
        text, score = found, 1.0
    if not isinstance(text, str) or isinstance(score, bool) or not isinstance(score, int | float | np.floating):
        raise InvalidInputError(f'a str or {{"text": …, "score": …}} is meant, not {type(found).__name__}')
    return text.strip(), min(1.0, max(0.0, float(score)))


def nbytes(value: Any) -> int:
    """Bytes that a result holds, about."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, str):
        return len(value.encode(errors="replace"))
    if isinstance(value, Mapping):
        return sum(nbytes(one) for one in value.values())
    if isinstance(value, list | tuple):
        return sum(map(nbytes, value))
    return 8


def _rows(found: Any, columns: int, what: str) -> list[list[int]]:
    try:
        array = np.asarray(found, np.float64).reshape(-1, columns)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"an array of {what} is meant, not {type(found).__name__}") from error
    if not np.isfinite(array).all() or (np.abs(array) > 1 << 40).any():
        raise InvalidInputError(f"an array of {what} is meant, not one with infinities")
    rows: list[list[int]] = np.rint(array).astype(np.int64).tolist()
    return rows
