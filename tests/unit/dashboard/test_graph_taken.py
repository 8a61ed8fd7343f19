"""Views of hot keys by OTLP: in both encodings, whose they are, what is refused and said so."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from tests.unit.dashboard.graph_world import community, full, key, logs_of, name, text, view
from tests.unit.dashboard.store_world import Reply, a_store, call

from mmcache.dashboard.app import Dashboard
from mmcache.dashboard.graph_taken import MOST_VIEWS, views_of
from mmcache.hotkeys.view import EVENT_NAME, MOST_BYTES, HotKey

PROTOBUF, JSON = "application/x-protobuf", "application/json"
ONE = {"service.name": "proxy", "service.instance.id": "web-1"}


async def send(app: Dashboard, request: Any, kind: str = PROTOBUF, **headers: str) -> Reply:
    body = request.SerializeToString() if kind == PROTOBUF else json_format.MessageToJson(request).encode()
    return await call(app, "/v1/logs", "POST", body=body, headers={"content-type": kind} | headers)


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
async def test_a_view_comes_in_both_encodings(app: Dashboard, kind: str) -> None:
    said = view([key(0), key(1)], [(0, 1, 2.5)], communities=[community(1)])
    reply = await send(app, logs_of(text(said), resource=ONE), kind)
    assert (reply.status, reply.headers["content-type"]) == (200, kind)
    assert reply.body == (b"" if kind == PROTOBUF else b"{}")
    graph = (await call(app, "/api/v1/graph")).json
    assert [node["key"] for node in graph["nodes"]] == [name(0), name(1)]
    assert graph["edges"] == [{"source": 0, "target": 1, "weight": 2.5}]
    assert graph["nodes"][0]["parts"] == {"attention": 0.7, "divergence": 0.3}
    assert (await call(app, "/healthz")).json["received"]["views"] == 1


async def test_whose_it_is_the_resource_says(app: Dashboard) -> None:
    liar = text(view([key(0)], service="admin", instance="root"))
    await send(app, logs_of(liar, resource=ONE))
    await send(app, logs_of(text(view([key(1)], service="tool", instance="pid-7"))))
    found = (await call(app, "/api/v1/graph")).json["instances"]
    assert [(one["service"], one["instance"]) for one in found] == [("proxy", "web-1"), ("tool", "pid-7")]


def test_events_are_named_by_the_field_or_by_the_attribute() -> None:
    body = text(view([key(0)]))
    assert len(views_of(logs_of(body)).views) == 1
    assert len(views_of(logs_of(body, event="", attribute=EVENT_NAME)).views) == 1
    assert len(views_of(logs_of(body.encode())).views) == 1
    for other in (logs_of(body, event=""), logs_of(body, event="else", attribute=EVENT_NAME)):
        read = views_of(other)
        assert (read.views, read.others, read.refused.total()) == ([], 1, 0)


WRONG: dict[str, str | bytes] = {
    "no JSON": "{",
    "no view": '{"keys": 5}',
    "an edge that leads nowhere": text(view([key(0)], [(0, 9, 1.0)])),
    "a backward edge that leads nowhere": text(view([key(0)], [(-1, 0, 1.0)])),
    "too many keys": text(view([key(at) for at in range(201)])),
    "a key that is none": json.dumps({"at": 1, "service": "", "instance": "", "keys": [{"key": "<b>", "score": 1}]}),
    "a key twice": text(view([key(0), key(0)])),
    "a key in two spellings": text(view([HotKey("ab" * 8, 1.0), HotKey("AB" * 8, 1.0)])),
    "a community of a huge id": text(view([key(0, 2**60)])),
    "a community of no id": text(view([], communities=[community(0)])),
    "a community twice": text(view([], communities=[community(1), community(1)])),
    "a state that is none": text(view([], communities=[community(1, "gone")])),
    "half a character": '{"at": 1, "service": "\\ud800", "instance": "", "keys": []}',
    "too large": " " * (MOST_BYTES + 1),
    "too many bytes of few characters": text(view([], service="ü" * (MOST_BYTES // 2))),
    "numbers that are none": json.dumps({"at": "x", "service": "", "instance": "", "keys": []}),
    "no text": b"\xff\xfe",
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_no_view_is_refused_and_the_others_kept(app: Dashboard, case: str) -> None:
    reply = await send(app, logs_of(WRONG[case], text(view([key(0)])), resource=ONE))
    assert reply.status == 200
    told = ExportLogsServiceResponse.FromString(reply.body).partial_success
    assert told.rejected_log_records == 1
    assert "1 views: " in told.error_message
    assert len((await call(app, "/api/v1/graph")).json["nodes"]) == 1


async def test_a_body_has_so_many_views_at_most(app: Dashboard) -> None:
    bodies = [text(view([key(0)], instance=f"i{at}")) for at in range(MOST_VIEWS + 3)]
    told = ExportLogsServiceResponse.FromString((await send(app, logs_of(*bodies))).body).partial_success
    assert told.rejected_log_records == 3


def test_texts_are_cut_and_numbers_bounded() -> None:
    vast = key(
        0, tenant="t" * 5000, modality="m" * 5000, tier="x" * 5000, score=-1e300, heat=1e300, bytes=-5, confidence=7.0,
        expected_hours=-3.0, parts={f"{'p' * 100}{at}": 1e300 for at in range(50)},
    )  # fmt: skip
    said = view([vast], [(0, 0, -4.0)], tracked_keys=10**30, at=1e300, communities=[community(1, size=10**30)])
    (found,) = views_of(logs_of(text(said))).views
    (one,) = found.keys
    assert max(len(text) for text in (one.tenant, one.modality, one.tier)) == 200
    assert (one.score, one.heat, one.bytes, one.confidence, one.expected_hours) == (-1e15, 1e15, 0, 1.0, 0.0)
    assert len(one.parts) <= 12
    assert (found.edges[0].weight, found.tracked_keys, found.at) == (0.0, 2**53 - 1, 4e9)
    assert found.communities[0].size == 2**53 - 1


async def test_senders_show_the_ingest_token_for_views_too() -> None:
    with a_store(ingest_token="ingest-token") as store:
        app = Dashboard(store)
        request = logs_of(text(full()))
        assert (await send(app, request)).status == 401
        assert (await send(app, request, authorization="Bearer ingest-token")).status == 200
        app.close()


def test_the_largest_view_has_room() -> None:
    assert len(text(full())) < MOST_BYTES // 2
    assert msgspec.json.decode(text(full()))["keys"]
