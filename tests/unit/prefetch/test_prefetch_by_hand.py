"""docs/concepts/foresight.md says how to tell by hand what will be brought: done here as it is written there."""

from __future__ import annotations

import re
from collections import defaultdict
from math import sqrt
from pathlib import Path

import pytest

from mmcache.model.event import Missed, MissReason, Stored
from mmcache.model.key import Key
from mmcache.prefetch.controller import ControllerSettings
from mmcache.prefetch.graph import NEWS, GraphSettings
from mmcache.prefetch.options import BehaviourSettings
from mmcache.prefetch.outstanding import LEAST_SECONDS
from mmcache.prefetch.planning import Planner, Visit
from mmcache.prefetch.remembered import LARGEST_SHARE

DOCS = Path(__file__).parents[3] / "docs"
SHOP = ["frb", "frb", "frc", "fsb", "frb", "frbx", "frbx", "gx", "frb", "fsb", "hijk", "hijk", "hijk", "hijk", "gx"]
"""What visitors looked for, a letter a block."""


def key(letter: str) -> Key:
    return Key(bytes(16), letter.encode() * 16)


def planner_of(sessions: list[str]) -> tuple[Planner, float]:
    """The product, at its defaults but for when it is needed at all."""
    planner, now = Planner(BehaviourSettings(latency_seconds=0.0, misses_a_minute=0.0), lower=False), 0.0
    for number, looked in enumerate(sessions):
        for letter in looked:
            now += 1.0
            planner.heard([Missed(key(letter), MissReason.ABSENT), Stored(key(letter), "memory", 10, 0.2)], now)
            planner.visited(Visit("shop", number, key(letter), now), now)
    return planner, now


def by_hand(sessions: list[str], recent: str) -> dict[str, tuple[float, int]]:
    """Probability and steps of what comes next for somebody who looked for `recent`, the last one last."""
    visits: dict[str, int] = defaultdict(int)
    followed: dict[tuple[str, str], list[int]] = defaultdict(list)  # at which visits of the first
    for looked in sessions:
        for place, letter in enumerate(looked):
            visits[letter] += 1
            for source in looked[max(0, place - 4) : place]:
                followed[source, letter].append(visits[source])

    def share(source: str, target: str) -> float:
        times, count = followed[source, target], visits[source]
        ever = len(times) / (count + 2)
        weight = [(7 / 8) ** (count - number) for number in range(1, count + 1)]
        lately = sum(weight[number - 1] for number in times) / sum(weight)
        return min(ever, lately + sqrt(lately * (1 - lately) / 15))

    found: dict[str, tuple[float, int]] = {}
    for back, start in enumerate(reversed(recent[-4:])):
        paths = [(start, 0.8**back, 0)]
        while paths:
            at, probability, steps = paths.pop()
            for source, target in list(followed):
                reached = probability * share(source, target)
                if source != at or target in recent[-4:] or reached < 0.3 or found.get(target, (0.0,))[0] >= reached:
                    continue
                found[target] = (reached, steps + 1)
                if steps < 2:
                    paths.append((target, reached, steps + 1))
    return found


@pytest.mark.parametrize("recent", ["f", "fr", "h", "g", "fs", "hi", "x"])
def test_what_is_queued_is_what_a_reader_works_out(recent: str) -> None:
    planner, now = planner_of(SHOP)
    planner._ahead.clear()  # those visitors have gone
    for letter in recent:
        now += 1.0
        planner.visited(Visit("shop", "new", key(letter), now), now)
    planner.heard([Missed(key("?"), MissReason.ABSENT), Stored(key("?"), "memory", 10, 0.2)], now)
    planner.step(now, under_way=0, held=lambda _: False, realm=lambda _: "shop")
    queued = {task.key.digest[:1].decode(): (task.probability, task.hop) for task in planner.queue._tasks.values()}
    expected = by_hand([*SHOP, recent], recent)
    assert len(expected) <= planner.settings.width
    assert queued.keys() == expected.keys()
    for letter, (probability, hop) in queued.items():
        assert probability == pytest.approx(expected[letter][0], rel=0.01)
        assert hop == expected[letter][1]


def test_the_pages_say_the_numbers_that_hold() -> None:
    s, graph, control = BehaviourSettings(), GraphSettings(), ControllerSettings()
    mib, fifth = 2**20, {0.2: "a fifth"}
    foresight = [
        f"within the next {s.lookback} lookups", f"What is {s.half_life_seconds / 3600:g} hours old counts half",
        f"the visits of A and {graph.doubt:g} more", f"each older one counts {round(8 * (1 - NEWS))}/8 of the next",
        f"up to {s.hops} steps ahead", f"what is {s.least_probability} probable or more",
        f"the last {s.lookback} keys", f"each one further back counting {graph.fade} of the next",
        f"the {s.width} of the highest PageRank", f"one step ahead stays 2 × {s.ttl_seconds:g} s",
        f"{2**s.hops} × {s.ttl_seconds:g} s",
        f"up to {s.remembered_bytes * LARGEST_SHARE / mib:g} MiB each and {s.remembered_bytes / mib:g} in all",
        f"{s.misses_a_minute:g} misses a minute, and a slow {1 - control.share:.0%}".replace("%", " %"),
        f"above {1000 * s.latency_seconds:g} ms", f"for {s.overload_seconds:g} s there was always somebody",
        f"{s.bytes_per_second / mib:g} MiB a second are spent", f"{s.computations_per_second:g} computations a second",
        f"{s.first_sample} blocks were brought", f"less than {fifth[s.least_use]} of what was brought",
        f"tries {s.sample} blocks", f"evaluating took {control.evaluating:g} s, or preloading {control.preloading:g} s",
        f"it costs {s.first_sample} blocks, and {s.sample} after each pause",
    ]  # fmt: skip
    guide = [
        f"within {s.remembered_bytes / mib:g} MiB", f"none of more than {s.remembered_bytes * LARGEST_SHARE / mib:g}",
        f"at least {s.misses_a_minute:g} lookups a minute miss",
        f"is above {1000 * s.latency_seconds:g} ms", f"Up to {s.hops} steps ahead", f"at most {s.width} a visit",
        f"less probable than {s.least_probability}", f"within {s.lookback} lookups", f"{s.ttl_seconds:g} s · 2^hop",
        f"{s.bytes_per_second / mib:g} MiB and {s.computations_per_second:g} computations a second",
        f"{s.saved_seconds:g} seconds' worth", f"left alone for {s.longest_back_off_seconds / 60:g} minutes",
        f"{s.nodes:,} keys, {s.edges:,} edges and {s.sessions:,} sessions".replace(",0", " 0"),
        f"At first {s.first_sample} blocks", f"then it tries {s.sample}", f"the last {s.window} is below a fifth",
        f"a thread of niceness {s.nice}", f"({LEAST_SECONDS:g} seconds at least)",
        f"costs, in the end, {s.sample} computations an hour", f"for {s.overload_seconds:g} seconds there was always",
    ]  # fmt: skip
    assert (s.concurrent, s.tries, s.judged_after, s.core_share, s.back_off_seconds) == (1, 3, 5.0, 0.1, 1.0)
    assert (s.pause_seconds, s.longest_pause_seconds, control.failures) == (60.0, 3600.0, 3)
    for name, phrases in (("concepts/foresight.md", foresight), ("how-to/prefetch.md", guide)):
        page = re.sub(r"\s+", " ", (DOCS / name).read_text("utf-8"))
        assert [phrase for phrase in phrases if phrase not in page] == []
