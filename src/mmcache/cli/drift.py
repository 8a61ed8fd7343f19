"""`mmcache drift`: whether the features that keys and near hits are made of have moved."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from cyclopts import App

from mmcache.cli.folder import require
from mmcache.cli.output import DEFAULT_FOLDER, Exit, Folder, grid, show

if TYPE_CHECKING:
    from rich.console import RenderableType

app = App(name="drift", help="Whether the features that keys and near hits are made of have moved.")

DAY_SECONDS = 86_400.0


@app.command
def status(*, folder: Folder = DEFAULT_FOLDER) -> int:
    """Show, per modality and process: samples, KL(now ‖ baseline), its threshold, since when it is passed, alarms.

    Exit code 1 when one has drifted. Fed by programs whose `Cache` watches its embeddings.

    Example: mmcache drift status --root ~/.cache/mmcache
    """
    from mmcache.keys.drift.watch import saved

    require(folder)
    rows: list[dict[str, Any]] = []
    for monitor, when in saved(folder.path):
        for one in monitor.status().values():
            alarms = [msgspec.to_builtins(alarm) for alarm in one.alarms]
            rows.append(asdict(one) | {"alarms": alarms, "saved": when})
    rows.sort(key=lambda row: (row["stream"], -row["saved"]))
    show(folder, rows, lambda: _view(str(folder.path), rows))
    return Exit.NO if any(row["state"] == "drifted" for row in rows) else Exit.DONE


def _view(root: str, rows: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group

    if not rows:
        return grid(f"{root}: nothing watches features here", (), ())
    lines = [
        (
            f"{row['stream']} ({row['tag'][:8]})" if row["tag"] else row["stream"],
            row["state"] if row["state"] != "learning" else f"learning {row['learned']} of {row['wanted']}",
            row["samples"],
            f"{row['divergence']:.4f}" if row["threshold"] else "–",
            f"{row['threshold']:.4f}" if row["threshold"] else "–",
            _when(row["since"]) if row["since"] is not None else "–",
            row["raised"],
            _when(row["saved"]),
        )
        for row in rows
    ]
    columns = "modality", "state", "samples", "KL now", "threshold", "drifted since", "alarms", "as of"
    parts: list[RenderableType] = [grid(f"{root}: drift", columns, lines)]
    latest = [alarm for row in rows for alarm in row["alarms"]]
    if latest:
        latest.sort(key=lambda alarm: -float(alarm["when"]))
        told = [
            (
                _when(alarm["when"]), alarm["stream"], f"{alarm['divergence']:.4f}", f"{alarm['threshold']:.4f}",
                "all" if alarm["projection"] < 0 else alarm["projection"], f"{alarm['shift']:+.2f} σ", alarm["window"],
            )
            for alarm in latest[:10]
        ]  # fmt: skip
        heads = "raised", "modality", "KL", "threshold", "projection", "mean moved", "window"
        parts.append(grid("Latest alarms", heads, told))
    short = sorted({r["stream"] for r in rows if r["threshold"] and r["baseline_seconds"] < DAY_SECONDS})
    if short:
        parts.append(
            grid(f"baselines shorter than a day, so other hours may look like drift: {', '.join(short)}", (), ())
        )
    return Group(*parts)


def _when(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%MZ")
    except (OverflowError, ValueError, OSError):  # a clock that was far off
        return f"{seconds} s"
