"""The generated night: the same for the same seed, whole traces, and its incident is in it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.unit.dashboard.store_world import a_store, call

from mmcache.dashboard.app import Dashboard
from mmcache.lab.incident.many import build
from mmcache.lab.incident.spans import SWAP_AT, Night

MIDNIGHT = 1_790_208_000.0
KEPT = {"kept_days": 36_500.0}


def test_a_seed_gives_one_night() -> None:
    one, again, other = (
        [span for chunk in Night(MIDNIGHT, 3_000, seed=seed).chunks() for span in chunk] for seed in (1, 1, 2)
    )
    assert one == again != other
    names = Counter((span.trace, span.span) for span in one)
    assert set(names.values()) == {1}
    roots = {span.span for span in one if span.parent == 0}
    assert all(span.parent in roots for span in one if span.parent)
    misses = [span for span in one if span.lookup and not span.hit]
    assert {span.axes[-1] for span in misses} >= {"signature", "absent"}
    assert all(span.start_us / 1e6 >= MIDNIGHT + SWAP_AT for span in misses if span.axes[-1] == "signature")
    assert {span.axes[6] for span in misses if span.axes[-1] == "signature"} == {"web-2"}


async def test_several_nights_at_once_are_counted_as_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    count = build(path, Night(MIDNIGHT, 4_000, 3.0), 3)
    window: dict[str, Any] = {"from_": MIDNIGHT, "to": MIDNIGHT + 4 * 3600}
    with a_store(path, **KEPT) as store:
        app = Dashboard(store)
        assert (await call(app, "/api/v1/meta")).json["spans"] == count
        sums = []
        for points in (4, 1000):
            (series,) = (await call(app, "/api/v1/ratio", **window, points=points)).json["series"]
            sums.append((sum(series["hits"]), sum(series["misses"])))
        assert sums[0] == sums[1]
        requests = (await call(app, "/api/v1/requests", **window, limit=1, reason="signature")).json["requests"]
        trace = (await call(app, f"/api/v1/traces/{requests[0]['trace']}")).json["spans"]
        assert [one["name"] for one in trace] == [
            "POST /v1/embeddings", "cache.lookup", "cache.compute", "cache.put",
        ]  # fmt: skip
        assert {one["parent"] for one in trace[1:]} == {trace[0]["span"]}
        app.close()


async def test_both_causes_are_found_apart(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    build(path, Night(MIDNIGHT, 25_000, 3.0), 1)
    with a_store(path, **KEPT) as store:
        app = Dashboard(store)
        reply = await call(app, "/api/v1/causes", from_=MIDNIGHT + 2 * 3600, to=MIDNIGHT + 3 * 3600)
        found = {cause["cause"]: cause for cause in reply.json["causes"]}
        assert found["signature"]["where"]["instance"] == "web-2"
        assert found["signature"]["moved"] == [
            {"component": "preprocess", "was": "resize=224,crop=centre", "now": "resize=256,crop=centre"}
        ]
        assert found["flood"]["where"]["tenant"] == "archive"
        assert abs(found["signature"]["since"] - (MIDNIGHT + SWAP_AT)) <= 120
        app.close()
