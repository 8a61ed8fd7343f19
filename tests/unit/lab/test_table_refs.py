"""Table `refs`: its graphs are of the shape it says, and its threads find what they should. Small."""

from __future__ import annotations

import random

import pytest

from mmcache.lab.refs_traffic import NEVER, WORDS, under_eviction
from mmcache.lab.table_refs import EACH, SHAPES, TRACKERS, memory, reach, tracker, wide


@pytest.mark.parametrize("shape", SHAPES)
def test_about_a_tenth_is_reached(shape: str) -> None:
    links, changed = SHAPES[shape](random.Random(1), 2000)
    assert all(len(children) == EACH for _, children in links)
    reached = len(tracker("counted", links).reach(changed))
    assert 150 <= reached <= 250


def test_all_trackers_give_all_rows() -> None:
    rows = reach("wide", wide(random.Random(1), 300), quick=True) + memory(wide(random.Random(1), 300), quick=True)
    assert len(rows) == len(TRACKERS) * 4
    assert all(row.ours is not None and row.ours > 0 for row in rows)


@pytest.mark.parametrize("name", TRACKERS)
def test_threads_find_every_dangling_link_and_nothing_stale(name: str) -> None:
    found = under_eviction(tracker(name), 0, 40)
    assert set(WORDS) <= set(found)
    assert found["evicted"] > 0
    assert {word: found[word] for word in NEVER} == dict.fromkeys(NEVER, 0.0)
