"""`/api/v1/graph`: of one process and of several, now and an hour ago; what is kept, and what goes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest
from tests.unit.dashboard.graph_world import community, full, key, name, view
from tests.unit.dashboard.store_world import a_store, call
from tests.unit.dashboard.test_api import HOSTILE

from mmcache.dashboard import graph_kept
from mmcache.dashboard.app import Dashboard
from mmcache.dashboard.asking import Question, question
from mmcache.dashboard.counting import View
from mmcache.dashboard.graph import graph
from mmcache.dashboard.graph_kept import EVERY_SECONDS, MOST_PROCESSES, SILENT_SECONDS, TURN_SECONDS
from mmcache.dashboard.live import Live
from mmcache.dashboard.rows import Window
from mmcache.dashboard.store import Store
from mmcache.hotkeys.view import HotView

NOW = 1_800_000_000.0


def take(store: Store, at: float, *views: HotView) -> None:
    """As if they had come at that time."""
    store.between(lambda: store.views.take(store._connection, views, store.limit_bytes, at)).result()


def shown(store: Store, now: float = NOW, start: float = 0.0, end: float = 0.0, **filters: Any) -> Any:
    """The graph; filters: an axis' values."""
    asked = Question(
        Window(start or now - 3600, end or now + 10), {axis: tuple(said) for axis, said in filters.items()}
    )
    return store.read(store.cursor(), lambda seen: graph(seen, store.views, asked, now))


def keys(graph: Any) -> list[str]:
    return [node["key"] for node in graph["nodes"]]


def states(graph: Any) -> dict[int, str]:
    return {one["number"]: one["state"] for one in graph["communities"]}


def test_one_process_is_shown_as_it_says() -> None:
    with a_store() as store:
        said = view(
            [key(0, 7), key(1, 7, expected_hours=None, confidence=None, tier=""), key(2, 0)],
            [(0, 1, 3.0), (1, 2, 1.0)],
            communities=[community(7, "appeared", 123.0, size=40, merged=[3])],
        )
        take(store, NOW - 5, said)
        found = shown(store)
    assert (found["at"], found["tracked_keys"], found["tracked_edges"]) == (NOW - 5, 900, 4000)
    assert keys(found) == [name(0), name(1), name(2)]
    assert [(edge["source"], edge["target"], edge["weight"]) for edge in found["edges"]] == [(0, 1, 3.0), (1, 2, 1.0)]
    (one,) = found["communities"]
    assert (one["number"], one["state"], one["since"], one["size"], one["until"]) == (7, "appeared", 123.0, 40, None)
    assert one["merged"] == [one["id"].replace("7-", "3-")]
    assert [node["community"] for node in found["nodes"]] == [one["id"], one["id"], None]
    assert (found["nodes"][1]["expected_hours"], found["nodes"][1]["confidence"]) == (None, None)
    assert found["nodes"][0]["modality"] == "text"


def test_several_processes_are_one_graph() -> None:
    with a_store() as store:
        one = view([key(0, 1, heat=9.0), key(1, 1), key(2, 2)], [(0, 1, 1.0)], communities=[community(1, since=5.0),
                                                                                           community(2)])  # fmt: skip
        other = view(
            [key(1, 4, heat=1000.0, tier="disk"), key(0, 4), key(5, 2)], [(1, 0, 2.0), (0, 2, 8.0)], instance="two",
            communities=[community(4, "fading", 3.0), community(2)],
        )  # fmt: skip
        take(store, NOW - 5, one, other)
        found = shown(store)
        assert sorted(keys(found)) == sorted(name(at) for at in (0, 1, 2, 5))
        by_key = {node["key"]: node for node in found["nodes"]}
        assert by_key[name(1)]["heat"] == 1000 + 25
        assert (by_key[name(1)]["tier"], by_key[name(1)]["instances"]) == ("disk", 2)  # as where it is used most
        pairs = {(keys(found)[e["source"]], keys(found)[e["target"]]): e["weight"] for e in found["edges"]}
        assert pairs == {(name(0), name(1)): 3.0, (name(1), name(5)): 8.0}
        same = by_key[name(0)]["community"]
        assert by_key[name(1)]["community"] == same
        assert by_key[name(2)]["community"] != by_key[name(5)]["community"]  # each process' own number 2
        (joined,) = [one for one in found["communities"] if one["id"] == same]
        assert (joined["state"], joined["since"], joined["instances"], joined["number"]) == ("living", 3.0, 2, 4)
        assert len(found["communities"]) == 3
        alone = shown(store, instance=["one"])
        assert sorted(keys(alone)) == sorted(name(at) for at in (0, 1, 2))
        assert [one["shown"] for one in alone["instances"]] == [True, False]
        assert keys(shown(store, service=["else"])) == []


