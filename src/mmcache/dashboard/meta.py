"""What the store holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from mmcache.dashboard.counting import View
from mmcache.dashboard.dictionary import Facets

SHOWN = ("modality", "route", "tenant", "region", "strategy", "service", "instance", "reason")
MOST = 200
"""Values of an axis that are named."""


def meta(view: View, version: str, size: int, limit: int, otlp: str | None = None, views: int = 0) -> dict[str, Any]:
    """From when to when there are spans, how many, and which values the axes have.

    otlp: where spans and metrics arrive, if that is not where this is asked. views: processes that say their hot keys.
    """
    first, last, count = view.cursor.execute("SELECT min(start_us), max(start_us), count(*) FROM spans").fetchone()
    table = view.known.facets.table()
    table = table[table[:, 0] == 1]
    axes = {}
    for name in SHOWN:
        words = np.unique(table[:, Facets.COLUMNS.index(name)])[: MOST + 1]
        texts = view.known.words[name].texts
        axes[name] = sorted(texts[word] for word in words if word)[:MOST]
    return {
        "version": version,
        "from": None if first is None else first / 1e6,
        "to": None if last is None else last / 1e6,
        "spans": count,
        "views": views,
        "bytes": size,
        "limit_bytes": limit,
        "read_only": True,
        "otlp": otlp,
        "axes": axes,
    }
