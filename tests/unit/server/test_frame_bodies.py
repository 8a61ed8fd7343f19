"""Bodies at the door of a cached route: too large, compressed, slow, broken off."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable

import pytest
from tests.unit.server.conftest import KEY, World
from tests.unit.server.echo import ECHO

from mmcache.server import asgi
from mmcache.server.config import RouteRules

SMALL = {ECHO: RouteRules(largest_body_bytes=1000)}


def test_a_body_that_is_too_large_is_refused_however_it_comes(proxied: Callable[..., World]) -> None:
    world = proxied(routes_rules=SMALL)
    exact = json.dumps({"model": "small", "text": ""})
    exact = exact.replace('""', '"' + "a" * (1000 - len(exact)) + '"')
    assert world.client.post(ECHO, content=exact, headers=KEY).status_code == 200
    for content in (b"a" * 1001, b"a" * 500_000, iter([b"a" * 600, b"a" * 600]), gzip.compress(bytes(1001))):
        packed = {"content-encoding": "gzip"} if isinstance(content, bytes) and content[:2] == b"\x1f\x8b" else {}
        answer = world.client.post(ECHO, content=content, headers=KEY | packed)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert world.upstream.count(ECHO) == 1


def test_a_compressed_body_is_the_same_question(proxied: Callable[..., World]) -> None:
    world = proxied()
    body = json.dumps({"model": "small"}).encode()
    assert world.client.post(ECHO, content=body, headers=KEY).headers["x-mmcache"].startswith("miss")
    packed = world.client.post(ECHO, content=gzip.compress(body), headers=KEY | {"content-encoding": "gzip"})
    assert packed.headers["x-mmcache"] == "hit"
    other = world.client.post(ECHO, content=gzip.compress(b'{"a":1}'), headers=KEY | {"content-encoding": "gzip"})
    assert other.json()["body"] == '{"a":1}'
    assert not [name for name, _ in other.json()["headers"] if name == "content-encoding"]
    bad = world.client.post(ECHO, content=b"x", headers=KEY | {"content-encoding": "br"})
    assert (bad.status_code, bad.json()["error"]["code"]) == (415, "content_encoding")


def test_a_client_that_leaves_in_the_middle_of_its_body_asks_nothing(proxied: Callable[..., World]) -> None:
    world = proxied()
    for path in (ECHO, "/v1/files"):
        with socket.create_connection(("127.0.0.1", world.port)) as client:
            client.sendall(f"POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer k\r\n".encode())
            client.sendall(b'content-length: 100\r\n\r\n{"model":')
            while not world.frame.watch.flights:
                threading.Event().wait(0.005)
        while world.frame.watch.flights:
            threading.Event().wait(0.005)
    assert world.upstream.count(ECHO) == 0
    assert world.ask().status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(
    proxied: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "SILENT_SECONDS", 0.05)
    world = proxied()
    with socket.create_connection(("127.0.0.1", world.port), timeout=10) as client:
        client.sendall(f"POST {ECHO} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer k\r\n".encode())
        client.sendall(b"content-length: 100\r\n\r\n{")
        assert client.recv(1000).startswith(b"HTTP/1.1 408")


def test_expect_continue_is_answered(proxied: Callable[..., World]) -> None:
    world = proxied()
    for path in (ECHO, "/v1/files"):
        with socket.create_connection(("127.0.0.1", world.port), timeout=10) as client:
            head = f"POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer k\r\nexpect: 100-continue\r\n"
            client.sendall(head.encode() + b"content-length: 2\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 100")
            client.sendall(b"{}")
            assert client.recv(1000).startswith(b"HTTP/1.1 200")
    assert all(asked.header(b"expect") is None for asked in world.upstream.asked)
