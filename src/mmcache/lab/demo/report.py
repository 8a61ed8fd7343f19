"""The outcome as one HTML file: no script, no font, no picture from elsewhere; light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from mmcache.lab.demo import visited
from mmcache.lab.demo.outcome import Outcome
from mmcache.lab.demo.records import Pass
from mmcache.lab.demo.svg import Part, bars, distribution, running_total, stacked
from mmcache.lab.demo.words import size, time
from mmcache.lab.measure import machine
from mmcache.lab.table import percentile

STYLES = {"no cache": "none", "first": "first", "restarted": "again"}


def html(outcome: Outcome) -> str:
    """The whole page."""
    plain, first, restarted = outcome.trio.values()
    count = len(outcome.manifest.asks)
    page = Template(files("mmcache.lab.demo").joinpath("report.html").read_text(encoding="utf-8"))
    series = [(name, STYLES[name], outcome.latencies(which)) for name, which in outcome.trio.items()]
    return page.substitute(
        headline=f"After a restart, {count:,} requests took {time(restarted.wall_seconds)}"
        f" instead of {time(first.wall_seconds)}",
        summary=(
            f"Without a cache they took {time(plain.wall_seconds)}. Real encoders on real pictures, texts and speech; "
            "how often each was asked for is synthetic."
            f"{' This was a quick run on a small stream.' if outcome.manifest.quick else ''}"
        ),
        tiles=_tiles(outcome),
        requests=f"{count:,}",
        walls=bars("Seconds by process", [_wall(name, which) for name, which in outcome.trio.items()]),
        totals=running_total("Seconds spent over requests", series),
        latencies=distribution("Share of requests over latency", series),
        latency_table=_latency_table(outcome),
        kinds=_kinds(outcome),
        modality_table=_modality_table(outcome),
        equality=_equality(outcome),
        int4_table=_int4_table(outcome),
        bytes_table=_bytes_table(outcome),
        visits=visited.section(outcome),
        provenance="".join(
            f"<li>{kind}: {escape(line)}</li>"
            for kind, lines in (("Real", (*outcome.real, machine())), ("Simulated", outcome.simulated))
            for line in lines
        ),
    )


STANDALONE = (
    "<style>text{font:13px system-ui,sans-serif;fill:#6b6a66}.tick{font-size:12px;fill:#898781}"
    ".grid{stroke:#89878155}.line{fill:none;stroke-width:2}.line.none{stroke:#a3a19a}.line.first{stroke:#eb6834}"
    ".line.again{stroke:#2a78d6}.dot.none{fill:#a3a19a}.dot.first{fill:#eb6834}.dot.again{fill:#2a78d6}.value{font-weight:600}rect.none{fill:#a3a19a}rect.again{fill:#2a78d6}rect.first{fill:#eb6834}"
    "rect.part{fill:#eda100}</style>"
)
"""Mid-tones that read on light and dark pages alike: the figure may stand in either."""


def figure(outcome: Outcome) -> str:
    """The seconds spent over the requests, and a visit with and without a prefetcher, as an SVG file of its own."""
    drawn = running_total(
        "Seconds spent over requests: without a cache, with an empty one, after a restart",
        [(name, STYLES[name], outcome.latencies(which)) for name, which in outcome.trio.items()],
    )
    if outcome.passes.visited is not None:
        drawn = stacked("The demo", [drawn, visited.waits(outcome.passes.visited)])
    head, body = drawn.split(">", 1)
    return f"{head}>{STANDALONE}{body}\n"


def write(outcome: Outcome, folder: Path) -> Path:
    """`folder/index.html`; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "index.html"
    path.write_text(html(outcome), encoding="utf-8")
    return path


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table; cells are escaped."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _tiles(outcome: Outcome) -> str:
    first, lossy = outcome.passes.first, outcome.passes.lossy
    blocks, computed = (sum(getattr(r, name) for r in first.records) for name in ("blocks", "computed"))
    equal = ("bit-equal", "good") if not outcome.unequal else (f"{outcome.unequal} differ", "bad")
    tiles = [
        (f"{outcome.restart_speedup:.1f} ×", "faster after a restart, the first request included", ""),
        (equal[0], "outputs with and without the cache", equal[1]),
        (f"{100 * (1 - computed / blocks):.0f} %", "of the encoder's work saved in the first process", ""),
        (f"{200 * lossy.stored_bytes / lossy.exact_bytes:.0f} %", "of float16 bytes when stored as int4", ""),
    ]
    return "".join(
        f'<div class="tile"><b class="{style}">{escape(value)}</b><span>{escape(label)}</span></div>'
        for value, label, style in tiles
    )


