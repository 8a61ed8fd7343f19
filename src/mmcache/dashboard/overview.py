"""What the page's charts ask: ratio by an axis, reasons, what was saved, hottest keys, tiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmcache.dashboard.asking import Question, WrongQuestionError
from mmcache.dashboard.counting import Counts, View, counted
from mmcache.dashboard.rows import AXES, REASONS

SERIES = 12
OTHER = "other"


def ratio(view: View, asked: Question, by: str | None, points: int) -> dict[str, Any]:
    """Hits, misses and their ratio by step; of an axis' most frequent values apart."""
    if by is not None and by not in AXES:
        raise WrongQuestionError(f"by is one of {', '.join(AXES)}")
    counts = counted(view, asked, points)
    hit = counts.axis("hit") == 1
    series = [("all", np.ones(len(hit), bool))] if by is None else _named(view, counts, by)
    return {
        "step": counts.step,
        "t": counts.times,
        "series": [
            {"name": name, **_ratio(counts.by_slot("weight", rows & hit), counts.by_slot("weight", rows & ~hit))}
            for name, rows in series
        ],
    }


def _named(view: View, counts: Counts, by: str) -> list[tuple[str, NDArray[np.bool_]]]:
    words = counts.axis(by)
    totals = np.bincount(words, counts.cells["weight"]) if len(words) else np.empty(0)
    order = [int(word) for word in np.argsort(-totals, kind="stable") if totals[word] > 0]
    texts = view.known.words[by].texts
    shown = order if len(order) <= SERIES else order[: SERIES - 1]
    series = [(texts[word], words == word) for word in shown if texts[word] != OTHER]
    rest = ~np.isin(words, [word for word in shown if texts[word] != OTHER])
    return [*series, (OTHER, rest)] if rest.any() else series


def _ratio(hits: NDArray[np.float64], misses: NDArray[np.float64]) -> dict[str, Any]:
    total = hits + misses
    shares = [float(h / t) if t else None for h, t in zip(hits, total, strict=True)]
    return {"hits": numbers(hits), "misses": numbers(misses), "ratio": shares}


def reasons(view: View, asked: Question, points: int) -> dict[str, Any]:
    """Misses by reason and step. A reason that is none of the eleven counts as `other`, if there is one."""
    counts = counted(view, asked, points)
    miss, words = counts.axis("hit") == 0, counts.axis("reason")
    found = {}
    known = np.zeros(len(words), bool)
    for name in REASONS:
        rows = words == (number if (number := view.known.words["reason"].find(name)) is not None else -1)
        known |= rows
        found[name] = numbers(counts.by_slot("weight", rows & miss))
    if (rest := miss & ~known).any():
        found[OTHER] = numbers(counts.by_slot("weight", rest))
    return {"step": counts.step, "t": counts.times, "reasons": found}


def saved(view: View, asked: Question, points: int, per_hour: float | None, currency: str) -> dict[str, Any]:
    """Seconds of computing and bytes that hits saved; what those seconds would have cost."""
    counts = counted(view, asked, points, ("saved", "bytes"))
    hit = counts.axis("hit") == 1
    seconds, size = counts.by_slot("saved", hit), counts.by_slot("bytes", hit)
    total = float(seconds.sum())
    return {
        "step": counts.step,
        "t": counts.times,
        "seconds": numbers(seconds),
        "bytes": numbers(size),
        "total_seconds": round(total, 6),
        "total_bytes": float(size.sum()),
        "cost_avoided": None if per_hour is None else round(total / 3600 * per_hour, 6),
        "currency": currency,
        "per_hour": per_hour,
    }


def numbers(values: NDArray[np.float64]) -> list[float]:
    """As JSON has them."""
    found: list[float] = np.round(values, 6).tolist()
    return found
