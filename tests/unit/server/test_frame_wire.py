"""Bytes on a connection: requests that may be read in two ways, and heads that never end."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
from tests.unit.server.conftest import World

from mmcache.server import drain
from mmcache.server.exchange import Answered, Asked, Proxy, Verdict

KEY = b"authorization: Bearer sk-one\r\n"
BODY = b'{"model":"small"}'


def talk(world: World, sent: bytes) -> bytes:
    """All that comes back until the proxy closes the connection."""
    with socket.create_connection(("127.0.0.1", world.port), timeout=10) as client:
        found = b""
        try:
            client.sendall(sent)
            while piece := client.recv(65536):
                found += piece
        except (ConnectionResetError, BrokenPipeError):
            pass
        return found


def post(*headers: bytes, body: bytes = BODY, target: bytes = b"/v1/echo", close: bool = True) -> bytes:
    """A request, framed by `headers`."""
    lines = [b"POST " + target + b" HTTP/1.1", b"host: a", *headers, *([b"connection: close"] if close else [])]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


LENGTH = b"content-length: 17"
KEYED = b"authorization: Bearer sk-one"


@pytest.mark.parametrize(
    "sent",
    [
        post(KEYED, LENGTH, b"content-length: 18"),
        post(KEYED, LENGTH, LENGTH),
        post(KEYED, b"content-length: 17, 17"),
        post(KEYED, b"content-length: +17"),
        post(KEYED, b"content-length: -1"),
        post(KEYED, b"content-length: 0x11"),
        post(KEYED, LENGTH, b"transfer-encoding: chunked", body=b"0\r\n\r\n"),
        post(KEYED, b"transfer-encoding: chunked", LENGTH, body=b"0\r\n\r\n"),
        post(KEYED, b"transfer-encoding: chunked, identity", body=b"0\r\n\r\n"),
        post(KEYED, b"transfer-encoding: xchunked", LENGTH),
        post(KEYED, b"transfer-encoding : chunked", body=b"0\r\n\r\n"),
        post(KEYED, b"content-length : 17"),
        post(KEYED, LENGTH, b"x: a\r\n folded: b"),
        post(KEYED, LENGTH, b"authorization: Bearer sk-one\r\n more"),
        post(KEYED, LENGTH, b"x: a\x00b"),
        post(KEYED, LENGTH, b"x: a\rb"),
        post(KEYED, LENGTH, b"x\x00y: a"),
        post(KEYED, LENGTH, b"x y: a"),
        post(KEYED, LENGTH, b": a"),
        post(KEYED, LENGTH, b"no colon"),
        post(KEYED, b"transfer-encoding: chunked", body=b"zz\r\n\r\n"),
        post(KEYED, b"transfer-encoding: chunked", body=b"5;\x00\r\nhello\r\n0\r\n\r\n"),
        post(KEYED, b"transfer-encoding: chunked", body=b"11\r\n" + BODY + b"X\r\n0\r\n\r\n"),
        b"POST /v1/echo HTTP/9.9\r\nhost: a\r\n\r\n",
        b"POST /v1/echo\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"POST /v1/ec ho HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST /v1/echo\x00 HTTP/1.1\r\nhost: a\r\n\r\n",
        post(KEYED, LENGTH, target=b"*"),
        post(KEYED, LENGTH, target=b"@127.0.0.1:1/v1/echo"),
        post(KEYED, LENGTH, target=b":1/v1/echo"),
        post(KEYED, LENGTH, target=b".example.org/"),
        post(KEYED, LENGTH, target=b"v1/echo"),
        b"GET http:// HTTP/1.1\r\nhost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_may_be_read_in_two_ways_is_refused(proxied: Callable[..., World], sent: bytes) -> None:
    world = proxied()
    found = talk(world, sent)
    assert found.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501")) or found == b"", found
    assert found.count(b"HTTP/1.1 ") <= 1
    assert world.upstream.asked == []


def test_a_request_hidden_in_a_body_stays_in_it(proxied: Callable[..., World]) -> None:
    world = proxied()
    hidden = b"POST /admin HTTP/1.1\r\nhost: a\r\n\r\n"
    chunked = b"%x\r\n" % len(hidden) + hidden + b"\r\n0\r\n\r\n"
    for sent in (post(KEYED, b"content-length: %d" % len(hidden), body=hidden, target=b"/v1/files"),
                 post(KEYED, b"transfer-encoding: chunked", body=chunked, target=b"/v1/files")):  # fmt: skip
        assert talk(world, sent).count(b"HTTP/1.1 200") == 1
    assert [asked.path for asked in world.upstream.asked] == ["/v1/files", "/v1/files"]
    assert all(asked.body == hidden for asked in world.upstream.asked)


def test_requests_in_a_row_are_answered_in_a_row(proxied: Callable[..., World]) -> None:
    world = proxied()
    found = talk(world, post(KEYED, LENGTH, close=False) + post(KEYED, LENGTH, close=False) + post(KEYED, LENGTH))
    assert [line for line in found.split(b"\r\n") if line.startswith(b"x-mmcache")] == [
        b"x-mmcache: miss; reason=absent", b"x-mmcache: hit", b"x-mmcache: hit",
    ]  # fmt: skip


def test_what_comes_behind_a_body_in_chunks_is_no_header(proxied: Callable[..., World]) -> None:
    """A trailer can neither say who asks nor reach the upstream."""
    world = proxied()
    chunks = b"11\r\n" + BODY + b"\r\n0\r\nauthorization: Bearer sk-two\r\nx-mmcache-tenant: b\r\nx-late: 1\r\n\r\n"
    assert b" 401 " in talk(world, post(b"transfer-encoding: chunked", body=chunks)).partition(b"\r\n")[0]
    assert b" 200 " in talk(world, post(KEYED, b"transfer-encoding: chunked", body=chunks)).partition(b"\r\n")[0]
    assert b" 200 " in talk(world, post(KEYED, b"transfer-encoding: chunked", body=chunks, target=b"/a"))
    for asked in world.upstream.asked:
        assert asked.header(b"x-late") is None
        assert asked.header(b"authorization") == b"Bearer sk-one"
    assert len(world.frame.live.tenants._known) == 1


def test_an_absolute_target_cannot_choose_the_upstream(proxied: Callable[..., World]) -> None:
    world = proxied()
    for target in (b"http://127.0.0.1:1/v1/files", b"http://127.0.0.1:1/v1/echo"):
        assert b" 200 " in talk(world, post(KEYED, LENGTH, target=target)).partition(b"\r\n")[0]
    assert [asked.path for asked in world.upstream.asked] == ["/v1/files", "/v1/echo"]
    assert all(asked.header(b"host") == world.behind[7:].encode() for asked in world.upstream.asked)


def test_upper_case_names_are_the_same_headers(proxied: Callable[..., World]) -> None:
    world = proxied()
    assert b"400" in talk(world, post(KEYED, b"AUTHORIZATION: Bearer sk-two", LENGTH)).partition(b"\r\n")[0]
    assert b"403" in talk(world, post(KEYED, b"X-MMCache-Tenant: a", LENGTH)).partition(b"\r\n")[0]
    assert world.upstream.asked == []


def test_a_head_that_never_ends_is_cut(proxied: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    world = proxied()
    endless = b"GET /a HTTP/1.1\r\nhost: a\r\n" + b"x: " + b"a" * (drain.HEAD_BYTES + 70_000)
    many = b"GET /a HTTP/1.1\r\nhost: a\r\n" + b"x: a\r\n" * (drain.HEAD_BYTES // 5)
    for sent in (endless, many):
        assert talk(world, sent).startswith(b"HTTP/1.1 431") or sent is endless  # it may be cut while it is sent
    assert world.upstream.asked == []
    monkeypatch.setattr(drain, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(drain, "IDLE_SECONDS", 0.05)
    assert talk(world, b"GET /a HTTP/1.1\r\nhost: a\r\nx: ").startswith(b"HTTP/1.1 408")
    assert talk(world, b"") == b""
    found = talk(world, b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")  # kept, and closed when nothing follows
    assert found.startswith(b"HTTP/1.1 200")
    assert world.upstream.asked == []


def test_an_answer_with_a_line_end_in_a_header_is_never_sent(proxied: Callable[..., World]) -> None:
    async def splits(asked: Asked, proxy: Proxy) -> Answered:
        return Answered(200, [(b"x-a", b"1\r\nset-cookie: a=b")], b"{}", Verdict("miss"), "small")

    found = talk(proxied({("POST", "/v1/echo"): splits}), post(KEYED, LENGTH))
    assert b"set-cookie" not in found
    assert found.startswith(b"HTTP/1.1 500")
