"""The report's part on the scene with a prefetcher."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mmcache.lab.demo.outcome import Outcome
from mmcache.lab.demo.records import Step, Visited
from mmcache.lab.demo.svg import Part, bars
from mmcache.lab.demo.walked import by_page, waited, warm


def section(outcome: Outcome) -> str:
    """HTML; empty where the scene was not played."""
    visited, walks = outcome.passes.visited, outcome.manifest.walks
    if visited is None or walks is None:
        return ""
    saved = waited(visited.without) - waited(visited.foreseen)
    text = (
        f"{len(walks.earlier)} visitors walked pages of pictures, tour by tour; memory has room for the features of "
        f"{walks.held} pictures, a third, and there is no disk. Then somebody new walks the first tour, whose "
        f'features have gone, and reads {walks.reading_seconds:g} s a page. With prefetch="behaviour" the cache '
        f"computes the next pages meanwhile, as others went: {warm(visited.foreseen)} of {len(visited.foreseen)} "
        f"lookups were warm instead of {warm(visited.without)}, and {_seconds(saved)} of waiting were saved. It "
        f"brought {visited.brought} blocks, of which {visited.used} were asked for; computing them took "
        f"{_seconds(visited.ahead_seconds)} beside the reader. {_equality(outcome)} It acts where lookups take more "
        f"than {1e3 * visited.latency_seconds:g} ms here (80 unless said otherwise), and the first page nobody can "
        "foresee."
    )
    return (
        f"<section>\n<h2>A visit, foreseen</h2>\n<p>{escape(text)}</p>\n"
        '<div class="key"><span><i style="background:var(--first)"></i>first page</span>\n'
        '<span><i style="background:var(--part)"></i>later pages</span></div>\n'
        f"{waits(visited)}\n</section>\n"
    )


def waits(visited: Visited) -> str:
    """Seconds that the newcomer waited, as SVG."""
    return bars(
        "Seconds that a newcomer waited for pages, without and with a prefetcher",
        [_bar("no prefetching", visited.without), _bar("prefetching", visited.foreseen)],
    )


def _bar(name: str, steps: Sequence[Step]) -> tuple[str, list[Part], str]:
    first, *later = by_page(steps)
    parts = [Part(first, "first", f"first page: {_seconds(first)}"), Part(sum(later), "part", "later pages")]
    return name, parts, f"{_seconds(waited(steps))}, {warm(steps)}/{len(steps)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if abs(seconds) >= 1 else f"{1e3 * seconds:.3g} ms"


def _equality(outcome: Outcome) -> str:
    if outcome.visits_unequal:
        return f"{outcome.visits_unequal} outputs of the two caches differ."
    return "What it gave was bit-equal to what the other cache computed."
