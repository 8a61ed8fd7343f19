"""What is no cached route goes through untouched, in both directions."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.server.conftest import World
from tests.unit.server.echo import ECHO
from tests.unit.server.upstream import Asked, reply

from mmcache.server.asgi import Send
from mmcache.server.config import RouteRules


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_any_method_passes(proxied: Callable[..., World], method: str) -> None:
    answer = proxied().client.request(method, "/v1/files", content=b"body")
    assert answer.json()["method"] == method
    assert answer.json()["body"] == "body"


@pytest.mark.parametrize("method", ["TRACE", "CONNECT"])
def test_what_would_show_secrets_or_open_tunnels_does_not(proxied: Callable[..., World], method: str) -> None:
    world = proxied()
    assert world.client.request(method, "/v1/files").status_code == 405
    assert world.upstream.asked == []


PATHS = [
    "/v1/echo/", "/V1/echo", "//v1/echo", "/v1//echo", "/v1/./echo", "/v1/../v1/echo", "/v1%2Fecho", "/v1/ech%6F",
    "/v1/echo;a", "/v1/echo%00", "/v1/echo%20", "/a%2F..%2Fb", "/%zz", "/a:b@c", "/v1/echo%3Fa",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_is_not_exactly_a_route_passes_as_it_is(proxied: Callable[..., World], path: str) -> None:
    world = proxied()
    world.ask()
    head, body = raw(
        world, f"POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer sk-one\r\ncontent-length: 2\r\n\r\n{{}}"
    )
    assert b"x-mmcache: pass" in head
    assert world.upstream.asked[-1].path == path
    assert body


def raw(world: World, text: str | bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer to what is sent as it is; the connection closes after it."""
    sent = text if isinstance(text, bytes) else text.encode("latin-1")
    sent = sent.replace(b"host: a\r\n", b"host: a\r\nconnection: close\r\n", 1)
    with socket.create_connection(("127.0.0.1", world.port), timeout=10) as client:
        client.sendall(sent)
        found = b""
        while piece := client.recv(65536):
            found += piece
    head, _, body = found.partition(b"\r\n\r\n")
    return head, body


def test_headers_of_one_hop_stay_there(proxied: Callable[..., World]) -> None:
    world = proxied()

    async def answer(asked: Asked, send: Send) -> None:
        await reply(
            send, 200, b"x", (b"connection", b"x-hop, keep-alive"), (b"x-hop", b"1"), (b"keep-alive", b"timeout=5"),
            (b"x-stays", b"1"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"x-mmcache", b"hit"),
        )  # fmt: skip

    world.upstream.on("/a", answer)
    sent = {
        "connection": "x-mine, keep-alive", "x-mine": "1", "te": "trailers", "proxy-authorization": "Basic a",
        "x-yours": "1", "x-mmcache": "hit", "x-mmcache-other": "1", "user-agent": "me", "accept-encoding": "br",
    }  # fmt: skip
    answered = world.client.get("/a", headers=sent)
    reached = dict(world.upstream.asked[-1].headers)
    assert not {b"x-mine", b"te", b"proxy-authorization", b"x-mmcache", b"x-mmcache-other", b"keep-alive"} & set(
        reached
    )
    assert reached[b"x-yours"] == b"1"
    assert reached[b"user-agent"] == b"me"
    assert reached[b"accept-encoding"] == b"br"
    assert reached[b"host"] == world.behind.removeprefix("http://").encode()
    assert "x-hop" not in answered.headers
    assert "keep-alive" not in answered.headers
    assert answered.headers["x-stays"] == "1"
    assert answered.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answered.headers.get_list("x-mmcache") == ["pass"]


def test_nothing_of_one_caller_is_kept_for_another(proxied: Callable[..., World]) -> None:
    world = proxied()

    async def answer(asked: Asked, send: Send) -> None:
        await reply(send, 200, b"x", (b"set-cookie", b"session=1; path=/"))

    world.upstream.on("/a", answer)
    world.client.get("/a")
    world.client.cookies.clear()
    world.client.get("/a")
    assert world.upstream.asked[-1].header(b"cookie") is None
    assert world.upstream.asked[-1].header(b"authorization") is None


