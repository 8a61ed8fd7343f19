"""One value, and a batch of 64, from a real server and a real cluster: our wire client beside redis-py."""

from __future__ import annotations

import random
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hiredis
import redis

from mmcache.lab.bench import main
from mmcache.lab.measure import Timing, interleave
from mmcache.lab.servers import cluster, server
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.model.clock import SystemClock
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.client import Client, Request
from mmcache.tiers.valkey.replies import Replies
from mmcache.tiers.valkey.words import encode

SIZES = {"1 KB": 1 << 10, "1 MB": 1 << 20}
BATCH = 64
TARGETS = {"get 1 KB": 1.5, "set 1 KB": 1.5, "get 1 MB": 1.0, "set 1 MB": 1.0, "64 gets": 1.0, "64 sets": 1.0}
"""Ours must take at most this many times as long as redis-py."""
Calls = dict[str, Callable[[], Any]]


class Bare:
    """A socket and the bytes that go over it: what no client can be quicker than."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, commands: Sequence[tuple[Any, ...]], reply: int) -> Callable[[], None]:
        """Send them, receive so many bytes, look at nothing."""
        asked, room = b"".join(encode(commands)), bytearray(reply)

        def run() -> None:
            self.socket.sendall(asked)
            got = 0
            while got < reply:
                got += self.socket.recv_into(room)

        return run


def framed(size: int) -> int:
    """Bytes of a reply that holds a value."""
    return len(b"$%d\r\n" % size) + size + 2


def one(ours: Client, peer: Any, bare: Bare | None, key: bytes, value: bytes, reads: bool) -> Calls:
    """A GET or a SET of one value."""
    words: tuple[Any, ...] = ("GET", key) if reads else ("SET", key, value)
    request = [Request(key, words)]
    calls: Calls = {
        "ours": lambda: ours.ask(request),
        "redis-py": (lambda: peer.get(key)) if reads else (lambda: peer.set(key, value)),
    }
    if bare is not None:
        calls["bare"] = bare.call([words], framed(len(value)) if reads else len("+OK\r\n"))
    return calls


def many(ours: Client, peer: Any, bare: Bare | None, keys: Sequence[bytes], value: bytes, reads: bool) -> Calls:
    """All in one `ask`, and in one pipeline."""
    commands: list[tuple[Any, ...]] = [("GET", key) if reads else ("SET", key, value) for key in keys]
    requests = [Request(key, words) for key, words in zip(keys, commands, strict=True)]

    def pipeline() -> Any:
        pipe = peer.pipeline(transaction=False) if bare is not None else peer.pipeline()
        for key in keys:
            if reads:
                pipe.get(key)
            else:
                pipe.set(key, value)
        return pipe.execute()

    calls: Calls = {"ours": lambda: ours.ask(requests), "redis-py": pipeline}
    if bare is not None:
        reply = framed(len(value)) if reads else len("+OK\r\n")
        calls["bare"] = bare.call(commands, len(keys) * reply)
    return calls


def parsers(value: bytes, count: int) -> Calls:
    """Bytes that are here already become replies."""
    raw = b"$%d\r\n%b\r\n" % (len(value), value) * count
    pieces = [raw[at : at + 65536] for at in range(0, len(raw), 65536)]
    ours = Replies(1 << 30)
    theirs = hiredis.Reader()

    def parse() -> list[Any]:
        ours.expect(count)
        for piece in pieces:
            room = ours.room
            if room is None:
                ours.feed(piece)
                continue
            fits = min(len(room), len(piece))  # a socket would write it there itself
            room[:fits] = piece[:fits]
            ours.filled(fits)
        return ours.done

    def theirs_too() -> list[Any]:
        for piece in pieces:
            theirs.feed(piece)
        return [theirs.gets() for _ in range(count)]

    assert parse() == theirs_too() == [value] * count
    return {"ours": parse, "hiredis": theirs_too}


def measured(ours: Client, peer: Any, bare: Bare | None, seed: int, rounds: int, progress: Progress) -> Any:
    """By what is asked, then by who asks: seconds."""
    rng, took = random.Random(seed), dict[str, dict[str, Timing]]()
    for name, size in SIZES.items():
        key, value = f"bench:{name}".encode(), rng.randbytes(size)
        assert ours.ask([Request(key, ("SET", key, value)), Request(key, ("GET", key))]) == [b"OK", value]
        assert peer.get(key) == value
        for reads in (True, False):
            calls = one(ours, peer, bare, key, value, reads)
            took[f"{'get' if reads else 'set'} {name}"] = interleave(calls, rounds=rounds, progress=progress)
    keys, value = [b"bench:%d" % n for n in range(BATCH)], rng.randbytes(1 << 10)
    for reads in (False, True):
        calls = many(ours, peer, bare, keys, value, reads)
        took[f"{BATCH} {'gets' if reads else 'sets'}"] = interleave(calls, rounds=rounds, progress=progress)
    return took


class SharedClient(Table):
    """µs per call, and ours as a multiple of redis-py's."""

    name = "bench-shared_client"
    title = "What does a value from a Valkey server or cluster cost?"
    remark = (
        "redis-py with hiredis, in its documented calls; its cluster client asks the nodes of a pipeline in turn, ours "
        "writes to all before it reads from any. Ours also checks before every question that nothing came unasked on "
        "the connection, and ends each call at one time limit. Parsers: hiredis is quicker on many small replies, and "
        "ours on a large one, which it receives where it stays; next to the round trip neither matters, so ours is "
        "used alone: it bounds what it allocates, and needs no package."
    )

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        rounds = 11 if quick else 41
        took: dict[str, dict[str, list[float]]] = {}
        ratios: dict[str, list[float]] = {}

        def note(where: str, timings: dict[str, dict[str, Timing]], peer: str) -> None:
            for what, by in timings.items():
                for who, timing in by.items():
                    took.setdefault(f"{where}/{what}", {}).setdefault(who, []).extend(timing.scaled(1e6))
                ratios.setdefault(f"{where}/{what}: ours÷{peer}", []).extend(by["ours"].over(by[peer]))

        for seed in seeds:
            with tempfile.TemporaryDirectory() as name:
                with server(Path(name) / "one") as single:
                    ours = Client(SharedSettings(single.url), clock=SystemClock())
                    peer = redis.Redis(port=single.port)
                    note("server", measured(ours, peer, Bare(single.port), seed, rounds, progress), "redis-py")
                    ours.close()
                with cluster(Path(name) / "three", 3, 0) as three:
                    ours = Client(SharedSettings(three.url), clock=SystemClock())
                    peer = redis.RedisCluster("127.0.0.1", three.nodes[0].port)
                    note("cluster", measured(ours, peer, None, seed, rounds, progress), "redis-py")
                    ours.close()
            value = random.Random(seed).randbytes
            for what, calls in {
                f"{BATCH} × 1 KB": parsers(value(1 << 10), BATCH), "1 MB": parsers(value(1 << 20), 1),
            }.items():  # fmt: skip
                note("parser", {what: interleave(calls, rounds=rounds, progress=progress)}, "hiredis")
        rows = [
            Row.of(f"{what}/{who}", f"{who}: {what.replace('/', ', ')}", "µs", "lower", values)
            for what, by in took.items()
            for who, values in by.items()
        ]
        rows += [
            Row.of(
                pair, f"{pair.replace('/', ', ')}, time", "x", "lower", values,
                target=None if pair.startswith("parser") else TARGETS[pair.split("/")[1].split(":")[0]],
            )
            for pair, values in ratios.items()
        ]  # fmt: skip
        real = (
            "valkey-server on loopback: one, and a cluster of 3 primaries; random bytes; one caller; `bare` is a "
            "socket that sends the same bytes and reads as many, without a look at them",
            f"redis-py {redis.__version__} with hiredis {hiredis.__version__}; parsers get 64 KiB at a time",
        )
        return Result(self.name, quick, tuple(seeds), real, (), tuple(rows))


if __name__ == "__main__":
    sys.exit(main(SharedClient()))