def _wall(name: str, which: Pass) -> tuple[str, list[Part], str]:
    rest = max(0.0, which.wall_seconds - which.encoder_seconds - which.load_seconds)
    parts = [
        Part(which.encoder_seconds, "first", f"inside the models: {time(which.encoder_seconds)}"),
        Part(which.load_seconds, "part", f"loading weights: {time(which.load_seconds)}"),
        Part(rest, "rest", f"all else: {time(rest)}"),
    ]
    return name, parts, time(which.wall_seconds)


def _latency_table(outcome: Outcome) -> str:
    rows = []
    for name, which in outcome.trio.items():
        seconds = outcome.latencies(which)
        shares = [time(percentile(seconds, share)) for share in (0.5, 0.9, 0.99)]
        rows.append((name, *shares, time(seconds[0]), time(which.encoder_seconds)))
    return table(("process", "p50", "p90", "p99", "first request", "inside models"), rows)


def _kinds(outcome: Outcome) -> str:
    rows = []
    for name, share in outcome.by_kind(outcome.passes.first).items():
        miss = share.asked - share.hit - share.part
        parts = [
            Part(share.hit / share.asked, "again", f"{share.hit} hit"),
            Part(share.part / share.asked, "part", f"{share.part} partly computed"),
            Part(miss / share.asked, "rest", f"{miss} computed"),
        ]
        rows.append((name, parts, f"{share.hit} / {share.asked}"))
    return bars("Hits by kind of request", rows)


def _modality_table(outcome: Outcome) -> str:
    rows = []
    for process, which in list(outcome.trio.items())[1:]:
        for name, share in outcome.by_modality(which).items():
            counts = (f"{count:,}" for count in (share.asked, share.blocks, share.computed))
            rows.append((f"{name}, {process}", *counts, f"{100 * share.ratio:.1f} %"))
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(which.miss_reasons.items())) or "none"
        rows.append((f"misses by reason, {process}: {reasons}", "", "", f"{which.misses:,}", ""))
    return table(("", "requests", "blocks", "computed", "hit ratio"), rows)


def _equality(outcome: Outcome) -> str:
    count = 2 * len(outcome.manifest.asks)
    if outcome.unequal:
        return f"{outcome.unequal:,} of {count:,} cached outputs differ from the output without a cache."
    return (
        f"All {count:,} outputs of both cached processes have the dtype, the shape and every bit of the output without "
        "a cache: the lossless chain changes nothing, and no request got another one's features. Texts are brought to "
        "Unicode NFC in all processes, since that is what the key describes. int4 is lossy; its bound is half a "
        "quantisation step of the channel, plus rounding."
    )


def _int4_table(outcome: Outcome) -> str:
    lossy = outcome.passes.lossy
    return table(
        ("int4, read back by a new cache", ""),
        [
            ("pictures", f"{lossy.pictures}"),
            ("largest error of any element", f"{lossy.largest_error:.4g}"),
            ("largest error as a share of its bound", f"{lossy.largest_share:.3f}"),
            ("mean cosine of tokens to the exact ones", f"{lossy.mean_cosine:.5f}"),
            ("stored bytes, against float32", f"{size(lossy.stored_bytes)} / {size(lossy.exact_bytes)}"),
        ],
    )


def _bytes_table(outcome: Outcome) -> str:
    rows = []
    for name, which in outcome.trio.items():
        handed = sum(record.nbytes for record in which.records)
        rows.append((name, size(handed), size(which.stored_bytes) if which.stored_bytes else "–"))
    return table(("process", "features handed out", "on disk"), rows)
