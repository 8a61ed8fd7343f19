"""Requests that a generator makes from the proxy's own description, in front of an upstream that answers nonsense."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.server.conftest import World
from tests.unit.server.test_frame_realms import answering
from tests.unit.server.upstream import Asked, reply

from mmcache.server.app import all_routes
from mmcache.server.asgi import Send
from mmcache.server.config import RouteRules, TrustRules

schemathesis = pytest.importorskip("schemathesis", reason="needs the generator of requests")
conforms = pytest.importorskip("schemathesis.specs.openapi.checks")

CHECKS = [conforms.status_code_conformance, conforms.content_type_conformance, conforms.response_headers_conformance,
          conforms.response_schema_conformance]  # fmt: skip
"""Not whether keys are judged: that is the upstream's to do."""

ADMIN = {"authorization": "Bearer an admin's token"}
ROUTES = sorted(all_routes())
OWN = [("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/mmcache/status"), ("POST", "/mmcache/switch"),
       ("POST", "/mmcache/reload"), ("GET", "/mmcache/openapi.json")]  # fmt: skip


@pytest.fixture
def world(proxied: Callable[..., World]) -> Iterator[World]:
    trust = TrustRules(authority=None, harmless_headers=("x-schemathesis-testcaseid",))
    rules = {"default": RouteRules(sampled=True)}  # or hardly any conversation would be kept
    made = proxied(all_routes(), admin_token="an admin's token", trust=trust, routes_rules=rules)
    yield made
    made.frame.journal.flush()
    faults = [line for line in made.lines if '"event":"failed"' in line]
    assert not faults, faults
    assert not made.frame.watch.flights


def told(body: bytes) -> Any:
    """What an answer says, but for what it cost."""
    found = json.loads(body)
    return {name: value for name, value in found.items() if name != "usage"} if isinstance(found, dict) else found


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), [*ROUTES, *OWN])
def test_what_the_description_allows_and_what_not_is_answered_as_it_says(world: World, method: str, path: str) -> None:
    """No fault of a route, no 500, no status or body that the description lacks; equal questions, equal answers."""
    schema = schemathesis.openapi.from_url(f"{world.address}/mmcache/openapi.json")
    headers = ADMIN if (method, path) in OWN else {"authorization": "Bearer sk-one"}
    cached = (method, path) in ROUTES
    if cached:
        answering(world, path)
    outcomes: set[str] = set()
    cases = schema[path][method].as_strategy()
    if cached:  # the others have no body that could be wrong
        cases |= schema[path][method].as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)

    @given(case=cases)
    @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        case.headers = {**(case.headers or {}), **headers}
        if path == "/v1/responses" and isinstance(case.body, dict):
            case.body = {**case.body, "store": False}  # or it is the upstream's to keep
        answer = case.call(base_url=world.address)
        assert answer.status_code != 500, answer.text
        assert "x-mmcache" in answer.headers
        case.validate_response(answer, checks=CHECKS)
        (first,) = answer.headers["x-mmcache"]
        again = case.call(base_url=world.address)
        (second,) = again.headers["x-mmcache"]
        if second.startswith("hit"):
            assert told(again.content) == told(answer.content)
        outcomes.update(outcome.partition(";")[0] for outcome in (first, second))

    ask()
    assert not cached or ("bypass" in outcomes and outcomes & {"hit", "miss"}), outcomes  # some was kept, some not


BODIES = st.binary(max_size=200) | st.recursive(
    st.sampled_from(['"a"', "1", "null", "[]", "{}", "1e5", "-0", '"\\ud83d\\ude00"', "true"]),
    lambda inner: st.lists(inner, max_size=3).map(lambda found: f"[{','.join(found)}]")
    | st.dictionaries(
        st.sampled_from(["model", "input", "messages", "role", "content", "type", "stream", "temperature", "query",
                         "documents", "text_1", "text_2", "image_url", "url", "seed", "n", "usage"]),
        inner, max_size=6,
    ).map(lambda found: "{" + ",".join(f'"{name}":{value}' for name, value in found.items()) + "}"),
    max_leaves=20,
).map(str.encode)  # fmt: skip


@pytest.mark.parametrize("path", [path for _, path in ROUTES])
def test_whatever_comes_no_route_fails(world: World, path: str) -> None:
    """Nor whatever the upstream answers to it."""
    answers: list[bytes] = [b"{}"]

    async def answer(asked: Asked, send: Send) -> None:
        await reply(send, 200, answers[-1])

    world.upstream.on(path, answer)

    @given(BODIES, BODIES)
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(body: bytes, answered: bytes) -> None:
        answers.append(answered)
        headers = {"authorization": "Bearer sk-one", "content-type": "application/json"}
        for _ in range(2):
            found = world.client.post(path, content=body, headers=headers)
            assert found.status_code in (200, 400, 413, 502), found.text
            assert not found.headers["x-mmcache"].endswith("failed")

    ask()
