"""When the store is full the oldest spans go, their counts stay, and what is freed is used again."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dashboard.store_world import a_store, call, lookup, request_of

from mmcache.dashboard import overview, retention
from mmcache.dashboard.app import Dashboard
from mmcache.dashboard.asking import Question
from mmcache.dashboard.counting import View
from mmcache.dashboard.rows import Window
from mmcache.dashboard.store import Store
from mmcache.lab.incident.__main__ import fill
from mmcache.lab.incident.spans import Night

MIDNIGHT = time.time() // 86400 * 86400 - 86400
ALL = Window(MIDNIGHT, MIDNIGHT + 6 * 3600)


def ratio(store: Store, points: int) -> Any:
    return store.read(store.cursor(), lambda view: overview.ratio(view, Question(ALL), None, points))


def spans(store: Store) -> tuple[int, int]:
    """How many, and when the first began."""
    cursor = store.cursor()
    count, first = cursor.execute("SELECT count(*), min(start_us) FROM spans").fetchone()
    cursor.close()
    return count, first


def cut(store: Store, share: float) -> None:
    """Delete about this share of the spans, as the writer does it when the store is full."""

    def change() -> None:
        store._floor_us = retention._oldest(store._connection, share, store.slices)
        store._floors = retention.floors(store._connection)

    store.between(change).result()


@pytest.mark.slow
def test_a_full_store_stays_within_its_limit_and_uses_what_it_freed(tmp_path: Path) -> None:
    path, limit = tmp_path / "traces.duckdb", 32 << 20
    with a_store(path, queue_spans=10**9) as store:
        fill(store, Night(MIDNIGHT, 450_000))
        counts = ratio(store, 6)
        assert store.size() > limit
        for seed in (1, 2):
            assert store.limit(limit).result() <= limit
            assert ratio(store, 6) == counts
            fill(store, Night(MIDNIGHT + 6 * 3600, 120_000, 2.0, seed))
        assert store.limit(limit).result() <= limit
        assert path.stat().st_size < 5 * limit
    with a_store(path) as store:
        assert ratio(store, 6) == counts
        assert spans(store)[0] > 0


def test_the_oldest_spans_go_and_their_counts_stay() -> None:
    with a_store(queue_spans=10**9) as store:
        fill(store, Night(MIDNIGHT, 20_000))
        before, counts = spans(store), [ratio(store, points) for points in (6, 72, 360)]
        cut(store, 0.5)
        left = spans(store)
        assert before[0] * 0.4 < left[0] < before[0] * 0.6
        assert left[1] > before[1]
        assert left[1] >= store.floor_us == store.floor_us // 300_000_000 * 300_000_000
        assert [ratio(store, points) for points in (6, 72, 360)] == counts


async def test_what_is_older_than_what_is_kept_is_refused() -> None:
    with a_store(queue_spans=10**9) as store:
        fill(store, Night(MIDNIGHT, 5_000))
        cut(store, 0.5)
        app = Dashboard(store)
        body = request_of(lookup(MIDNIGHT + 1)).SerializeToString()
        reply = await call(app, "/v1/traces", "POST", body=body, headers={"content-type": "application/x-protobuf"})
        assert b"before what is kept" in reply.body
        app.close()


def test_a_restart_knows_what_has_gone(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    with a_store(path, queue_spans=10**9) as store:
        assert store.floor_us < MIDNIGHT * 1e6
        fill(store, Night(MIDNIGHT, 5_000))
        cut(store, 0.5)
        floor, counts = store.floor_us, ratio(store, 72)
    with a_store(path) as store:
        assert store.floor_us >= floor > MIDNIGHT * 1e6
        assert ratio(store, 72) == counts
    with a_store(path) as store:
        store.between(lambda: store._connection.execute("DELETE FROM spans")).result()
    with a_store(path) as store:
        assert store.floor_us > floor


def test_a_reader_of_an_old_state_does_not_cost_more_spans(tmp_path: Path) -> None:
    """What it reads cannot be freed meanwhile: to delete until it is would delete all."""
    began, go = threading.Event(), threading.Event()
    with a_store(tmp_path / "traces.duckdb", queue_spans=10**9) as store:
        fill(store, Night(MIDNIGHT, 60_000))
        before = spans(store)[0]
        cursor, second = store.cursor(), store.cursor()

        def slow(view: View) -> int:
            view.cursor.execute("SELECT count(*) FROM spans").fetchall()
            began.set()
            go.wait(60)
            return before

        with ThreadPoolExecutor(2) as readers:
            reading = readers.submit(store.read, cursor, slow)
            began.wait(60)
            store.limit_bytes = store.size() - 1  # below what is allowed: small stores are quick
            limited = store.limit(store.limit_bytes)
            go.set()
            assert readers.submit(store.read, second, lambda view: before).result(60) == reading.result(60)
        limited.result(60)
        assert spans(store)[0] > before / 2


def test_a_state_that_is_never_let_go_costs_one_cut(tmp_path: Path) -> None:
    with a_store(tmp_path / "traces.duckdb", queue_spans=10**9) as store:
        fill(store, Night(MIDNIGHT, 60_000))
        before = spans(store)[0]
        cursor = store.cursor()
        cursor.execute("BEGIN")
        cursor.execute("SELECT count(*) FROM spans").fetchall()
        store.limit(store.size() - 1).result(60)
        cursor.close()
        assert spans(store)[0] > before / 2


def test_a_flood_within_one_slice_is_cut_too() -> None:
    with a_store(queue_spans=10**9) as store:
        fill(store, Night(MIDNIGHT, 5_000, 0.02))
        before = spans(store)
        cut(store, 0.5)
        assert before[0] * 0.4 < spans(store)[0] < before[0] * 0.6


def test_counts_are_bounded_too() -> None:
    with a_store(queue_spans=10**9) as store:
        fill(store, Night(MIDNIGHT, 20_000))

        def rows() -> int:
            (count,) = store._connection.execute("SELECT count(*) FROM rollup_10").fetchone()
            return int(count)

        many = store.between(rows).result()
        store.between(lambda: retention._rollups(store._connection, 512 << 10)).result()
        assert store.between(rows).result() < many
        cut(store, 0.01)
        found = ratio(store, 1000)  # the finest counts are gone for the older part: coarser ones are given
        assert found["step"] > 30
        assert sum(found["series"][0]["hits"]) == pytest.approx(sum(ratio(store, 6)["series"][0]["hits"]))
