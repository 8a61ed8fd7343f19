"""Clients and upstreams that hold what others need: connections, memory, answers that do not come."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.server.conftest import World
from tests.unit.server.echo import ECHO
from tests.unit.server.test_frame_wire import BODY, KEYED, LENGTH, post, talk
from tests.unit.server.upstream import Asked as Reached
from tests.unit.server.upstream import reply, run

from mmcache.model.errors import ProxyError
from mmcache.server import asgi, authority, drain, upstream_http
from mmcache.server.asgi import Send
from mmcache.server.config import TrustRules
from mmcache.server.exchange import Answered, Asked, Proxy, Verdict
from mmcache.server.journal import Journal
from mmcache.server.settings_file import read

ALWAYS = TrustRules(authority_seconds=1e-9)


class Hold:
    """A handler that answers when it is let go."""

    streams = True

    def __init__(self) -> None:
        self.event = threading.Event()

    async def __call__(self, asked: Reached, send: Send) -> None:
        await asked.read()
        while not self.event.is_set():
            await asyncio.sleep(0.005)
        await reply(send, 200, {})


@pytest.fixture
def hold() -> Iterator[Hold]:
    found = Hold()
    yield found
    found.event.set()


def until(true: Callable[[], bool]) -> None:
    """Wait for it, 10 s at most."""
    for _ in range(2000):
        if true():
            return
        threading.Event().wait(0.005)
    pytest.fail("it did not come to be")


def test_an_authority_that_hangs_says_nothing(
    proxied: Callable[..., World], hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "PROBE_SECONDS", 0.05)
    world = proxied(trust=ALWAYS)
    world.ask()
    world.upstream.on("/v1/models", hold)
    answer = world.ask()
    assert (answer.status_code, answer.headers["x-mmcache"]) == (200, "bypass; reason=denied")
    assert world.upstream.count(ECHO) == 2


def test_a_caller_may_have_so_many_requests_under_way(proxied: Callable[..., World], hold: Hold) -> None:
    world = proxied(at_once=2)
    world.upstream.on("/v1/files", hold)
    world.upstream.on(ECHO, hold)
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(world.ask), pool.submit(world.ask, path="/v1/files")]
        until(lambda: len(world.upstream.asked) == 2)
        for path in (ECHO, "/v1/files"):
            refused = world.ask("b", path=path)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert world.ask("b", path="/v1/other", authorization="Bearer sk-two").status_code == 200
        hold.event.set()
        assert [each.result().status_code for each in asking] == [200, 200]
    assert world.ask().status_code == 200
    assert all(account.flying == 0 for account in world.frame.accounts._by_caller.values())


def test_what_is_refused_for_its_rate_is_not_under_way(proxied: Callable[..., World]) -> None:
    world = proxied(at_once=1, rate=1e-3)
    assert [world.ask().status_code for _ in range(3)] == [200, 429, 429]
    (account,) = world.frame.accounts._by_caller.values()
    assert account.flying == 0


def test_the_limit_stands_in_the_file(tmp_path: Any) -> None:
    file = tmp_path / "mmcache.toml"
    file.write_text('[server]\nat_once = 7\n[upstream]\nurl = "http://a"\n')
    assert read(file).server.at_once == 7


def test_who_waits_for_a_connection_does_not_wait_for_ever(
    proxied: Callable[..., World], hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_http, "QUEUE_SECONDS", 0.05)
    world = proxied(connections=1, connect_seconds=0.2)
    world.upstream.on("/v1/files", hold)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(world.ask, path="/v1/files")
        until(lambda: len(world.upstream.asked) == 1)
        late = world.ask(path="/v1/files", authorization="Bearer sk-two")
        assert (late.status_code, late.json()["error"]["code"]) == (504, "upstream_timeout")
        hold.event.set()
        assert first.result().status_code == 200


def test_who_takes_nothing_is_cut(proxied: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STALLED_SECONDS", "HEAD_SECONDS"):
        monkeypatch.setattr(drain, name, 0.05)
    gone = threading.Event()

    async def endless(asked: Reached, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        ends = asyncio.ensure_future(asked.receive())
        while not (ends.done() and ends.result()["type"] == "http.disconnect"):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            if ends.done() and ends.result()["type"] != "http.disconnect":
                ends = asyncio.ensure_future(asked.receive())
            await asyncio.sleep(0)
        gone.set()

    endless.streams = True  # type: ignore[attr-defined]
    world = proxied()
    world.upstream.on("/endless", endless)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", world.port))
        client.sendall(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n")
        until(lambda: len(world.upstream.asked) == 1)
        until(lambda: not world.frame.watch.flights)
        assert gone.wait(10)


class Pipe:
    """A transport whose reader takes as much as `sizes` say."""

    def __init__(self, *sizes: int) -> None:
        self.sizes, self.aborted = list(sizes), False

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.sizes.pop(0) if self.sizes else 0  # a timer that is left over asks, too

    def abort(self) -> None:
        self.aborted = True


def test_who_takes_little_is_served_on() -> None:
    async def looked(*sizes: int) -> bool:
        protocol: Any = object.__new__(drain.BoundedProtocol)
        protocol.transport, protocol._unread, protocol.loop = Pipe(*sizes), -1, asyncio.get_running_loop()
        while protocol.transport.sizes and not protocol.transport.aborted:
            protocol._check()
        protocol._look.cancel()
        aborted: bool = protocol.transport.aborted
        return aborted

    assert not run(looked, 300, 299, 298, 400)
    assert run(looked, 300, 299, 299, 298)


def test_bodies_that_do_not_end_are_bounded_together(
    proxied: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "MOST_COMING_BYTES", 300_000)
    world = proxied()
    large = {"content": b'{"model":"small","text":"%b"}' % (b"a" * 400_000), "headers": {"authorization": "Bearer k"}}
    with socket.create_connection(("127.0.0.1", world.port)) as client:
        client.sendall(post(KEYED, b"content-length: 1000000", body=b"x" * 290_000, close=False))
        until(lambda: world.frame._coming == 290_000)
        refused = world.client.post(ECHO, **large)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
        assert world.ask().status_code == 200
    until(lambda: world.frame._coming == 0)
    monkeypatch.setattr(asgi, "MOST_COMING_BYTES", 1 << 30)
    assert world.client.post(ECHO, **large).status_code == 200
    assert world.frame._coming == 0


def test_a_body_that_takes_too_long_is_refused(proxied: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "BODY_SECONDS", 0.05)
    world = proxied()
    found = talk(world, post(KEYED, b"content-length: 1000", body=b"x"))
    assert found.startswith(b"HTTP/1.1 408")


def test_a_head_behind_a_long_body_is_no_long_head(proxied: Callable[..., World]) -> None:
    """Both may come in one piece."""
    world = proxied()
    body = b'{"model":"small","text":"%b"}' % (b"a" * 200_000)
    sent = post(KEYED, b"content-length: %d" % len(body), body=body, close=False) + post(KEYED, LENGTH)
    for cut in (60, 40, 5):
        with socket.create_connection(("127.0.0.1", world.port), timeout=10) as client:
            client.sendall(sent[:-cut])
            until(lambda: len(world.frame.watch.flights) <= 1)  # the second one's, where its head is whole
            client.sendall(sent[-cut:])
            found = b""
            while piece := client.recv(65536):
                found += piece
        assert found.count(b"HTTP/1.1 200") == 2, found[:200]


def test_a_second_compressed_member_is_not_left_out(proxied: Callable[..., World]) -> None:
    async def answer(asked: Reached, send: Send) -> None:
        whole = gzip.compress(b'{"text":"a') + gzip.compress(b'nd b"}')
        await reply(send, 200, whole, (b"content-encoding", b"gzip"))

    world = proxied()
    world.upstream.on(ECHO, answer)
    assert world.ask().status_code == 502
    assert world.ask().headers["x-mmcache"].startswith("bypass")


def test_a_fault_of_the_frame_is_told_like_a_refusal(
    proxied: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> Any:
        raise TypeError("sk-one, what was asked")

    world = proxied()
    monkeypatch.setattr(world.frame.live.forwarding, "forward", broken)
    answer = world.client.get("/v1/files", headers={"authorization": "Bearer sk-one"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "failed")
    world.frame.journal.flush()
    assert '"event":"failed"' in world.lines[0]
    assert '"status":500' in world.lines[1]
    assert "sk-one" not in "".join(world.lines) + answer.text


def test_an_answer_whose_client_has_gone_before_its_head_is_closed(proxied: Callable[..., World]) -> None:
    closed = threading.Event()

    class Stream:
        def __aiter__(self) -> AsyncIterator[bytes]:
            return self

        async def __anext__(self) -> bytes:
            raise AssertionError("nobody reads it")

        async def aclose(self) -> None:
            closed.set()

    async def streams(asked: Asked, proxy: Proxy) -> Answered:
        return Answered(200, [], Stream(), Verdict("miss"), "small")

    world = proxied({("POST", ECHO): streams})

    async def ask() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": BODY, "more_body": False}

        async def send(message: Any) -> None:
            raise ConnectionResetError

        scope = {
            "type": "http", "method": "POST", "path": ECHO, "raw_path": ECHO.encode(), "query_string": b"",
            "headers": [(b"authorization", b"Bearer k")],
        }  # fmt: skip
        with pytest.raises(ConnectionResetError):
            await world.frame(scope, receive, send)

    run(ask)
    assert closed.is_set()
    assert not world.frame.watch.flights


def test_an_empty_key_has_no_tenant(proxied: Callable[..., World]) -> None:
    with pytest.raises(ProxyError):
        proxied().frame.live.tenants.of_key("")


def test_a_log_that_nobody_reads_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def write(self, text: str) -> None:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Broken())
    Journal().say("draining")


@pytest.mark.parametrize("kind", [b"h2c", b"websocket"])
@pytest.mark.parametrize("target", [b"/v1/echo", b"/v1/files"])
def test_an_upgrade_loses_no_body_and_no_connection(proxied: Callable[..., World], kind: bytes, target: bytes) -> None:
    """Java's client asks for HTTP/2 with its first request, also where that has a body."""
    world = proxied()
    asked = (KEYED, b"upgrade: " + kind, b"connection: upgrade, http2-settings", b"http2-settings: x")
    assert talk(world, post(*asked, LENGTH, target=target, close=False)).startswith(b"HTTP/1.1 400")
    assert world.upstream.asked == []
    found = talk(world, b"GET /v1/files HTTP/1.1\r\nhost: a\r\n" + b"\r\n".join(asked) + b"\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200" if kind == b"h2c" else b"HTTP/1.1 501")
