"""`/api/v1`: shapes, filters, limits, errors; and that hostile names stay what they are."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from typing import Any

import pytest
from tests.unit.dashboard.store_world import HOUR_AGO, Sent, a_store, call, identified, lookup, put, settled

from mmcache.dashboard import browse
from mmcache.dashboard.app import POLICY, Dashboard
from mmcache.dashboard.asking import Question
from mmcache.dashboard.counting import View
from mmcache.dashboard.rows import REASONS, Window

START, END = HOUR_AGO, HOUR_AGO + 3600
NAMES = ("meta", "ratio", "reasons", "saved", "tiers", "keys", "requests", "causes", "graph")
HOSTILE = [
    "'; DROP TABLE spans; --", '"', "' OR 1=1 --", "<img src=x onerror=alert(1)>", "$1", "?", "\\", "%", "{}",
    "\u202e", "\x00", "other", "a\nb", "x" * 180, "NULL", "🦆",
]  # fmt: skip


def window(**more: Any) -> dict[str, Any]:
    return {"from_": START, "to": END} | more


async def test_an_empty_store_answers_everything(app: Dashboard) -> None:
    for name in NAMES:
        reply = await call(app, f"/api/v1/{name}")
        assert reply.status == 200, (name, reply.body)
        assert reply.headers["cache-control"] == "no-store"
    assert (await call(app, "/api/v1/meta")).json["from"] is None
    assert (await call(app, "/api/v1/causes")).json["causes"] == []


async def test_meta_says_what_there_is(app: Dashboard) -> None:
    put(app.store, lookup(START, tenant="b"), lookup(START + 5, "denied", tenant="a"), Sent(at=START + 9, name="other"))
    said = (await call(app, "/api/v1/meta")).json
    assert (said["from"], said["to"], said["spans"], said["read_only"]) == (START, START + 9, 3, True)
    assert 0 < said["bytes"] < said["limit_bytes"] == 2 << 30
    assert said["axes"]["tenant"] == ["a", "b"]
    assert said["axes"]["reason"] == ["denied"]
    assert set(said["axes"]) == {"modality", "route", "tenant", "region", "strategy", "service", "instance", "reason"}


async def test_shapes_are_as_the_page_expects(app: Dashboard) -> None:
    put(
        app.store,
        *(lookup(START + at, ["", "expired"][at % 2], modality="image", key=f"{at % 3 + 1:016x}") for at in range(9)),
    )
    ratio = (await call(app, "/api/v1/ratio", **window(by="modality", points=10))).json
    assert (ratio["step"], len(ratio["t"]), ratio["series"][0]["name"]) == (600, 6, "image")
    assert ratio["series"][0]["ratio"] == [5 / 9, None, None, None, None, None]
    reasons = (await call(app, "/api/v1/reasons", **window())).json
    assert list(reasons["reasons"]) == list(REASONS)
    assert sum(reasons["reasons"]["expired"]) == 4
    saved = (await call(app, "/api/v1/saved", **window())).json
    assert (saved["currency"], saved["per_hour"]) == ("USD", 2.5)
    keys = (await call(app, "/api/v1/keys", **window(top=2))).json
    assert [key["key"] for key in keys["keys"]] == [f"{1:016x}", f"{2:016x}"]
    assert len(keys["keys"][0]["counts"]) == len(keys["t"]) == 60
    (request,) = (await call(app, "/api/v1/requests", **window(limit=1))).json["requests"]
    assert set(request) == {
        "trace", "span", "start", "duration_ms", "name", "route", "tenant", "region", "client", "modality", "outcome",
        "reason", "detail", "key", "service", "instance",
    }  # fmt: skip


async def test_requests_are_paged_newest_first_without_gaps(app: Dashboard) -> None:
    spans = [lookup(START + at // 3, "" if at % 4 else "absent", tenant="ab"[at % 2]) for at in range(100)]
    put(app.store, *spans, lookup(END + 3000))
    expected = [one.span.hex() for one in sorted(spans, key=lambda one: (one.at, one.span), reverse=True)]
    for _ in range(2):  # from spans alone, and where slices are counted
        found: list[str] = []
        before: dict[str, str] = {}
        while True:
            reply = (await call(app, "/api/v1/requests", **window(limit=7, **before))).json
            found += [one["span"] for one in reply["requests"]]
            if reply["next"] is None:
                break
            before = {"before": reply["next"]}
        assert found == expected
        settled(app.store)
    some = (await call(app, "/api/v1/requests", **window(limit=3, tenant="a", reason="absent"))).json["requests"]
    wanted = [one for one in spans if not one.attributes["cache.hit"] and one.attributes["cache.tenant"] == "a"]
    assert [one["span"] for one in some] == [one.span.hex() for one in wanted[:-4:-1]]


async def test_filters_repeat_as_or_and_join_as_and(app: Dashboard) -> None:
    put(app.store, *(lookup(START, tenant=tenant, region=region) for tenant in "abc" for region in ("eu", "us")))

    async def hits(**more: Any) -> float:
        (series,) = (await call(app, "/api/v1/ratio", **window(**more))).json["series"]
        return float(sum(series["hits"]))

    assert await hits() == 6
    assert await hits(tenant=["a", "b"]) == 4
    assert await hits(tenant=["a", "b"], region="eu") == 2
    assert await hits(tenant="nobody") == 0
    assert await hits(instance="one", service="mmcache", outcome="hit") == 6


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_names_are_only_names(app: Dashboard, text: str) -> None:
    one = lookup(
        START, "expired", tenant=text, route=text, modality=text, region=text, detail=text, client=text, strategy=text
    )
    put(app.store, one, lookup(START, tenant="else"), lookup(END + 3000))
    for _ in range(2):
        for axis in ("tenant", "route", "modality", "region", "strategy"):
            reply = (await call(app, "/api/v1/requests", **window(**{axis: text}))).json["requests"]
            assert [found["span"] for found in reply] == [one.span.hex()]
            assert reply[0][axis if axis != "strategy" else "tenant"] == text
            ratio = (await call(app, "/api/v1/ratio", **window(**{axis: text, "by": axis}))).json["series"]
            assert [series["name"] for series in ratio] == [text]
            assert sum(ratio[0]["misses"]) == 1
        for name in NAMES:
            more = {} if name == "meta" else window(instance=text)
            assert (await call(app, f"/api/v1/{name}", **more)).status == 200
        settled(app.store)
    assert text in (await call(app, "/api/v1/meta")).json["axes"]["tenant"]
    for path in (f"/api/v1/traces/{one.trace.hex()}", f"/api/v1/explain/{one.trace.hex()}/{one.span.hex()}"):
        assert (await call(app, path)).status == 200


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/v1/ratio?by=tenant%27", 400, "parameter"),
        ("/api/v1/ratio?by=", 400, "parameter"),
        ("/api/v1/ratio?points=0", 400, "parameter"),
        ("/api/v1/ratio?points=-1", 400, "parameter"),
        ("/api/v1/ratio?points=1e3", 400, "parameter"),
        ("/api/v1/ratio?points=²", 400, "parameter"),
        ("/api/v1/ratio?from=nan", 400, "parameter"),
        ("/api/v1/ratio?from=inf", 400, "parameter"),
        ("/api/v1/ratio?from=1e300", 400, "parameter"),
        ("/api/v1/ratio?from=x", 400, "parameter"),
        ("/api/v1/ratio?from=5&to=5", 400, "parameter"),
        ("/api/v1/ratio?what=1", 400, "parameter"),
        ("/api/v1/ratio?key=12", 400, "parameter"),
        ("/api/v1/ratio?" + "&".join(f"tenant={at}" for at in range(51)), 400, "parameter"),
        ("/api/v1/requests?before=1", 400, "parameter"),
        ("/api/v1/requests?before=1-0000000000000001;", 400, "parameter"),
        ("/api/v1/graph?top=5", 400, "parameter"),
        ("/api/v1/graph?from=x", 400, "parameter"),
        ("/api/v1/", 404, "unknown"),
        ("/api/v2/ratio", 404, "unknown"),
        ("/api/v1/traces/xyz", 400, "parameter"),
        ("/api/v1/traces/" + "a" * 32, 404, "unknown"),
        ("/api/v1/explain/" + "a" * 32 + "/" + "b" * 16, 404, "unknown"),
        ("/api/v1/explain/" + "a" * 32 + "/b", 400, "parameter"),
        ("/static/../api.py", 404, "unknown"),
        ("/static/%2e%2e/api.py", 404, "unknown"),
        ("/static//etc/passwd", 404, "unknown"),
        ("/v1/traces", 405, "method"),
    ],
)
async def test_errors_are_json_with_a_fitting_status(app: Dashboard, path: str, status: int, code: str) -> None:
    reply = await call(app, path)
    assert (reply.status, reply.json["error"]["code"]) == (status, code)
    assert reply.json["error"]["message"]
    assert reply.headers["content-security-policy"] == POLICY


async def test_large_numbers_are_taken_as_the_most_that_is_given(app: Dashboard) -> None:
    put(app.store, *(lookup(START + at, key=f"{at + 1:016x}") for at in range(600)))
    assert len((await call(app, "/api/v1/ratio", **window(points=99999))).json["t"]) <= 1000
    assert len((await call(app, "/api/v1/keys", **window(top=99999))).json["keys"]) == 200
    assert len((await call(app, "/api/v1/requests", **window(limit=99999))).json["requests"]) == 500
    forever = (await call(app, "/api/v1/ratio", from_=0, to=4e9, points=1000)).json
    assert len(forever["t"]) <= 1001
    for name in NAMES[1:]:
        for more in ("", "&points=1") if name in ("ratio", "reasons", "saved", "tiers", "keys") else ("",):
            for end in (1, int(START) + 1, 4_000_000_000):
                assert (await call(app, f"/api/v1/{name}?from=0&to={end}{more}")).status == 200


async def test_a_window_that_is_over_has_an_entity_tag_until_something_comes(app: Dashboard) -> None:
    put(app.store, lookup(START))
    first = await call(app, "/api/v1/ratio", **window())
    given = {"if-none-match": first.headers["etag"]}
    assert (await call(app, "/api/v1/ratio", headers=given, **window())).status == 304
    assert (await call(app, "/api/v1/ratio", headers=given, **window(points=7))).status == 200
    put(app.store, lookup(START))
    assert (await call(app, "/api/v1/ratio", headers=given, **window())).status == 200
    assert "etag" not in (await call(app, "/api/v1/ratio")).headers


async def test_a_question_that_takes_too_long_is_interrupted() -> None:
    with a_store(query_seconds=0.2) as store:
        app = Dashboard(store)

        def slow(view: View) -> Any:
            return view.cursor.execute("SELECT count(*) FROM range(1000000000) a, range(1000) b").fetchall()

        with pytest.raises(Exception, match="takes too long"):
            await app.api.run(slow)
        assert (await call(app, "/api/v1/meta")).status == 200
        app.close()


async def test_questions_that_wait_and_those_of_several_statements_are_interrupted_too() -> None:
    with a_store(query_seconds=0.2, readers=1) as store:
        app = Dashboard(store)

        def slow(view: View) -> Any:
            pause.wait(0.5)  # its time is over before its first statement begins
            return view.cursor.execute("SELECT count(*) FROM range(1000000000) a, range(1000) b").fetchall()

        pause = threading.Event()
        told = await asyncio.gather(*(app.api.run(slow) for _ in range(3)), return_exceptions=True)
        assert ["takes too long" in str(one) for one in told] == [True] * 3
        app.close()


async def test_explain_says_what_moved_and_where_else(app: Dashboard) -> None:
    content = "ab" * 16
    fields: dict[str, Any] = {"signature.preprocess": "resize=224", "signature": "1" * 16}
    moved: dict[str, Any] = {"signature.preprocess": "resize=256", "signature": "2" * 16}
    hit = lookup(START, content=content, key="1" * 16, tier="memory", modality="image", instance="two", **fields)
    miss = lookup(START + 60, "signature", content=content, key="2" * 16, modality="image", **moved)
    other = lookup(START + 70, "signature", key="3" * 16, modality="image", instance="three", **moved)
    put(app.store, hit, miss, other, lookup(START + 80, "absent", modality="image", instance="three"))
    said = (await call(app, f"/api/v1/explain/{miss.trace.hex()}/{miss.span.hex()}")).json
    assert said["verdict"] == "miss (signature)"
    assert said["moved"] == [{"component": "preprocess", "was": "resize=224", "now": "resize=256"}]
    assert said["before"] == {"trace": hit.trace.hex(), "span": hit.span.hex(), "when": START, "instance": "two"}
    assert said["spread"]["misses"] == 2
    assert {one["instance"]: (one["misses"], one["hits"]) for one in said["spread"]["instances"]} == {
        "one": (1, 0), "three": (1, 0), "two": (0, 1),
    }  # fmt: skip
    assert said["spread"]["since"] == START + 60


async def test_nothing_of_a_lookup_is_needed_to_explain_a_span(app: Dashboard) -> None:
    one = identified(Sent("GET /", START, resource={}))
    put(app.store, one)
    assert (await call(app, f"/api/v1/explain/{one.trace.hex()}/{one.span.hex()}")).status == 200
    bare = lookup(START, "timeout")
    put(app.store, bare)
    assert (await call(app, f"/api/v1/explain/{bare.trace.hex()}/{bare.span.hex()}")).status == 200


async def test_only_loopback_names_are_answered_where_it_is_guarded(app: Dashboard) -> None:
    for host in ("localhost", "localhost:4318", "127.0.0.1:4318", "127.9.9.9", "[::1]:4318", "LOCALHOST"):
        assert (await call(app, "/api/v1/meta", headers={"host": host})).status == 200
    for host in (
        "evil.example",
        "",
        "localhost.evil.example",
        "192.168.0.1",
        "[::2]",
        "[",
        "127.0.0.1.evil.example",
        "é",
    ):
        reply = await call(app, "/api/v1/meta", headers={"host": host})
        assert (reply.status, reply.json["error"]["code"]) == (421, "host")
        sent = await call(
            app, "/v1/traces", "POST", headers={"host": host, "content-type": "application/json"}, body=b"{}"
        )
        assert sent.status == 421
    open_app = Dashboard(app.store, guarded=False)
    assert (await call(open_app, "/api/v1/meta", headers={"host": "dash.example"})).status == 200
    open_app.close()


async def test_pages_of_other_origins_neither_send_nor_ask(app: Dashboard) -> None:
    kind, body = {"content-type": "application/json"}, b'{"resourceSpans": []}'
    for origin in ("https://evil.example", "null", "http://localhost:3000", "http://localhost.evil.example:4318", ""):
        for path in ("/v1/traces", "/api/v1/admin/clear"):
            reply = await call(app, path, "POST", headers=kind | {"origin": origin}, body=body)
            assert (reply.status, reply.json["error"]["code"]) == (403, "origin")
    own = kind | {"origin": "http://localhost:4318"}
    assert (await call(app, "/v1/traces", "POST", headers=own, body=body)).status == 200
    assert (await call(app, "/v1/traces", "POST", headers={"content-type": "text/plain"}, body=body)).status == 415
    for site, mode, status in (
        ("cross-site", "no-cors", 403), ("same-site", "cors", 403), ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200), ("none", "navigate", 200),
    ):  # fmt: skip
        fetched = {"sec-fetch-site": site, "sec-fetch-mode": mode}
        assert (await call(app, "/api/v1/ratio", headers=fetched)).status == status


async def test_nothing_is_changed_without_the_admin_token(app: Dashboard) -> None:
    put(app.store, lookup(START))
    for path in ("/api/v1/ratio", "/", "/api/v1/traces/" + "a" * 32, "/static/main.js"):
        assert (await call(app, path, "POST")).status == 405
        assert (await call(app, path, "DELETE")).status == 405
    for given in (
        {},
        {"authorization": "Bearer wrong-token"},
        {"authorization": "admin-token"},
        {"authorization": "é"},
    ):
        assert (await call(app, "/api/v1/admin/clear", "POST", headers=given)).status == 401
    assert (await call(app, "/api/v1/admin/clear")).status == 405
    assert (await call(app, "/api/v1/meta")).json["spans"] == 1
    with a_store() as store:
        locked = Dashboard(store)
        assert (await call(locked, "/api/v1/admin/clear", "POST", headers={"authorization": "Bearer "})).status == 404
        locked.close()


async def test_the_admin_clears_and_limits(app: Dashboard) -> None:
    token = {"authorization": "Bearer admin-token"}
    put(app.store, lookup(START))

    async def limited(body: bytes) -> Any:
        return await call(app, "/api/v1/admin/retention", "POST", headers=token, body=body)

    assert (await limited(json.dumps({"bytes": 64 << 20}).encode())).json["limit_bytes"] == 64 << 20
    for wrong in (
        b"",
        b"{}",
        b"[]",
        b'{"bytes": 5}',
        b'{"bytes": null}',
        b'{"bytes": 1e30}',
        b"x" * 5000,
        b'{"bytes": true}',
    ):
        assert (await limited(wrong)).status == 400
    assert (await call(app, "/api/v1/meta")).json["limit_bytes"] == 64 << 20
    assert (await call(app, "/api/v1/admin/clear", "POST", headers=token)).status == 200
    assert (await call(app, "/api/v1/meta")).json["spans"] == 0
    assert (await call(app, "/api/v1/admin/else", "POST", headers=token)).status == 404


async def test_the_page_is_from_the_package_and_loads_nothing_from_outside(app: Dashboard) -> None:
    reply = await call(app, "/")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert reply.headers["content-security-policy"] == POLICY
    for name, value in {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}.items():
        assert reply.headers[name] == value
    script = await call(app, "/static/main.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert (await call(app, "/static/main.js", headers={"if-none-match": script.headers["etag"]})).status == 304
    small = await call(app, "/static/main.js", headers={"accept-encoding": "gzip"})
    assert (small.headers["content-encoding"], small.headers["vary"]) == ("gzip", "accept-encoding")
    assert gzip.decompress(small.body) == script.body
    assert small.headers["etag"] != script.headers["etag"]


async def test_two_doors_can_serve_one_half_each(app: Dashboard) -> None:
    takes = Dashboard(app.store, pages=False)
    shows = Dashboard(app.store, otlp=False, receives="http://127.0.0.1:4318")
    assert (await call(takes, "/api/v1/meta")).status == 404
    assert (await call(shows, "/v1/traces", "POST")).status in (404, 405)
    assert (await call(shows, "/api/v1/meta")).json["otlp"] == "http://127.0.0.1:4318"
    assert (await call(app, "/api/v1/meta")).json["otlp"] is None
    for door in (takes, shows):
        door.close()


async def test_a_question_holds_of_the_state_that_it_began_with(app: Dashboard) -> None:
    put(app.store, lookup(START, tenant="a"))

    def task(view: View) -> Any:
        put(app.store, lookup(START, tenant="b"))
        return [row.tenant for row in browse.newest(view, Question(Window(START, time.time())), 10)]

    assert app.store.read(app.store.cursor(), task) == ["a"]