def test_filters_leave_keys_their_edges_and_their_communities() -> None:
    with a_store() as store:
        said = view(
            [key(0, 1, tenant="a"), key(1, 1, tenant="b"), key(2, 2, tenant="b")], [(0, 1, 1.0), (1, 2, 1.0)],
            communities=[community(1), community(2)],
        )  # fmt: skip
        take(store, NOW - 600 + 1, said)
        take(store, NOW - 5, msgspec.structs.replace(said, communities=[community(1)]))
        for tenant, found, edges, kept in (
            ("a", [0], 0, {1: "living"}), ("b", [1, 2], 1, {1: "living", 2: "faded"}), ("c", [], 0, {}),
        ):  # fmt: skip
            answer = shown(store, tenant=[tenant])
            assert keys(answer) == [name(at) for at in found]
            assert len(answer["edges"]) == edges
            assert states(answer) == kept
        assert keys(shown(store, tenant=["a", "b"], modality=["audio"])) == [name(2)]


def test_communities_appear_merge_and_fade_over_the_hour() -> None:
    with a_store() as store:
        steps: list[list[Any]] = [
            [community(1, "appeared", NOW - 3000)],
            [community(1, "living", NOW - 3000), community(2, "appeared", NOW - 2400)],
            [
                community(1, "living", NOW - 3000),
                community(2, "fading", NOW - 2400),
                community(3, "living", NOW - 1900),
            ],
            [community(1, "living", NOW - 3000, merged=[2]), community(3, "faded", NOW - 1900)],
            [community(1, "living", NOW - 3000, merged=[2])],
        ]
        for at, communities in enumerate(steps):
            mine = [key(one.id, one.id) for one in communities]
            take(store, NOW - 3000 + 500 * at - 1, view(mine, communities=communities))
        for at, expected in enumerate(({1: "appeared"}, {1: "living", 2: "appeared"},
                                       {1: "living", 2: "fading", 3: "living"},
                                       {1: "living", 2: "faded", 3: "faded"})):  # fmt: skip
            assert states(shown(store, start=NOW - 3600, end=NOW - 3000 + 500 * at + 1)) == expected
        now = shown(store, NOW - 900)
        assert states(now) == {1: "living", 2: "faded", 3: "faded"}
        by_number = {one["number"]: one for one in now["communities"]}
        assert by_number[2]["until"] == NOW - 1501
        assert by_number[1]["merged"] == [by_number[2]["id"]]
        assert states(shown(store, start=NOW - 900)) == {}
        take(store, NOW - 500, view([], communities=[community(8, size=300)]))
        later = {"now": NOW - 400, "start": NOW - 900}
        assert states(shown(store, **later)) == {1: "faded", 8: "living"}  # none of its keys is among the hottest
        assert states(shown(store, tenant=[key(1).tenant], **later)) == {1: "faded"}


def test_silent_processes_go() -> None:
    with a_store() as store:
        take(store, NOW - SILENT_SECONDS - 1, full("gone"))
        take(store, NOW - SILENT_SECONDS + 1, full("there"))
        assert [one["instance"] for one in shown(store)["instances"]] == ["there"]
        assert shown(store, NOW + 5)["at"] is None
        take(store, NOW, view([], instance="new"))
        assert {process[1] for process in store.views._held} == {"there", "new"}
        assert [one["instance"] for one in shown(store, end=NOW - 300)["instances"]] == ["gone", "there"]


def test_so_many_processes_are_known_and_no_more() -> None:
    with a_store() as store:
        for at in range(MOST_PROCESSES + 8):
            take(store, NOW - 100 + at, view([key(at)], instance=f"i{at}"))
        assert [int(held.view.instance[1:]) for held in store.views.latest(NOW)] == list(range(8, MOST_PROCESSES + 8))


def test_a_restart_finds_the_latest_and_the_past(tmp_path: Path) -> None:
    path, now = tmp_path / "traces.duckdb", time.time()
    with a_store(path) as store:
        take(store, now - 700, view([key(5, 9)], communities=[community(9)]))
        take(store, now - 120, view([key(6)], communities=[community(1)]))
    with a_store(path) as store:
        found = shown(store, now)
        assert keys(found) == [name(6)]
        assert states(found) == {1: "living", 9: "faded"}
        assert keys(shown(store, now, end=now - 600)) == [name(5)]
        store.clear().result()
        assert shown(store, now)["nodes"] == []
        assert shown(store, now, end=now - 600)["communities"] == []


def test_a_store_of_before_gets_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "traces.duckdb"
    with a_store(path):
        pass
    with duckdb.connect(str(path)) as connection:
        for table in ("graph_0", "graph_1"):
            connection.execute(f"DROP TABLE {table}")
    with a_store(path) as store:
        take(store, NOW, view([key(0)]))
        assert keys(shown(store)) == [name(0)]
    assert not list(tmp_path.glob("*damaged*"))


def rows(store: Store, where: str = "true") -> int:
    def count() -> int:
        found = [
            store._connection.execute(f"SELECT count(*) FROM graph_{at} WHERE {where}").fetchone() for at in (0, 1)
        ]
        return sum(number for (number,) in found)

    counted: int = store.between(count).result()
    return counted


