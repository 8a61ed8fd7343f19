"""`mmcache prefetch`: what the prefetchers of a folder's processes do, and whether it pays."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from cyclopts import App

from mmcache.cli.folder import require
from mmcache.cli.output import DEFAULT_FOLDER, Exit, Folder, complain, facts, grid, show, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.prefetch.status import Published

app = App(name="prefetch", help="What is brought before it is asked for, and whether it pays.")

SHOWN_MOVES = 8


@app.command
def status(*, folder: Folder = DEFAULT_FOLDER) -> int:
    """Show, per process with `Cache(prefetch="behaviour")`: what it does and why, what it brought and what was used.

    Exit code 1 when no process that runs prefetches here.

    Example: mmcache prefetch status --root ~/.cache/mmcache
    """
    from mmcache.prefetch.status import seen

    require(folder)
    found = seen(folder.path)
    show(folder, [msgspec.to_builtins(one) for one in found], lambda: _view(str(folder.path), found))
    if not found:
        complain(f'no process prefetches at {folder.path}: Cache("{folder.path}", prefetch="behaviour")')
    return Exit.DONE if found else Exit.NO


def _view(root: str, found: list[Published]) -> RenderableType:
    from rich.console import Group

    if not found:
        return grid(f"{root}: nobody prefetches", (), ())
    return Group(*(part for one in found for part in _process(one)))


def _process(one: Published) -> list[RenderableType]:
    now = one.status
    used = f"{now.used} of {now.used + now.wasted}"
    if now.share_used is not None:
        used += f", {now.share_used:.0%} ({now.share_low:.0%} to {now.share_high:.0%})"
    trust = f"{now.trust}, {now.paused_seconds:.0f} s left" if now.paused_seconds else now.trust
    if now.share_foreseen is not None:
        trust += f"; {now.share_foreseen:.0%} of the last were used by whom they were brought for"
    lines = {
        "state": f"{now.state} ({now.reason}) since {_when(now.since)}",
        "does it pay": trust,
        "brought": f"{now.promoted} from lower tiers, {now.computed} computed, {size(now.bytes)}",
        "used": used,
        "failed, cancelled": f"{now.failed}, {now.cancelled}" + (f" ({now.last_failure})" if now.last_failure else ""),
        "seconds saved": f"{now.seconds_saved:.1f}",
        "seconds spent": f"{now.seconds_spent:.1f}",
        "budget left": f"{size(max(0, int(now.bytes_left)))}, {max(0.0, now.computations_left):.0f} computations",
        "queued, under way": f"{now.queued}, {now.under_way}",
        "knows": f"{now.sessions} sessions, {now.nodes} keys, {now.edges} edges, {now.visits} visits ({now.lost} lost)",
        "can compute again": f"{now.remembered}, {size(now.remembered_bytes)}",
    }
    moves = [(_when(move.at), f"{move.was} to {move.state}", move.reason) for move in reversed(now.moves)]
    return [
        facts(f"process {one.pid} on {one.host}, as of {_when(one.at)}", lines),
        grid("last transitions", ("at", "from, to", "reason"), moves[:SHOWN_MOVES]),
    ]


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
