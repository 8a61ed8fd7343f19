"""The report's part on the scene with a prefetcher."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from mmcache.lab.demo.outcome import Outcome
from mmcache.lab.demo.records import Step, Visited
from mmcache.lab.demo.svg import Part, bars
from mmcache.lab.demo.walked import by_page, found, saved, waited, warm
from mmcache.lab.demo.words import time


def section(outcome: Outcome) -> str:
    """HTML; empty where the scene was not played."""
    visited, walks = outcome.passes.visited, outcome.manifest.walks
    if visited is None or walks is None:
        return ""
    limit, (plain, foreseen) = 1e3 * visited.latency_seconds, visited.earlier_seconds
    text = (
        f"{len(walks.earlier)} visitors walked pages of pictures, tour by tour; memory has room for the features of "
        f"{walks.held} pictures, a third, and there is no disk. Then somebody new walks the first tour, whose "
        f"features have made room for others', and reads {walks.reading_seconds:g} s a page. One cache computes what "
        "is not there while the visitor waits. The other one has a prefetcher, which saw how others went, and computes "
        f"the next pages while the visitor reads: {found(visited)}, and {_saved(visited)}. It "
        f"brought {visited.brought} blocks ahead, of which {visited.used} were asked for; computing them took "
        f"{time(visited.ahead_seconds)} beside the reader. {_equality(outcome)}"
    )
    lookups = sum(len(page) for walk in walks.earlier for page in walk)
    how = (
        'Cache(prefetch="behaviour") is this prefetcher. By default it acts where one lookup in 20 takes more than 80 '
        f"ms. The image model may be faster than that, so here it is {limit:g} ms: "
        f"Cache(prefetch=BehaviourPrefetch(BehaviourSettings(latency_seconds={visited.latency_seconds:g}))). The first "
        f"page nobody can foresee. Either newcomer comes after the same {lookups} lookups in a cache that began empty, "
        f"with weights loaded before both. The earlier visitors, who do not read, waited {time(plain)} in the one and "
        f"{time(foreseen)} in the other, for whom it brought {visited.brought_before} blocks."
    )
    return (
        f"<section>\n<h2>A visit, foreseen</h2>\n<p>{escape(text)}</p>\n"
        '<div class="key"><span><i style="background:var(--first)"></i>first page</span>\n'
        '<span><i style="background:var(--part)"></i>later pages</span>\n'
        "<span>at the end: waiting in all, lookups that were warm</span></div>\n"
        f"{waits(visited)}\n<p>{escape(how)}</p>\n</section>\n"
    )


def waits(visited: Visited) -> str:
    """Seconds that the newcomer waited, as SVG."""
    return bars(
        "Seconds that a newcomer waited for pages, without and with a prefetcher",
        [_bar("no prefetching", visited.without), _bar("prefetching", visited.foreseen)],
    )


def _bar(name: str, steps: Sequence[Step]) -> tuple[str, list[Part], str]:
    first, *later = by_page(steps)
    parts = [Part(first, "first", f"first page: {time(first)}"), Part(sum(later), "part", "later pages")]
    return name, parts, f"{time(waited(steps))}, {warm(steps)}/{len(steps)}"


def _saved(visited: Visited) -> str:
    less = saved(visited)
    what = f"{time(less)} of waiting were saved" if less >= 0 else f"nothing was saved: {time(-less)} more waiting"
    return f"{what} after the first page"


def _equality(outcome: Outcome) -> str:
    if outcome.visits_unequal:
        return f"{outcome.visits_unequal} outputs of the two caches differ."
    return "What it gave was bit-equal to what the other cache computed."
