"""A load generator on bare sockets: little work a request, so that it is the server that is measured."""

from __future__ import annotations

import select
import socket
from time import perf_counter, perf_counter_ns, sleep


def request(path: str, body: bytes, key: str = "sk-bench") -> bytes:
    """A POST as the openai client sends it: its headers, without the telemetry."""
    return (
        b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\naccept-encoding: identity\r\nconnection: keep-alive\r\n"
        b"accept: application/json\r\ncontent-type: application/json\r\nuser-agent: OpenAI/Python 2.0\r\n"
        b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n%b"
    ) % (path.encode(), key.encode(), len(body), body)


def connect(port: int, receive_bytes: int | None = None) -> socket.socket:
    """A connection that waits for nobody."""
    made = socket.socket()
    if receive_bytes is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.connect(("127.0.0.1", port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def missing(got: bytes | bytearray) -> int | None:
    """Bytes that still come of an answer with a content-length; None = its head is not whole."""
    head = got.find(b"\r\n\r\n")
    if head < 0:
        return None
    at = got.find(b"content-length: ", 0, head)
    return head + 4 + int(got[at + 16 : got.find(b"\r", at)]) - len(got)


def exchange(port: int, ask: bytes) -> bytes:
    """One request, one whole answer. Raises `ValueError` for another status than 200."""
    with connect(port) as made:
        made.sendall(ask)
        got = bytearray()
        while (left := missing(got)) is None or left > 0:
            got += made.recv(1 << 20)
    if not got.startswith(b"HTTP/1.1 200"):
        raise ValueError(f"not 200: {bytes(got[:600])!r}")
    return bytes(got)


def body_of(answer: bytes) -> bytes:
    """Of a whole answer."""
    return answer.partition(b"\r\n\r\n")[2]


def closed_loop(port: int, asks: list[bytes], connections: int, seconds: float) -> tuple[float, list[float]]:
    """Each connection asks again as soon as it is answered, `asks` in turn; answers a second, and seconds of each."""
    made = {one.fileno(): one for one in (connect(port) for _ in range(connections))}
    poll = select.epoll()
    began: dict[int, int] = {}
    pieces: dict[int, bytes] = {}
    took: list[int] = []
    at, total = 0, len(asks)
    for number, one in made.items():
        one.setblocking(False)
        poll.register(number, select.EPOLLIN)
        began[number] = perf_counter_ns()
        one.send(asks[at % total])
        at += 1
    start = perf_counter()
    end = start + seconds
    while perf_counter() < end:
        for number, _ in poll.poll(1):
            one = made[number]
            got = one.recv(1 << 18)
            if number in pieces:
                got = pieces.pop(number) + got
            left = missing(got)
            if left is None or left > 0:
                if not got:
                    raise ValueError("the server closed a connection")
                pieces[number] = got
                continue
            if not got.startswith(b"HTTP/1.1 200"):
                raise ValueError(f"not 200: {got[:300]!r}")
            now = perf_counter_ns()
            took.append(now - began[number])
            began[number] = now
            one.send(asks[at % total])
            at += 1
    spent = perf_counter() - start
    for one in made.values():
        one.close()
    poll.close()
    return len(took) / spent, [each / 1e9 for each in took]


def one_by_one(port: int, asks: list[bytes], pause: float) -> list[float]:
    """Seconds that each took, on one connection; `pause` seconds lie between an answer and the next question."""
    took = []
    with connect(port) as made:
        for ask in asks:
            sleep(pause)
            start = perf_counter_ns()
            made.sendall(ask)
            got = bytearray()
            while (left := missing(got)) is None or left > 0:
                got += made.recv(1 << 20)
            took.append((perf_counter_ns() - start) / 1e9)
            if not got.startswith(b"HTTP/1.1 200"):
                raise ValueError(f"not 200: {bytes(got[:300])!r}")
    return took


def streams(port: int, asks: list[bytes], patience: float = 120.0) -> list[float]:
    """Opens all at once and reads them to their ends, in chunks; seconds until each had ended whole."""
    made: dict[int, socket.socket] = {}
    tails: dict[int, bytes] = {}
    took: list[float] = []
    poll = select.epoll()
    start = perf_counter()
    for ask in asks:
        one = connect(port)
        one.sendall(ask)
        one.setblocking(False)
        made[one.fileno()] = one
        tails[one.fileno()] = b""
        poll.register(one.fileno(), select.EPOLLIN)
    while made and perf_counter() - start < patience:
        for number, _ in poll.poll(1):
            got = made[number].recv(1 << 18)
            tail = (tails[number] + got)[-64:]
            tails[number] = tail
            whole = tail.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            if got and not whole:
                continue
            if whole:
                took.append(perf_counter() - start)
            poll.unregister(number)
            made.pop(number).close()
    for one in made.values():
        one.close()
    poll.close()
    return took
