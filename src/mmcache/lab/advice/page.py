"""A study as one page: Markdown, or HTML with its curves, that needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from mmcache.lab.advice.inquiry import Study
from mmcache.lab.advice.words import Grid, config, grids, headline, sentences

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#222;"
    "background:#fff}table{border-collapse:collapse;margin:.5rem 0 1.5rem}td,th{padding:.2rem .8rem;text-align:right;"
    "border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}pre{background:#f4f4f2;padding:1rem;"
    "overflow-x:auto}.scroll{overflow-x:auto}svg{max-width:100%;height:auto;background:#fff}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#444}pre{background:#262626}}"
)


def markdown(study: Study) -> str:
    """The page as Markdown; `*` marks what is recommended."""
    lines = [f"# Advice for {_plain(study.name)}", "", f"**Advised: {headline(study)}.**", ""]
    lines += [f"{_plain(line)}\n" for line in sentences(study)]
    for grid in grids(study):
        lines += [f"## {grid.title}", "", _bars(grid.columns), "|" + "---|" * len(grid.columns)]
        lines += [_bars(row) for row in grid.rows]
        lines.append("")
    return "\n".join([*lines, "## mmcache.toml", "", "```toml", config(study).rstrip("\n"), "```", ""])


def _bars(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Text from a log that must not be read as mark-up."""
    single = " ".join(text.split())
    return single.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def html(study: Study, curves: str) -> str:
    """The page as HTML. `curves`: an `<svg>` element."""
    body = [f"<h1>Advice for {escape(study.name)}</h1>", f"<p><strong>Advised: {escape(headline(study))}.</strong></p>"]
    body += [f"<p>{escape(line)}</p>" for line in sentences(study)]
    body.append(f'<div class="scroll">{curves}</div>')
    body += [_table(grid) for grid in grids(study)]
    body.append(f"<h2>mmcache.toml</h2><pre>{escape(config(study))}</pre>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Advice for {escape(study.name)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _table(grid: Grid) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in grid.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in grid.rows)
    return f'<h2>{escape(grid.title)}</h2><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'