def test_redirects_compression_and_bodiless_answers_are_the_clients_affair(proxied: Callable[..., World]) -> None:
    world = proxied()
    packed = gzip.compress(b"hello")

    async def moved(asked: Asked, send: Send) -> None:
        await reply(send, 302, b"", (b"location", b"http://127.0.0.1:1/elsewhere"))

    async def compressed(asked: Asked, send: Send) -> None:
        await reply(send, 200, packed, (b"content-encoding", b"gzip"))

    async def empty(asked: Asked, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def unchanged(asked: Asked, send: Send) -> None:
        await send({"type": "http.response.start", "status": 304, "headers": [(b"etag", b'"a"')]})
        await send({"type": "http.response.body"})

    for path, handler in (("/moved", moved), ("/packed", compressed), ("/empty", empty), ("/same", unchanged)):
        world.upstream.on(path, handler)
    answer = world.client.get("/moved")
    assert (answer.status_code, answer.headers["location"]) == (302, "http://127.0.0.1:1/elsewhere")
    with world.client.stream("GET", "/packed") as stream:
        assert stream.headers["content-encoding"] == "gzip"
        assert b"".join(stream.iter_raw()) == packed
    assert (world.client.get("/empty").status_code, world.client.get("/empty").content) == (204, b"")
    assert (world.client.get("/same").status_code, world.client.get("/same").headers["etag"]) == (304, '"a"')
    head = world.client.head("/packed")
    assert (head.headers["content-length"], head.content) == (str(len(packed)), b"")
    assert world.upstream.asked[-1].method == "HEAD"


def test_bodies_flow_while_they_come(proxied: Callable[..., World]) -> None:
    """The answer to the first piece comes before the second is sent."""
    world = proxied()
    came: list[bytes] = []

    async def talk(asked: Asked, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            message = await asked.receive()
            if piece := message.get("body"):
                came.append(piece)
                await send({"type": "http.response.body", "body": piece.upper(), "more_body": True})
            if not message.get("more_body"):
                break
        await send({"type": "http.response.body", "body": b""})

    talk.streams = True  # type: ignore[attr-defined]
    world.upstream.on("/talk", talk)
    with socket.create_connection(("127.0.0.1", world.port), timeout=10) as client:
        client.sendall(b"POST /talk HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        found = until(client, b"ONE")
        client.sendall(b"3\r\ntwo\r\n")
        found += until(client, b"TWO")
        client.sendall(b"0\r\n\r\n")
        found += until(client, b"0\r\n\r\n")
    assert came == [b"one", b"two"]
    assert b"transfer-encoding: chunked" in found
    assert world.upstream.asked[-1].header(b"transfer-encoding") == b"chunked"


def until(client: socket.socket, wanted: bytes) -> bytes:
    """What comes, up to `wanted`."""
    found = b""
    while wanted not in found:
        piece = client.recv(65536)
        assert piece, found
        found += piece
    return found


def test_a_declared_length_stays_declared(proxied: Callable[..., World]) -> None:
    world = proxied()
    world.client.post("/v1/files", content=b"x" * 100_000)
    assert world.upstream.asked[-1].header(b"content-length") == b"100000"
    assert world.upstream.asked[-1].header(b"transfer-encoding") is None
    world.client.post("/v1/files")
    assert world.upstream.asked[-1].header(b"content-length") == b"0"


def test_a_websocket_is_told_where_to_go(proxied: Callable[..., World]) -> None:
    upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-key": "a", "sec-websocket-version": "13"}
    answer = proxied().client.get("/v1/realtime", headers=upgrade)
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "websocket")


def test_a_route_that_is_off_passes_and_needs_no_key(proxied: Callable[..., World]) -> None:
    world = proxied(routes_rules={ECHO: RouteRules(mode="off")})
    assert world.ask().headers["x-mmcache"] == "pass"
    assert world.ask(authorization="").headers["x-mmcache"] == "pass"


def test_no_store_goes_past_the_cache_and_only_if_cached_never_goes_upstream(proxied: Callable[..., World]) -> None:
    world = proxied()
    for _ in range(2):
        assert world.ask(cache_control="no-store").headers["x-mmcache"] == "bypass; reason=no-store"
    assert world.ask().headers["x-mmcache"] == "miss; reason=absent"
    answer = world.ask(cache_control="no-store, only-if-cached")
    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "server_error")
    assert world.upstream.count(ECHO) == 3


def test_what_cannot_be_read_is_answered_by_the_upstream(proxied: Callable[..., World]) -> None:
    world = proxied()
    answer = world.client.post(ECHO, content=b'{"a":1,"a":2}', headers={"authorization": "Bearer sk-one"})
    assert answer.headers["x-mmcache"] == "bypass; reason=unreadable"
    assert answer.json()["body"] == '{"a":1,"a":2}'


def test_a_fault_of_a_route_does_not_fail_the_request(proxied: Callable[..., World]) -> None:
    async def broken(asked: Any, proxy: Any) -> Any:
        raise KeyError("a prompt that must not be logged")

    world = proxied({("POST", ECHO): broken})
    answer = world.ask("a")
    assert answer.status_code == 200
    assert answer.headers["x-mmcache"] == "bypass; reason=failed"
    world.frame.journal.flush()
    assert any('"KeyError"' in line for line in world.lines)
    assert not any("prompt" in line for line in world.lines)


# An upstream that fails ---------------------------------------------------------------------------------------------


def listening(answer: bytes | None) -> Iterator[int]:
    """A port that sends `answer` to each connection, whatever comes, and closes it; None = says nothing."""
    server = socket.create_server(("127.0.0.1", 0))
    end = threading.Event()
    held = []

    def run() -> None:
        while not end.is_set():
            try:
                client, _ = server.accept()
            except OSError:
                return
            held.append(client)
            if answer is not None:
                client.recv(65536)
                client.sendall(answer)
                client.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    end.set()
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    for client in held:
        client.close()
    thread.join(5)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"", 502),
        (b"nonsense\r\n\r\n", 502),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello", 502),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 200_000 + b"\r\n\r\n", 502),
    ],
)
def test_an_upstream_that_talks_nonsense_is_a_bad_gateway(
    proxied: Callable[..., World], answer: bytes, status: int
) -> None:
    for port in listening(answer):
        world = proxied(upstream=f"http://127.0.0.1:{port}")
        for found in (world.client.get("/a"), world.ask()):
            assert found.status_code == status
            assert found.json()["error"]["type"] == "server_error"
            assert "127.0.0.1" not in found.text


