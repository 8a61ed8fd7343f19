"""Properties of what decides over warming a video."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key
from mmcache.prefetch.media import results
from mmcache.prefetch.media.journal import Journal
from mmcache.prefetch.media.scenes import HEIGHT, WIDTH, SceneOptions, Scenes
from mmcache.prefetch.media.schedule import MOST, WEIGHTS, Schedule
from mmcache.prefetch.media.task import KINDS, Kind, Task

kinds = st.sampled_from(KINDS)
sizes = st.integers(1, 100_000)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(items=st.lists(st.tuples(kinds, sizes), min_size=1, max_size=120))
def test_everything_is_served_once_in_the_order_of_its_kind(items: list[tuple[Kind, int]]) -> None:
    schedule: Schedule[int] = Schedule()
    for number, (kind, size) in enumerate(items):
        schedule.add(kind, size, number)
    taken = [schedule.take() for _ in items]
    assert schedule.take() is None
    assert schedule.waiting_bytes == 0
    served: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
    for one in taken:
        assert one is not None
        served[one[0]].append(one[1])
    assert served == {kind: [n for n, (own, _) in enumerate(items) if own == kind] for kind in KINDS}


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    streams=st.fixed_dictionaries({kind: st.lists(sizes, min_size=40, max_size=40) for kind in KINDS}),
    delays=st.fixed_dictionaries({kind: st.floats(1e-9, 1e3) for kind in KINDS}),
    used=st.fixed_dictionaries({kind: st.integers(0, 1000) for kind in KINDS}),
)
def test_while_all_have_work_none_falls_behind_by_more_than_one_item(
    streams: dict[Kind, list[int]], delays: dict[Kind, float], used: dict[Kind, int]
) -> None:
    schedule: Schedule[int] = Schedule()
    for kind in KINDS:
        schedule.took(kind, 1, delays[kind])
        schedule.used(kind, 1000, used[kind])
        for size in streams[kind]:
            schedule.add(kind, size, size)
    weights = schedule.weights()
    for kind in KINDS:
        assert WEIGHTS[kind] / MOST**2 <= weights[kind] <= WEIGHTS[kind] * MOST**2
    done = dict.fromkeys(KINDS, 0.0)
    bound = max(max(streams[kind]) * weights[kind] for kind in KINDS)
    while all(schedule.waiting(kind) for kind in KINDS):
        taken = schedule.take()
        assert taken is not None
        done[taken[0]] += taken[1] * weights[taken[0]]
        assert max(done.values()) - min(done.values()) <= bound * (1 + 1e-9)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 5)), max_size=60),
    gap=st.integers(500, 20_000),
)
def test_kept_frames_rise_and_start_before_they_are_kept(steps: list[tuple[int, int]], gap: int) -> None:
    pictures = [np.full((HEIGHT, WIDTH), 50 * level, np.uint8) for level in range(6)]
    scenes: Scenes[int] = Scenes(SceneOptions(longest_gap_ms=gap))
    now, kept = 0, []
    for step, level in steps:
        kept += list(scenes.look(now, pictures[level], level))
        now += step
    kept += list(scenes.end())
    assert bool(kept) == bool(steps)
    assert all(one.start_ms <= one.frame_ms for one in kept)
    times = [one.frame_ms for one in kept]
    assert times == sorted(set(times))


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    rows=st.lists(st.tuples(*[st.floats(-1e4, 1e4, allow_nan=False)] * 4), max_size=30),
    size=st.tuples(st.integers(1, 500), st.integers(1, 500)),
)
def test_boxes_lie_within_and_spans_apart(rows: list[tuple[float, ...]], size: tuple[int, int]) -> None:
    for x, y, width, height in results.boxes(rows, size):
        assert min(x, y) >= 0
        assert min(width, height) >= 1
        assert x + width <= size[0]
        assert y + height <= size[1]
    end = 0
    for start, until in results.spans([row[:2] for row in rows], 5000):
        assert end <= start < until <= 5000
        end = until


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    marks=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=8),
    cut=st.floats(0, 1), junk=st.binary(max_size=20),
)  # fmt: skip
def test_whatever_ends_a_journal_what_was_whole_before_is_read(
    marks: list[tuple[int, int]], cut: float, junk: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        journal = Journal(path)
        journal.begin(fresh=True)
        for start, end in marks:
            journal.done(Task("frame", frame_ts=start), [Key(bytes(16), start.to_bytes(16, "big"))])
            journal.scene(start, end)
        journal.close()
        data = path.read_bytes()
        at = int(cut * len(data))
        path.write_bytes(data[:at] + junk.replace(b"\n", b""))
        noted = Journal(path).read()
        whole = data[:at].count(b"\n")
        assert noted.lines >= whole
        assert noted.scenes[: whole // 2] == marks[: whole // 2]
        journal = Journal(path)
        journal.begin(fresh=False)
        journal.scene(1, 2)
        journal.close()
        assert Journal(path).read().scenes[-1] == (1, 2)


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["text", "score", "x"]), inner),
    max_leaves=8,
)


@settings(max_examples=80, derandomize=True, deadline=None)
@given(found=anything)
def test_whatever_a_model_answers_is_taken_or_refused(found: Any) -> None:
    for take in (
        lambda: results.boxes(found, (10, 10)),
        lambda: results.spans(found, 100),
        lambda: results.words(found),
    ):
        try:
            take()
        except InvalidInputError:
            continue
    assert results.nbytes(found) >= 0
