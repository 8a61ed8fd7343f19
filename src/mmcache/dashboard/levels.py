"""What the tiers held and evicted, from metrics."""

from __future__ import annotations

from typing import Any

import msgspec

from mmcache.dashboard.asking import Question
from mmcache.dashboard.counting import View, step_of

_GAUGES = {"mmcache.tier.used": "used", "mmcache.tier.limit": "limit", "mmcache.tier.blocks": "blocks"}
_EVICTIONS = "mmcache.evictions"
BEFORE = 900
"""Seconds before a window, in which a gauge's or a counter's last value still counts."""


def tiers(view: View, asked: Question, points: int) -> dict[str, Any]:
    """Of each process and tier: bytes and blocks at the end of each step, evictions during it."""
    step = max(step_of(asked.window.seconds, points), 10)
    start, end = int(asked.window.start // step) * step, int(-(-asked.window.end // step)) * step
    slots = (end - start) // step
    rows = view.cursor.execute(
        "SELECT s.name, s.service, s.instance, s.labels, p.series,"
        " CAST(floor((p.start - $1)::DOUBLE / $2) AS BIGINT) AS slot,"
        " arg_max(p.value, p.start), arg_min(p.value, p.start)"
        " FROM points p JOIN series s ON p.series = s.id WHERE p.start >= $3 AND p.start < $4"
        " AND s.name IN ('mmcache.tier.used', 'mmcache.tier.limit', 'mmcache.tier.blocks', 'mmcache.evictions')"
        " GROUP BY ALL ORDER BY p.series, slot",
        [start, step, start - BEFORE, end],
    ).fetchall()
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    state: dict[int, tuple[int, float]] = {}
    for name, service, instance, labels, series, slot, last, first in rows:
        if not _wanted(asked, service, instance):
            continue
        tier = str(msgspec.json.decode(labels).get("tier", ""))
        told = found.setdefault(
            (service, instance, tier),
            {"service": service, "instance": instance, "tier": tier, "used": [None] * slots, "limit": None,
             "blocks": [None] * slots, "evictions": [0.0] * slots},
        )  # fmt: skip
        since, before = state.get(series, (slot, first))
        state[series] = (slot, last)
        if name == _EVICTIONS:
            if slot >= 0:
                told["evictions"][slot] += last - before if last >= before else last
            continue
        column = _GAUGES[name]
        if column == "limit":
            told["limit"] = last
            continue
        for at in range(max(since + 1, 0), max(slot, 0)):  # nothing was said: as before
            told[column][at] = before
        if slot >= 0:
            told[column][slot] = last
    return {
        "step": step,
        "t": [start + at * step for at in range(slots)],
        "tiers": [found[name] for name in sorted(found)],
    }


def _wanted(asked: Question, service: str, instance: str) -> bool:
    given = asked.filters
    return service in given.get("service", (service,)) and instance in given.get("instance", (instance,))
