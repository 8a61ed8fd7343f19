"""Figures of the scene with a prefetcher."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mmcache.lab.demo.records import Step, Visited
from mmcache.lab.table import Row


def warm(steps: Iterable[Step]) -> int:
    """Lookups whose features were there before."""
    return sum(step.warm for step in steps)


def waited(steps: Iterable[Step]) -> float:
    """Seconds, over a whole walk."""
    return sum(step.seconds for step in steps)


def by_page(steps: Iterable[Step]) -> list[float]:
    """Seconds waited for each page."""
    pages = dict[int, float]()
    for step in steps:
        pages[step.page] = pages.get(step.page, 0.0) + step.seconds
    return list(pages.values())


def rows(visited: Visited) -> Iterable[Row]:
    for name, steps, words in (
        ("without", visited.without, "no prefetcher"),
        ("foreseen", visited.foreseen, 'prefetch="behaviour"'),
    ):
        share = 100 * warm(steps) / len(steps)
        yield Row.of(f"visit/{name}/warm", f"newcomer's lookups that were warm, {words}", "%", "higher", share)
        yield Row.of(f"visit/{name}/waited", f"newcomer's waiting in all, {words}", "s", "lower", waited(steps))
        longest = max(by_page(steps)[1:] or [0.0])
        yield Row.of(f"visit/{name}/longest", f"… for a page after the first, at most, {words}", "s", "lower", longest)
    saved = waited(visited.without) - waited(visited.foreseen)
    yield Row.of("visit/saved", "waiting that the prefetcher saved", "s", "higher", saved)
    yield Row.of("visit/brought", "blocks that it brought in that walk", "blocks", "lower", visited.brought)
    if visited.brought:
        share = 100 * visited.used / visited.brought
        yield Row.of("visit/used", "… of which were asked for", "%", "higher", share)


def as_json(visited: Visited, unequal: int) -> dict[str, Any]:
    walks = {
        name: {
            "lookups": len(steps),
            "warm": warm(steps),
            "waited_seconds": waited(steps),
            "seconds_by_page": by_page(steps),
        }
        for name, steps in (("without", visited.without), ("foreseen", visited.foreseen))
    }
    return {
        **walks,
        "brought": visited.brought,
        "used": visited.used,
        "cancelled": visited.cancelled,
        "ahead_seconds": visited.ahead_seconds,
        "brought_before": visited.brought_before,
        "latency_seconds": visited.latency_seconds,
        "unequal_outputs": unequal,
    }
