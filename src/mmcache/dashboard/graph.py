"""The graph of hot keys: now, or as it was; of one process, or of all together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mmcache.dashboard.asking import Question
from mmcache.dashboard.counting import View
from mmcache.dashboard.graph_kept import Held, Process, Views, kept, moves
from mmcache.dashboard.graph_merge import Gone, merged


def graph(view: View, views: Views, asked: Question, now: float | None = None) -> dict[str, Any]:
    """As it was at the end of the window; of before that, the communities that have gone."""
    now = time.time() if now is None else now
    end = min(asked.window.end, now)
    there = views.latest(now) if asked.window.end > now else kept(view.cursor, end)
    shown = [one for one in there if _asked(asked, one.process)]
    gone = [
        Gone(process, at, move)
        for process, at, move in moves(view.cursor, asked.window.start, end)
        if _asked(asked, process)
    ]
    tenants, modalities = asked.filters.get("tenant"), asked.filters.get("modality")

    def wanted(tenant: str, modality: str) -> bool:
        return (tenants is None or tenant in tenants) and (modalities is None or modality in modalities)

    return {
        "at": max((one.came for one in shown), default=None),
        "instances": _instances(there, shown),
        "tracked_keys": sum(one.view.tracked_keys for one in shown),
        "tracked_edges": sum(one.view.tracked_edges for one in shown),
        **merged(shown, gone, None if tenants is None and modalities is None else wanted),
    }


def _asked(asked: Question, process: Process) -> bool:
    return all(
        name in asked.filters.get(axis, (name,)) for axis, name in zip(("service", "instance"), process, strict=True)
    )


def _instances(there: Sequence[Held], shown: Sequence[Held]) -> list[dict[str, Any]]:
    these = {one.process for one in shown}
    return [
        {
            "service": one.view.service,
            "instance": one.view.instance,
            "at": one.came,
            "keys": len(one.view.keys),
            "tracked_keys": one.view.tracked_keys,
            "tracked_edges": one.view.tracked_edges,
            "seconds": one.view.seconds,
            "shown": one.process in these,
        }
        for one in sorted(there, key=lambda one: one.process)
    ]
