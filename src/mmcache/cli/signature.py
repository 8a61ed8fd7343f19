"""`mmcache signature`: let a share of the tenants try a new version of a model, then switch everybody, or nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mmcache.cli.folder import disk_tier, forget_everywhere, require
from mmcache.cli.output import DEFAULT_FOLDER, Exit, Folder, complain, facts, grid, show, size
from mmcache.model.errors import RolloutError, SettingsError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.rollout.board import Board
    from mmcache.rollout.report import Report
    from mmcache.rollout.state import State

app = App(name="signature", help="Try a new version of a model on a share of the tenants, then switch, or go back.")

Purge = Annotated[
    bool, Parameter(negative="", show_default=False, help="Also remove the blocks of the version that lost.")
]
Revision = Annotated[
    int | None, Parameter(help="Only if the rollout is still at this revision, as `signature status` showed it.")
]


@Parameter(name="*")
@dataclass(frozen=True)
class Which:
    """Which rollout, and whether its state is on a server."""

    name: Annotated[
        str | None, Parameter(help="The rollout, as in `cache.rollout(NAME, …)`. Not needed where there is only one.")
    ] = None
    shared: Annotated[
        str | None,
        Parameter(help="The shared tier, `valkey://host:6379`, for caches that have one; instead of --root."),
    ] = None


ONLY = Which()


@app.command
def canary(
    version: str,
    *,
    percent: Annotated[float, Parameter(help="Share of the tenants that get it, 0 to 100.")] = 5.0,
    revision: Revision = None,
    which: Which = ONLY,
    folder: Folder = DEFAULT_FOLDER,
) -> int:
    """Let a share of the tenants try VERSION; again with another share, or to resume after a hold.

    A tenant that is in at 5 % is in at 10 %. Running programs follow within a second.

    Example: mmcache signature canary v2 --percent 5 --name clip
    """
    with _board(folder, which) as board:
        name = _chosen(board, which)
        state = board.canary(name, version, percent, revision=revision)
        report = board.report(name)
    if version not in report.models:
        complain(f"no program has said yet that it has {version}; those that lack it stay on {state.stable}")
    return _switched(folder, name, state, f"{name}: {version} gets {percent:g} % of the tenants")


@app.command
def promote(
    *,
    force: Annotated[bool, Parameter(negative="", show_default=False, help="Even though it is on hold.")] = False,
    purge: Purge = False,
    revision: Revision = None,
    which: Which = ONLY,
    folder: Folder = DEFAULT_FOLDER,
) -> int:
    """Make the version that is being tried the stable one, for every process at once.

    The blocks of the old version stay until they age out, so that `rollback` finds them; `--purge` removes them.

    Example: mmcache signature promote --name clip
    """
    with _board(folder, which) as board:
        name = _chosen(board, which)
        state = board.promote(name, force=force, revision=revision)
        report = board.report(name)
    title = f"{name}: {state.stable} is stable now, instead of {state.previous}"
    return _switched(
        folder, name, state, title, _purged(folder, which, report, state.previous, state.stable) if purge else None
    )


@app.command
def rollback(
    *, purge: Purge = False, revision: Revision = None, which: Which = ONLY, folder: Folder = DEFAULT_FOLDER
) -> int:
    """End the version that is being tried; with none, return to what was stable before the last promotion.

    Example: mmcache signature rollback --name clip
    """
    with _board(folder, which) as board:
        name = _chosen(board, which)
        before = board.state(name)
        state = board.rollback(name, revision=before.revision if revision is None else revision)
        report = board.report(name)
    loser = before.candidate or before.stable
    title = f"{name}: {state.stable} is stable, {loser} gets nothing any more"
    return _switched(folder, name, state, title, _purged(folder, which, report, loser, state.stable) if purge else None)


@app.command
def status(*, which: Which = ONLY, folder: Folder = DEFAULT_FOLDER) -> int:
    """Show each rollout: what is stable, what is being tried, how far the two agree.

    Exit code 1 when one is on hold, or programs lack a version.

    Example: mmcache signature status --json
    """
    with _board(folder, which) as board:
        names = board.names() if which.name is None else [which.name]
        found = [(name, board.state(name), board.report(name)) for name in names]
    rows = [_row(name, state, report) for name, state, report in found]
    show(folder, rows, lambda: _view(str(folder.path) if which.shared is None else "shared tier", rows))
    return Exit.NO if any(row["hold"] or (row["candidate"] and row["counts"]["unknown"]) for row in rows) else Exit.DONE


@contextmanager
def _board(folder: Folder, which: Which) -> Iterator[Board]:
    from mmcache.rollout.board import Board
    from mmcache.rollout.files import FileRecords

    if which.shared is None:
        require(folder)
        yield Board(FileRecords(folder.path))
        return
    if folder.root is not None:
        raise SettingsError("give --root or --shared, not both: a cache that has a shared tier keeps the state there")
    from mmcache.model.clock import SystemClock
    from mmcache.rollout.server import ServerRecords
    from mmcache.settings import SharedSettings
    from mmcache.tiers.valkey.address import Address
    from mmcache.tiers.valkey.client import Client

    settings = SharedSettings(which.shared)
    client = Client(settings, clock=SystemClock())
    try:
        yield Board(ServerRecords(client, Address.parse(settings).prefix))
    finally:
        client.close()


def _chosen(board: Board, which: Which) -> str:
    if which.name is not None:
        return which.name
    names = board.names()
    if len(names) == 1:
        return names[0]
    if not names:
        raise RolloutError("there is no rollout here; a program makes it, cache.rollout('clip', …)")
    raise SettingsError(f"which one? --name {', --name '.join(names)}")


def _purged(folder: Folder, which: Which, report: Report, loser: str, winner: str) -> dict[str, int]:
    """Remove the loser's blocks: by its model, which must not be the winner's too."""
    if which.shared is not None:
        complain("--purge works on a folder; blocks of the shared tier end by their deadlines, or are evicted")
        return {"blocks": 0, "bytes": 0}
    model = report.models.get(loser)
    if model is None or model == report.models.get(winner):
        complain(f"the blocks of {loser} cannot be told from those of {winner} by their model: nothing was removed")
        return {"blocks": 0, "bytes": 0}
    with disk_tier(folder) as tier:
        blocks, freed = tier.erase(lambda held: held.model == model)
    forget_everywhere(folder)
    return {"blocks": blocks, "bytes": freed}


def _switched(folder: Folder, name: str, state: State, title: str, purged: dict[str, int] | None = None) -> int:
    data: dict[str, Any] = {"name": name, "revision": state.revision, "stable": state.stable,
                            "candidate": state.candidate, "percent": state.percent}  # fmt: skip
    lines: dict[str, object] = {"revision": state.revision}
    if purged is not None:
        data["purged"] = purged
        lines |= {"blocks removed": purged["blocks"], "bytes removed": size(purged["bytes"])}
    show(folder, data, lambda: facts(title, lines))
    return Exit.DONE


def _row(name: str, state: State, report: Report) -> dict[str, Any]:
    import msgspec

    counts = report.of(state) if state.candidate else report.counts
    return {
        "name": name,
        **{field: getattr(state, field) for field in
           ("revision", "stable", "previous", "candidate", "percent", "hold", "changed")},
        "counts": msgspec.structs.asdict(counts) | {"mean": counts.mean},
        "versions": report.models,
    }  # fmt: skip


def _view(root: str, rows: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group

    if not rows:
        return grid(f"{root}: no rollouts", (), ())
    return Group(*(facts(f"{root}: {row['name']}", _lines(row)) for row in rows))


def _lines(row: dict[str, Any]) -> dict[str, object]:
    counts, stable, candidate = row["counts"], row["stable"], row["candidate"]
    lines: dict[str, object] = {"stable": stable}
    if row["previous"]:
        lines["before it"] = row["previous"]
    if candidate:
        lines["tried"] = f"{candidate}, on hold: {row['hold']}" if row["hold"] else f"{candidate}, {row['percent']:g} %"
    if counts["unknown"] and candidate:
        lines["not deployed"] = f"{counts['unknown']} calls of programs that lack {candidate} stayed on {stable}"
    if calls := counts["candidate"] + counts["stable"] + counts["failed"]:
        lines["its calls" if candidate else "last trial"] = (
            f"{counts['candidate']} of {calls}, {counts['failed']} failed"
        )
    if counts["mean"] is not None:
        odd = f", {counts['differed']} could not be compared" if counts["differed"] else ""
        lines["agreement"] = f"{counts['mean']:.4f}, worst {counts['lowest']:.4f}, of {counts['compared']} calls{odd}"
    when = datetime.fromtimestamp(row["changed"], UTC).strftime("%Y-%m-%d %H:%MZ")
    return lines | {"revision": f"{row['revision']}, {when}"}