def test_whole_views_are_written_now_and_then() -> None:
    with a_store() as store:
        for at in range(int(EVERY_SECONDS) * 4):
            take(store, NOW + at, view([key(at)], communities=[community(1)]))
        assert rows(store, "community = 0") == 4
        assert rows(store, "community = 1") == 1  # it did not move
        assert keys(shown(store, NOW + 60)) == [name(int(EVERY_SECONDS) * 4 - 1)]


def test_what_is_kept_of_the_past_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_store() as store:
        for at in range(30):
            take(store, NOW + at * TURN_SECONDS / 10, full())
        kept = rows(store, "community = 0")
        assert 10 <= kept <= 21  # one table's time at least, two's at most
        monkeypatch.setattr(graph_kept, "MOST_BYTES", 64 << 10)
        for at in range(30):
            take(store, NOW + 30 * TURN_SECONDS + at * 20, full())
        octets = "SELECT sum(octet_length(said)) FROM graph_0 UNION ALL SELECT sum(octet_length(said)) FROM graph_1"
        sizes = store.between(lambda: [size for (size,) in store._connection.execute(octets).fetchall()]).result()
        assert max(sizes) <= 64 << 10
        store.between(lambda: graph_kept.trim(store._connection, 1 << 15)).result()
        assert rows(store) == 0


def test_what_goes_leaves_its_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_kept, "MOST_BYTES", 64 << 10)
    with a_store(tmp_path / "traces.duckdb") as store:
        for at in range(150):
            take(store, NOW + at * 20, full())
        written = store.size()
        store.between(lambda: store._connection.execute("CHECKPOINT")).result()
        assert store.size() < written / 2  # it counted the log, which has all of them


def test_who_reads_while_the_oldest_goes_reads_on() -> None:
    with a_store() as store:
        take(store, NOW, view([key(0)], communities=[community(1)]))

        def task(seen: View) -> Any:
            for at in range(1, 4):
                take(store, NOW + at * (TURN_SECONDS + 1), view([key(at)]))
            return graph(seen, store.views, Question(Window(NOW - 60, NOW + 1)), NOW + 5 * TURN_SECONDS)

        assert keys(store.read(store.cursor(), task)) == [name(0)]
        assert keys(shown(store, NOW + 5 * TURN_SECONDS, end=NOW + 1)) == []
        assert keys(shown(store, NOW + 5 * TURN_SECONDS, end=NOW + 3 * TURN_SECONDS + 10)) == [name(3)]


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_names_are_only_names(app: Dashboard, text: str) -> None:
    said = view(
        [key(0, tenant=text, modality=text, tier=text)], service=text, instance=text, communities=[community(1)]
    )
    app.store.show([said]).result()
    reply = await call(app, "/api/v1/graph", service=text, instance=text, tenant=text, modality=text)
    (node,) = reply.json["nodes"]
    assert (node["tenant"], node["modality"], node["tier"]) == (text, text, text)
    assert [(one["service"], one["instance"]) for one in reply.json["instances"]] == [(text, text)]
    assert (await call(app, "/api/v1/graph", tenant="else")).json["nodes"] == []
    later = await call(app, "/api/v1/graph", instance=text, to=f"{time.time() + 1:.3f}")
    assert len(later.json["nodes"]) == 1


async def test_answers_of_a_time_that_is_over_have_a_tag(app: Dashboard) -> None:
    app.store.show([full()]).result()
    now = time.time()
    over = await call(app, "/api/v1/graph", to=now - 60)
    assert (
        await call(app, "/api/v1/graph", to=now - 60, headers={"if-none-match": over.headers["etag"]})
    ).status == 304
    assert (await call(app, "/api/v1/graph", to=now + 3600)).headers["cache-control"] == "no-store"


async def test_listeners_are_told_of_new_views() -> None:
    with a_store() as store:
        live = Live(store, every=0.001)
        stream = live._ticks()
        await anext(stream)
        store.show([view([key(0)]), view([key(0)], instance="two")]).result()
        while not (piece := await anext(stream)).startswith(b"event"):
            pass
        head, data, *_ = piece.decode().split("\n")
        assert (head, json.loads(data.removeprefix("data: "))) == ("event: graph", {"views": 2})
        live.end()
        assert [piece async for piece in stream if piece.startswith(b"event")] == []


def test_the_largest_graph_keeps_its_limits() -> None:
    with a_store() as store:
        take(store, NOW - 1, *(full(f"i{at}", at * 10) for at in range(8)))
        found = shown(store)
    assert (len(found["nodes"]), len(found["edges"]), len(found["instances"])) == (200, 600, 8)
    assert len(found["communities"]) <= 64
    assert all(0 <= edge[end] < 200 for edge in found["edges"] for end in ("source", "target"))
    assert question([("service", "a"), ("from", "1"), ("to", "2")]).filters == {"service": ("a",)}
