"""What operators see and do: health, status, the switch, reloads, limits, the access log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.unit.server.conftest import World
from tests.unit.server.echo import ECHO
from tests.unit.server.upstream import Asked as Reached
from tests.unit.server.upstream import reply

from mmcache.model.errors import SettingsError
from mmcache.server.app import all_routes
from mmcache.server.asgi import Send
from mmcache.server.config import RouteRules, ServerSettings, TrustRules
from mmcache.server.exchange import Answered, Asked, Proxy, Verdict
from mmcache.server.settings_file import Configured

ADMIN = {"authorization": "Bearer an admin's token"}
TOKEN = "an admin's token"


def test_health_is_always_told(proxied: Callable[..., World]) -> None:
    world = proxied()
    assert world.client.get("/healthz").json() == {"status": "ok"}
    assert world.client.head("/healthz").status_code == 200
    assert world.client.post("/healthz").status_code == 405
    assert world.client.get("/readyz").json() == {"status": "ready"}
    world.frame.draining = True
    answer = world.client.get("/readyz")
    assert (answer.status_code, answer.json()["reason"]) == (503, "draining")
    assert world.client.get("/healthz").status_code == 200


def test_ready_means_that_the_upstream_and_the_cache_are(
    proxied: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmcache.server.operations.READY_SECONDS", 0.0)
    gone = proxied(upstream="http://127.0.0.1:1").client.get("/readyz")
    assert (gone.status_code, gone.json()["reason"]) == (503, "the upstream cannot be reached")
    world = proxied()
    world.upstream.refused.add(None)  # type: ignore[arg-type]  # whoever has no key
    assert world.client.get("/readyz").status_code == 200
    world.upstream.down = True
    assert world.client.get("/readyz").json()["reason"] == "the upstream answers with an error"
    world.upstream.down = False
    world.frame.live.proxy.cache.close()
    assert world.client.get("/readyz").json()["reason"] == "the cache is closed"


def test_many_who_ask_whether_it_is_ready_ask_the_upstream_once(proxied: Callable[..., World]) -> None:
    world = proxied()
    for _ in range(10):
        world.client.get("/readyz")
    assert len(world.upstream.asked) == 1


def test_without_a_token_the_operators_paths_are_not_there(proxied: Callable[..., World]) -> None:
    world = proxied()
    for method, path in (("GET", "/mmcache/status"), ("POST", "/mmcache/switch"), ("POST", "/mmcache/reload"),
                         ("GET", "/mmcache/"), ("GET", "/mmcache/anything")):  # fmt: skip
        assert world.client.request(method, path, headers=ADMIN).status_code == 404
    assert world.upstream.asked == []


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}, {"authorization": "Bearer"},
     {"authorization": f"Basic {TOKEN}"}, {"api-key": TOKEN}],
)  # fmt: skip
def test_a_wrong_token_is_refused(proxied: Callable[..., World], headers: dict[str, str]) -> None:
    world = proxied(admin_token=TOKEN)
    for method, path in (("GET", "/mmcache/status"), ("POST", "/mmcache/switch"), ("POST", "/mmcache/reload")):
        assert world.client.request(method, path, headers=headers).status_code == 401
    twice = [("authorization", "Bearer wrong"), ("authorization", f"Bearer {TOKEN}")]
    assert world.client.get("/mmcache/status", headers=twice).status_code == 401
    assert world.client.get("/mmcache/switch", headers=ADMIN).status_code == 405


def test_the_status_says_what_was_done_and_saved(proxied: Callable[..., World]) -> None:
    async def saves(asked: Asked, proxy: Proxy) -> Answered:
        proxy.compared(asked.path, asked.body == b'{"model":"small","text":"a"}')
        verdict = Verdict("miss", "absent") if b'"b"' in asked.body else Verdict("hit", "", 1.5, saved_tokens=7)
        verdict.age_seconds = 3.7
        return Answered(200, [], b"{}", verdict, "small")

    world = proxied({("POST", ECHO): saves}, admin_token=TOKEN)
    assert world.ask("b").headers["age"] == "3"
    for _ in range(3):
        world.ask("a")
    world.ask("a", cache_control="no-store")
    world.ask("a", authorization="")
    world.client.get("/v1/files")
    found = world.client.get("/mmcache/status", headers=ADMIN).json()
    assert found["routes"][ECHO] == {
        "hit": {"count": 3, "reasons": {}}, "miss": {"count": 1, "reasons": {"absent": 1}},
        "bypass": {"count": 2, "reasons": {"no-store": 1, "missing-api-key": 1}},
    }  # fmt: skip
    assert found["routes"]["other"]["pass"]["count"] == 1
    assert (found["saved_seconds"], found["saved_tokens"]) == (4.5, 21)
    assert found["compared"] == {ECHO: {"same": 3, "different": 1}}
    assert found["refused"] == {"401": 1}
    (tenant,) = found["tenants"]
    assert tenant["tenant"].startswith("key:")
    assert len(tenant["tenant"]) == 36
    assert (tenant["hit"], tenant["miss"], tenant["saved_tokens"]) == (3, 1, 21)
    assert found["modes"] == {ECHO: "on", "switched": {}}
    assert "hits" in found["cache"]
    assert "sk-one" not in str(found)


def switch(world: World, **wanted: Any) -> Any:
    return world.client.post("/mmcache/switch", json=wanted, headers=ADMIN)


def test_the_kill_switch(proxied: Callable[..., World]) -> None:
    modes = []

    async def tells(asked: Asked, proxy: Proxy) -> Answered:
        modes.append(asked.rules.mode)
        return Answered(200, [], b"{}", Verdict("miss"), "small")

    world = proxied({("POST", ECHO): tells, ("POST", "/v1/b"): tells}, admin_token=TOKEN)
    assert switch(world, mode="off").json() == {"switched": {"*": "off"}}
    assert world.ask().headers["x-mmcache"] == "pass"
    assert switch(world, mode="on").status_code == 200
    assert switch(world, mode="shadow", route=ECHO).status_code == 200
    world.ask()
    world.ask(path="/v1/b")
    assert modes == ["shadow", "on"]
    for wrong in ({}, {"mode": "fast"}, {"mode": "off", "route": "/v1/c"}, {"mode": "off", "also": 1}, {"mode": 1}):
        assert switch(world, **wrong).status_code == 400
    for content in (b"", b"nonsense", b"\xff", b"[]"):
        assert world.client.post("/mmcache/switch", content=content, headers=ADMIN).status_code == 400
    assert world.client.post("/mmcache/switch", content=bytes(100_000), headers=ADMIN).status_code == 413


def test_the_stricter_of_switch_and_rules_holds(proxied: Callable[..., World]) -> None:
    world = proxied(admin_token=TOKEN, routes_rules={ECHO: RouteRules(mode="off")})
    switch(world, mode="on", route=ECHO)
    assert world.ask().headers["x-mmcache"] == "pass"
    assert world.client.get("/mmcache/status", headers=ADMIN).json()["modes"][ECHO] == "off"


def test_a_cache_that_is_switched_off_serves_nothing(proxied: Callable[..., World]) -> None:
    from mmcache import Cache

    with Cache(memory="1MiB", mode="off") as cache:
        world = proxied(cache=cache)
        world.ask()
        assert world.ask().headers["x-mmcache"] == "pass"


def test_a_reload_changes_what_it_can_and_says_what_it_cannot(proxied: Callable[..., World]) -> None:
    wanted: list[Any] = []

    def read() -> Configured:
        if isinstance(wanted[-1], Exception):
            raise wanted[-1]
        return Configured(wanted[-1])

    world = proxied(admin_token=TOKEN, reload=read)
    old = world.frame.live.proxy.settings
    wanted.append(replace(old, routes={ECHO: RouteRules(mode="off")}, version="2", port=1, upstream="http://elsewhere"))
    found = world.client.post("/mmcache/reload", headers=ADMIN)
    assert found.json() == {"changed": ["version", "routes"], "needs_restart": ["upstream", "port"]}
    assert world.ask().headers["x-mmcache"] == "pass"
    assert world.frame.live.proxy.settings.upstream == old.upstream
    assert world.frame.live.proxy.settings.version == "2"
    wanted.append(SettingsError("line 3: [server] has no prot"))
    bad = world.client.post("/mmcache/reload", headers=ADMIN)
    assert (bad.status_code, bad.json()["error"]["code"]) == (400, "settings")
    assert "no prot" in bad.json()["error"]["message"]
    assert world.frame.live.proxy.settings.version == "2"
    switch(world, mode="off")
    wanted.append(replace(old, access_log=False))
    assert world.client.post("/mmcache/reload", headers=ADMIN).status_code == 200
    assert world.ask().headers["x-mmcache"] == "pass"  # a kill switch outlives reloads
    assert proxied(admin_token=TOKEN).client.post("/mmcache/reload", headers=ADMIN).status_code == 400


def test_nothing_kept_under_old_settings_is_used_under_new_ones(proxied: Callable[..., World]) -> None:
    """Rooms remember whole answers beside the cache: another version of the models must not be served them."""
    wanted: list[ServerSettings] = []
    world = proxied(all_routes(), admin_token=TOKEN, reload=lambda: Configured(wanted[-1]))

    async def embed(asked: Reached, send: Send) -> None:
        data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
        await reply(send, 200, {"object": "list", "model": "small", "data": data, "usage": {"total_tokens": 1}})

    world.upstream.on("/v1/embeddings", embed)

    def outcome() -> str:
        body = {"model": "small", "input": "a"}
        answer = world.client.post("/v1/embeddings", json=body, headers={"authorization": "Bearer sk-one"})
        found: str = answer.headers["x-mmcache"].partition(";")[0]
        return found

    assert outcome() == "miss"
    while outcome() != "hit":
        pass
    assert outcome() == "hit"
    wanted.append(replace(world.frame.live.proxy.settings, version="2"))
    assert world.client.post("/mmcache/reload", headers=ADMIN).json()["changed"] == ["version"]
    assert outcome() == "miss"


def test_requests_of_a_tenant_are_limited_and_others_are_not(proxied: Callable[..., World]) -> None:
    world = proxied(rate=2.0, trust=TrustRules(authority_seconds=1e6))
    statuses = [world.ask().status_code for _ in range(4)]
    assert statuses[:2] == [200, 200]
    assert statuses[-1] == 429
    refused = world.ask(openai_beta="1")  # no header makes another caller
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert world.client.get("/v1/models", headers={"authorization": "Bearer sk-one"}).status_code == 429
    assert world.ask(authorization="Bearer sk-two").status_code == 200


def test_the_access_log_has_no_secrets_and_nothing_of_what_was_asked(proxied: Callable[..., World]) -> None:
    world = proxied(admin_token=TOKEN)
    world.ask("a private prompt")
    world.ask("a private prompt")
    world.client.get("/v1/files/private?key=private", headers={"authorization": "Bearer private", "cookie": "private"})
    world.client.get("/mmcache/status", headers=ADMIN)
    world.ask("a private prompt", x_mmcache_tenant="private")
    world.frame.journal.flush()
    lines = [msgspec.json.decode(line) for line in world.lines]
    shown = [(line["method"], line["route"], line["status"], line["outcome"], line["reason"]) for line in lines]
    assert shown == [
        ("POST", ECHO, 200, "miss", "absent"), ("POST", ECHO, 200, "hit", ""), ("GET", "other", 200, "pass", ""),
        ("GET", "own", 200, "pass", "own"), ("POST", ECHO, 403, "bypass", "front-proxy"),
    ]  # fmt: skip
    for secret in ("private", "sk-one", TOKEN):
        assert secret not in "".join(world.lines)
    assert all(line["ms"] >= 0 for line in lines)


def test_the_description_is_served(proxied: Callable[..., World]) -> None:
    world = proxied(all_routes())
    found = world.client.get("/mmcache/openapi.json").json()
    assert found["openapi"].startswith("3.1")
    paths = {path for _, path in all_routes()}
    assert paths <= set(found["paths"])
    assert {"/healthz", "/readyz", "/mmcache/status", "/mmcache/switch", "/mmcache/reload"} <= set(found["paths"])
    for path in paths:
        assert "requestBody" in found["paths"][path]["post"], path


def test_settings_are_not_told_with_their_secrets() -> None:
    settings = ServerSettings("http://a", admin_token="secret", trust=TrustRules(front_token="secret"))
    assert "secret" not in repr(settings)