def test_an_upstream_that_is_not_there_or_says_nothing(proxied: Callable[..., World]) -> None:
    world = proxied(upstream="http://127.0.0.1:1")
    assert world.client.get("/a").json()["error"]["code"] == "upstream_unreachable"
    assert world.ask().status_code == 502
    for port in listening(None):
        silent = proxied(upstream=f"http://127.0.0.1:{port}", upstream_seconds=0.2)
        answer = silent.client.get("/a")
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")


def test_an_answer_that_breaks_off_is_cut_and_not_ended(proxied: Callable[..., World]) -> None:
    import httpx

    for answer in (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello",
                   b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"):  # fmt: skip
        for port in listening(answer):
            world = proxied(upstream=f"http://127.0.0.1:{port}")
            with pytest.raises(httpx.RemoteProtocolError):
                world.client.get("/a")
            assert world.ask().status_code == 502  # a route reads it whole, and can still say so


@pytest.mark.parametrize(("again", "posted"), [(True, True), (True, False), (False, True)])
def test_a_connection_that_the_upstream_closed_meanwhile(
    proxied: Callable[..., World], again: bool, posted: bool
) -> None:
    """The second request finds its kept connection closed, just when it is sent. It is sent again, unless it may have
    done something that must not be done twice."""
    server = socket.create_server(("127.0.0.1", 0))
    said = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    count = []

    def run() -> None:
        for number in range(2):
            client, _ = server.accept()
            count.append(client.recv(65536))
            if not count[-1]:
                return
            client.sendall(said)
            if number == 0:
                count.append(client.recv(65536))  # the second request is read, and the connection closed instead
                client.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    world = proxied(upstream=f"http://127.0.0.1:{server.getsockname()[1]}")
    assert world.client.post("/a", content=b"").text == "ok"
    if again:
        assert (world.ask() if posted else world.client.get("/a")).text == "ok"
    else:
        assert world.client.post("/a", content=b"").status_code == 502
        socket.create_connection(server.getsockname()).close()
    thread.join(5)
    server.close()
    assert len(count) == 3


def test_a_base_path_of_the_upstream_is_put_before(upstream: Any, proxied: Callable[..., World]) -> None:
    app, behind = upstream
    world = proxied(upstream=f"{behind}/openai")
    assert world.client.get("/v1/files?a=%2F").json()["path"] == "/openai/v1/files"
    assert app.asked[-1].query == b"a=%2F"
