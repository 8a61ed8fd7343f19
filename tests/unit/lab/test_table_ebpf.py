"""Table `ebpf` judges watchers by the log of what was read; that judge is pure."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.lab.table_ebpf import rows_of
from mmcache.lab.traced_runs import KEYS, Seen, crossings, judge, plan
from mmcache.lab.traced_watch import SECOND_NS, THRESHOLD, Window
from mmcache.model.key import Key

MILLISECOND = 1_000_000


def test_a_key_is_hot_at_its_101st_read_within_a_second() -> None:
    at = np.array([5 * SECOND_NS + n * 9 * MILLISECOND for n in range(150)])
    assert crossings(at, np.zeros(150, int)) == {0: int(at[100])}
    at = np.array([n * 10 * MILLISECOND for n in range(150)])  # exactly 100 a second
    assert crossings(at, np.zeros(150, int)) == {}


@given(st.lists(st.tuples(st.integers(1, 30 * MILLISECOND), st.integers(0, 1)), min_size=1, max_size=600))
def test_the_window_marks_first_what_the_log_says(reads: list[tuple[int, int]]) -> None:
    keys = [Key(bytes([n]) * 16, bytes(16)) for n in range(2)]
    at = np.cumsum([gap for gap, _ in reads])
    which = np.array([number for _, number in reads])
    hot = crossings(at, which)
    window = Window()
    seen: dict[Key, int] = {}
    for moment, number in zip(at.tolist(), which.tolist(), strict=True):
        before = len(window.marks)
        window.read(keys[number], moment)
        if len(window.marks) > before:
            seen.setdefault(keys[number], moment)
    assert seen == {keys[number]: moment for number, moment in hot.items()}


def test_marks_are_right_late_early_or_wrong() -> None:
    hot = {1: 10 * SECOND_NS, 2: 11 * SECOND_NS, 3: 12 * SECOND_NS}
    seen = Seen(cpu=0.1)
    judge(seen, [(1, 10 * SECOND_NS + 4 * MILLISECOND), (2, 10 * SECOND_NS), (9, 11 * SECOND_NS)], hot)
    assert (seen.hot, seen.false, seen.delays) == (3, 2, [0.004])
    assert seen.found == pytest.approx(1 / 3)


def test_a_plan_is_the_same_for_a_seed_and_has_hot_keys() -> None:
    due, key = plan(1_000, 2.0, 7)
    again, same = plan(1_000, 2.0, 7)
    assert np.array_equal(due, again)
    assert np.array_equal(key, same)
    assert (np.diff(due) >= 0).all()
    hot = crossings(due, key)
    assert set(range(KEYS - 10, KEYS)) <= hot.keys()
    assert THRESHOLD == 100


def test_rows_where_nothing_could_be_traced_are_blank() -> None:
    runs = {(5_000, "none"): [Seen(0.1), Seen(0.1)], (5_000, "ring"): [Seen(0.12, delays=[0.005], hot=1)]}
    blank = rows_of(5_000, "ebpf", runs)
    assert {row.id.rsplit("/")[-1] for row in blank} == {"cpu", "watcher", "delay", "latest", "found", "false"}
    assert all(row.ours is None and row.met is None for row in blank)
    (cpu, *_) = rows_of(5_000, "ring", runs)
    assert cpu.ours == pytest.approx(2.0)
