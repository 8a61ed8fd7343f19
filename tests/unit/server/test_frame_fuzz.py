"""Requests that a generator makes from the proxy's own description, in front of an upstream that answers nonsense."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.server.conftest import World
from tests.unit.server.upstream import Asked, reply

from mmcache.server.app import all_routes
from mmcache.server.asgi import Send
from mmcache.server.config import TrustRules

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
    made = proxied(all_routes(), admin_token="an admin's token", trust=trust)
    yield made
    made.frame.journal.flush()
    faults = [line for line in made.lines if '"event":"failed"' in line]
    assert not faults, faults
    assert not made.frame.watch.flights


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path"), [*ROUTES, *OWN])
def test_what_the_description_allows_is_answered_as_it_says(world: World, method: str, path: str) -> None:
    """No fault of a route, no 500, no status or body that the description lacks; equal questions, equal answers."""
    schema = schemathesis.openapi.from_url(f"{world.address}/mmcache/openapi.json")
    headers = ADMIN if (method, path) in OWN else {"authorization": "Bearer sk-one"}

    @given(case=schema[path][method].as_strategy())
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        case.headers = {**(case.headers or {}), **headers}
        answer = case.call(base_url=world.address)
        assert answer.status_code != 500, answer.text
        assert "x-mmcache" in answer.headers
        case.validate_response(answer, checks=CHECKS)
        if "hit" in case.call(base_url=world.address).headers["x-mmcache"]:
            assert case.call(base_url=world.address).content == answer.content

    ask()


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
