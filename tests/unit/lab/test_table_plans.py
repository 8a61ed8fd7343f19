"""Table `plans` measures what it says."""

from __future__ import annotations

from mmcache.lab import plans_calls, table_plans


def test_rows_of_two_parts() -> None:
    rows = {row.id: row for row in table_plans._rows(2, 2)}
    assert set(rows) == {
        "hit/2/general", "hit/2/compiled", "hit/2/ratio", "hit/2/unplanned", "miss/2/general", "miss/2/compiled",
        "miss/2/ratio",
    }  # fmt: skip
    assert all(row.ours for row in rows.values())


def test_rows_of_whole_calls() -> None:
    rows = {row.id: row for row in plans_calls.call_rows(2)}
    assert {row.split("/")[1] for row in rows} == {"picture+text", "text", "batch", "tiles", "misses"}
    assert all(row.ours for row in rows.values())
    assert all(row.target for name, row in rows.items() if not name.endswith("general"))


def test_launches_are_skipped_with_the_reason_where_there_is_no_gpu() -> None:
    (row,) = table_plans._launches()
    assert row.published == 37.0
    assert row.ours is not None or "skipped" in row.metric
