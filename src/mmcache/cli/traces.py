"""`mmcache explain TRACE`: why a request that used to hit now misses, component by component."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mmcache.cli.output import Exit, Speak, complain, grid, show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.keys.drift.culprit import Comparison

_LONG = 40


def explain_trace(path: Path, speak: Speak) -> int:
    """Compare the last miss in `path` with the latest earlier hit of the same source."""
    from mmcache.keys.drift.culprit import compare
    from mmcache.keys.drift.trace import read_traces

    traces = read_traces(path)
    found = compare(traces)
    hits = sum(trace.hit for trace in traces)
    data = {"requests": len(traces), "hits": hits} | ({} if found is None else found.to_dict())
    if found is None:
        complain(f"none of the {len(traces) - hits} misses has an earlier hit of the same source in {path}")
        show(speak, data, lambda: grid(f"{path}: {len(traces)} requests, {hits} hits", (), ()))
        return Exit.NO
    show(speak, data, lambda: _view(path, found))
    return Exit.DONE


def _view(path: Path, found: Comparison) -> RenderableType:
    rows = []
    for change in found.changes:
        state = "same"
        if change.changed:
            state = "CHANGED" if change.component in found.culprits else "changed with it"
        what = f"{_short(change.before)} → {_short(change.now)}" if change.changed else _short(change.now)
        rows.append((change.component, state, what))
    title = f"{path}: source {_short(found.miss.source)} was a {found.hit.outcome}, now a {found.miss.outcome}.\n"
    return grid(title + found.told, ("component", "", "value"), rows)


def _short(value: str) -> str:
    return "(none)" if not value else value if len(value) <= _LONG else f"{value[: _LONG - 1]}…"
