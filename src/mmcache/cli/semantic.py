"""`mmcache semantic`: how wrong are the answers that were stored for other prompts?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from cyclopts import App

from mmcache.cli.folder import require
from mmcache.cli.output import DEFAULT_FOLDER, Exit, Folder, complain, grid, show

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.semantic.report import PopulationReport

app = App(name="semantic", help="Answers that were stored for other prompts: how many, and how wrong.")


@app.command
def report(*, folder: Folder = DEFAULT_FOLDER) -> int:
    """Show hits, and the wrong hits that checks found, with their interval: by tenant, model and kind of prompt.

    Exit code 1 when the interval of one lies above what was allowed.

    Example: mmcache semantic report --root ~/.cache/mmcache
    """
    from mmcache.semantic.ledger import FILE, Ledger
    from mmcache.semantic.report import report as made

    require(folder)
    if not (folder.path / FILE).is_file():
        complain(f"nothing was ever asked in {folder.path}: Cache(…, semantic=Semantic(max_error=0.01)), cache.ask(…)")
        show(folder, [], lambda: grid(f"{folder.path}: nothing was asked", (), ()))
        return Exit.NO
    ledger = Ledger(folder.path)
    try:
        found = made(ledger)
    finally:
        ledger.close()
    rows = [asdict(one) | {"hit_ratio": one.hit_ratio, "wrong_ratio": one.wrong_ratio, "interval": one.interval,
                           "kept": one.kept} for one in found]  # fmt: skip
    show(folder, rows, lambda: _view(str(folder.path), found))
    return Exit.DONE if all(one.kept for one in found) else Exit.NO


def _view(root: str, found: list[PopulationReport]) -> RenderableType:
    lines = [
        (
            one.tenant,
            one.model,
            one.kind,
            one.asked,
            _share(one.exact, one.asked),
            _share(one.near, one.asked),
            f"{one.wrong} of {one.checked}",
            "–" if not one.checked else f"{100 * one.interval[0]:.2f}–{100 * one.interval[1]:.2f} %",
            f"≤ {100 * one.max_error:g} %",
            "yes" if one.kept else "NO",
            one.judge,
            one.state,
        )
        for one in found
    ]
    columns = (
        "tenant", "model", "kind", "asked", "exact hits", "near hits", "wrong when checked", "interval", "promised",
        "kept", "judge", "now",
    )  # fmt: skip
    return grid(f"{root}: hits, and wrong ones among those near hits that were checked", columns, lines)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"
