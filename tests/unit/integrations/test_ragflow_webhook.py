"""The webhook: who is believed, what a message looks like, and what it drops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache import Cache
from mmcache.integrations.ragflow import Mounted, webhook
from mmcache.integrations.ragflow.webhook import SIGNATURE_HEADER, receive, sign
from mmcache.model.errors import SettingsError, TierError
from mmcache.semantic.prompt import Prompt

SECRET = "s3cret-of-the-webhook"
NOW = 1_800_000_000.0
BEARER = {"authorization": f"Bearer {SECRET}"}


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache(memory="4MiB") as made:
        yield made


def message(**fields: Any) -> bytes:
    told = {"event": "document.changed", "id": "1", "dataset_id": "manual", "document_ids": ["one"]} | fields
    return json.dumps({name: value for name, value in told.items() if value is not ...}).encode()


def signed(body: bytes, now: float = NOW, secret: str = SECRET) -> dict[str, str]:
    return {SIGNATURE_HEADER: sign(body, secret, now)}


def test_what_changed_is_out_of_reach(cache: Cache) -> None:
    def ask(*documents: str) -> str:
        return cache.ask(Prompt("q", documents=documents), lambda prompt: "answer", model="m 1").source

    names = ("one", "manual", "elsewhere")
    for name in names:
        ask(name)
    assert [ask(name) for name in names] == ["exact"] * 3
    status, told = receive(message(), signed(message()), SECRET, cache, NOW)
    assert (status, told["status"]) == (200, "ok")
    assert [ask(name) for name in names] == ["computed", "computed", "exact"]
    dataset = message(event="dataset.changed", document_ids=..., id="2")
    assert receive(dataset, BEARER, SECRET, cache, NOW)[0] == 200
    assert [ask(name) for name in names] == ["exact", "computed", "exact"]


def test_other_tenants_are_reached_by_name(cache: Cache) -> None:
    def ask() -> str:
        return cache.ask(Prompt("q", documents=["one"]), lambda prompt: "a", model="m 1", tenant="blue").source

    ask()
    receive(message(), BEARER, SECRET, cache, NOW)
    assert ask() == "exact"
    receive(message(tenant="blue", id="2"), BEARER, SECRET, cache, NOW)
    assert ask() == "computed"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {SECRET}"},
        {"authorization": SECRET},
        {SIGNATURE_HEADER: ""},
        {SIGNATURE_HEADER: "t=,v1="},
        {SIGNATURE_HEADER: f"t={int(NOW)}"},
        {SIGNATURE_HEADER: f"t={int(NOW)},v1={'0' * 64}"},
        {SIGNATURE_HEADER: f"t=-1,v1={'0' * 64}"},
        {SIGNATURE_HEADER: "t=²,v1=é"},
        signed(message(), NOW - 301),
        signed(message(), NOW + 301),
        signed(message(), secret="another secret, as long"),
        signed(message(id="other")),
        signed(message(id="other")) | BEARER,
    ],
    ids=str,
)
def test_who_is_not_believed_changes_nothing(cache: Cache, headers: dict[str, str]) -> None:
    status, told = receive(message(), headers, SECRET, cache, NOW)
    assert status == 401
    assert SECRET not in json.dumps(told)


def test_sent_again_it_does_nothing(cache: Cache) -> None:
    body = message()
    assert receive(body, signed(body), SECRET, cache, NOW)[1]["status"] == "ok"
    assert receive(body, signed(body, NOW + 9), SECRET, cache, NOW + 10)[1]["status"] == "duplicate"
    other = message(document_ids=["two"])  # a careless sender: the same id for something else
    assert receive(other, signed(other), SECRET, cache, NOW)[1]["status"] == "ok"
    without = message(id=...)
    assert receive(without, signed(without), SECRET, cache, NOW)[0] == 400
    for _ in range(2):  # nobody can say that it is the same
        assert receive(without, BEARER, SECRET, cache, NOW)[1]["status"] == "ok"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b"[]", "object"),
        (message(event="document.gone"), "event"),
        (message(event=...), "event"),
        (message(dataset_id=7), "dataset_id"),
        (message(dataset_id=...), "dataset_id"),
        (message(dataset_id=""), "dataset_id"),
        (message(document_ids=[]), "document_ids"),
        (message(document_ids=["x"] * 1001), "document_ids"),
        (message(document_ids=["x" * 129]), "document_ids"),
        (message(id="no spaces"), "id"),
        (message(extra=1), "extra"),
        (message(event="dataset.changed"), "document_ids"),
        (message(tenant=""), "tenant"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_no_message_is_refused_with_a_reason(cache: Cache, body: bytes, why: str) -> None:
    status, told = receive(body, BEARER, SECRET, cache, NOW)
    assert status == 400
    assert why in told["error"]["message"]


def test_limits(cache: Cache) -> None:
    assert receive(b" " * (64 * 1024 + 1), BEARER, SECRET, cache, NOW)[0] == 413
    assert receive(message(time=NOW - 400), BEARER, SECRET, cache, NOW)[0] == 401
    assert receive(message(time=NOW - 200), BEARER, SECRET, cache, NOW)[0] == 200
    for weak in ("", "short", None):
        with pytest.raises(SettingsError):
            receive(message(), BEARER, weak, cache, NOW)  # type: ignore[arg-type]


def test_what_cannot_be_written_down_is_to_be_sent_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise TierError("no space")

    monkeypatch.setattr(cache, "changed", full)
    assert receive(message(), BEARER, SECRET, cache, NOW)[0] == 503
    monkeypatch.undo()
    assert receive(message(), BEARER, SECRET, cache, NOW)[1]["status"] == "ok"


async def over_asgi(app: Any, body: list[bytes], headers: Any, **changes: Any) -> list[dict[str, Any]]:
    pairs = headers.items() if isinstance(headers, dict) else headers
    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/mmcache/webhooks/ragflow",
        "headers": [(name.encode(), value.encode()) for name, value in pairs],
    }  # fmt: skip
    messages = [
        {"type": "http.request", "body": part, "more_body": place < len(body) - 1} for place, part in enumerate(body)
    ]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope | changes, receive, send)
    return sent


async def test_mounted_in_front_of_another_application(cache: Cache) -> None:
    async def other(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 299, "headers": []})

    app = Mounted(other, cache, SECRET, clock=lambda: NOW)
    body = message()
    halves = [body[:9], body[9:]]
    taken = await over_asgi(app, halves, signed(body))
    assert taken[0]["status"] == 200
    assert json.loads(taken[1]["body"]) == {"status": "ok", "dropped": 0}
    assert (await over_asgi(app, halves, {}))[0]["status"] == 401
    assert (await over_asgi(app, [body], BEARER, path="/v1/models"))[0]["status"] == 299
    assert (await over_asgi(app, [], BEARER, type="lifespan"))[0]["status"] == 299
    refused = await over_asgi(app, [b""], BEARER, method="GET")
    assert refused[0]["status"] == 405
    assert (b"allow", b"POST") in refused[0]["headers"]
    assert (await over_asgi(app, [b" " * 40_000] * 9, BEARER))[0]["status"] == 413
    assert (await over_asgi(app, [body], BEARER | {"content-encoding": "gzip"}))[0]["status"] == 415
    twice = [("authorization", f"Bearer {SECRET}")] * 2
    assert (await over_asgi(app, [body], twice))[0]["status"] == 400
    assert await over_asgi(app, [], BEARER) == []
    with pytest.raises(SettingsError):
        Mounted(other, cache, "weak")


def test_the_schema_is_the_one_that_is_shipped() -> None:
    assert json.loads(webhook.SCHEMA_FILE.read_text(encoding="utf-8")) == webhook.schema()


@given(
    st.fixed_dictionaries(
        {"event": st.sampled_from(["document.changed", "dataset.changed", "x"]), "dataset_id": st.text(max_size=130)},
        optional={
            "id": st.one_of(st.none(), st.from_regex(r"[A-Za-z0-9_.:\-]{0,130}", fullmatch=True), st.integers()),
            "time": st.one_of(st.none(), st.just(NOW), st.just(-1), st.text(max_size=2)),
            "document_ids": st.lists(st.text(max_size=3), max_size=3),
            "tenant": st.one_of(st.none(), st.text(max_size=3)),
            "more": st.none(),
        },
    )
)
def test_the_schema_and_the_receiver_agree(told: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    valid = jsonschema.Draft202012Validator(webhook.schema()).is_valid(told)
    with Cache(memory="1MiB") as cache:
        status, _ = receive(json.dumps(told).encode(), BEARER, SECRET, cache, NOW)
    assert (status == 200) == valid
