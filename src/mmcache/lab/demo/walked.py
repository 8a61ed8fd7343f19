"""Figures of the scene with a prefetcher."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mmcache.lab.demo.records import Step, Visited
from mmcache.lab.table import Row


def warm(steps: Iterable[Step]) -> int:
    """Lookups whose features were there before."""
    return sum(step.warm for step in steps)


def joined(steps: Iterable[Step]) -> int:
    """Lookups that waited for the rest of a computation ahead."""
    return sum(step.joined for step in steps)


def found(visited: Visited) -> str:
    """How the newcomer's lookups went, in words."""
    under_way = joined(visited.foreseen)
    return (
        f"{warm(visited.foreseen)} of {len(visited.foreseen)} lookups were warm"
        f"{f' and {under_way} under way' if under_way else ''} instead of {warm(visited.without)}"
    )


def waited(steps: Iterable[Step]) -> float:
    """Seconds, over a whole walk."""
    return sum(step.seconds for step in steps)


def by_page(steps: Iterable[Step]) -> list[float]:
    """Seconds waited for each page."""
    pages = dict[int, float]()
    for step in steps:
        pages[step.page] = pages.get(step.page, 0.0) + step.seconds
    return list(pages.values())


def saved(visited: Visited) -> float:
    """Seconds of waiting that the prefetcher saved. The first page is cold in both: there, a difference is chance."""
    without, foreseen = (sum(by_page(steps)[1:]) for steps in (visited.without, visited.foreseen))
    return without - foreseen


def rows(visited: Visited) -> Iterable[Row]:
    for name, steps, words in (
        ("without", visited.without, "no prefetcher"),
        ("foreseen", visited.foreseen, "with the prefetcher"),
    ):
        share = 100 * warm(steps) / len(steps)
        yield Row.of(f"visit/{name}/warm", f"newcomer's lookups that were warm, {words}", "%", "higher", share)
        yield Row.of(f"visit/{name}/waited", f"newcomer's waiting in all, {words}", "s", "lower", waited(steps))
        longest = max(by_page(steps)[1:] or [0.0])
        yield Row.of(f"visit/{name}/longest", f"… for a page after the first, at most, {words}", "s", "lower", longest)
    under_way = 100 * joined(visited.foreseen) / len(visited.foreseen)
    yield Row.of("visit/joined", "newcomer's lookups that were being computed ahead", "%", "higher", under_way)
    less = saved(visited)
    yield Row.of("visit/saved", "waiting that the prefetcher saved, after the first page", "s", "higher", less)
    yield Row.of("visit/brought", "blocks that it brought in that walk", "blocks", "lower", visited.brought)
    if visited.brought:
        share = 100 * visited.used / visited.brought
        yield Row.of("visit/used", "… of which were asked for", "%", "higher", share)


def as_json(visited: Visited, unequal: int) -> dict[str, Any]:
    walks = {
        name: {
            "lookups": len(steps),
            "warm": warm(steps),
            "joined": joined(steps),
            "waited_seconds": waited(steps),
            "seconds_by_page": by_page(steps),
            "earlier_waited_seconds": earlier,
        }
        for name, steps, earlier in zip(
            ("without", "foreseen"), (visited.without, visited.foreseen), visited.earlier_seconds, strict=True
        )
    }
    return {
        **walks,
        "saved_seconds": saved(visited),
        "brought": visited.brought,
        "used": visited.used,
        "cancelled": visited.cancelled,
        "ahead_seconds": visited.ahead_seconds,
        "brought_before": visited.brought_before,
        "latency_seconds": visited.latency_seconds,
        "unequal_outputs": unequal,
    }
