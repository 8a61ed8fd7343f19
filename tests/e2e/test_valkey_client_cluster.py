"""The wire client against real clusters: slots that move under load, primaries that die or hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mmcache.lab.servers import Cluster, certificates, choose, cluster, slot_of
from mmcache.lab.servers.process import until
from mmcache.model.clock import SystemClock
from mmcache.model.errors import AssetError
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.client import Client, Down, Request, Script

KEYS = [b"{%d}:%d" % (n % 40, n) for n in range(200)]
BOTH = Script("redis.call('SET', KEYS[1], ARGV[1]); redis.call('SET', KEYS[2], ARGV[1]); return ARGV[1]")


_opened: list[Client] = []


@pytest.fixture(autouse=True)
def closed_in_the_end() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def get(key: bytes, replica: bool = False) -> Request:
    return Request(key, ("GET", key), replica)


def put(key: bytes, value: bytes) -> Request:
    return Request(key, ("SET", key, value))


def client(made: Cluster, **more: Any) -> Client:
    asker = Client(SharedSettings(made.url, **{"timeout_seconds": 5.0, **more}), clock=SystemClock())
    _opened.append(asker)
    return asker


@pytest.fixture(scope="module", params=["latest", pytest.param("oldest", marks=pytest.mark.slow)])
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of the first server that is found here, and of Redis 6.2, the oldest that is supported."""
    try:
        binary = choose() if request.param == "latest" else choose("redis", 6)
    except AssetError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("three")
    with cluster(folder, primaries=3, replicas=0, binary=binary, node_timeout_ms=15_000) as made:
        yield made


def test_one_round_trip_a_node(three: Cluster) -> None:
    asker = client(three)
    assert asker.ask([put(key, key) for key in KEYS]) == [b"OK"] * len(KEYS)
    assert asker.ask([get(key) for key in KEYS]) == KEYS
    assert {node.port for node in asker.primaries()} == {node.port for node in three.nodes}
    assert sum(asker.ask_node(node, [("DBSIZE",)])[0] for node in asker.primaries()) == len(KEYS)
    for key in KEYS[:20]:
        node = asker.node_of(key)
        assert node is not None
        assert node.port == three.primary_of(slot_of(key)).port
    status = asker.status()
    assert (status["opened"], status["moved"], status["looks"]) == (3, 0, 1)


def test_slots_move_while_threads_read_and_write(three: Cluster) -> None:
    asker, wrong, rounds = client(three, connections=4, timeout_seconds=20.0), list[Any](), [0] * 4
    over = threading.Event()

    def work(number: int) -> None:
        mine = [b"{%d}:w%d:%d" % (n % 40, number, n) for n in range(80)]
        while not over.is_set():
            rounds[number] += 1
            value = b"%d" % rounds[number]
            wrong.extend(reply for reply in asker.ask([put(key, value) for key in mine]) if reply != b"OK")
            wrong.extend(reply for reply in asker.ask([get(key) for key in mine]) if reply != value)
            pairs = [
                Request(b"{%d}a" % n, BOTH.words([b"{%d}a%d" % (n, number), b"{%d}b" % n], [value])) for n in range(40)
            ]
            wrong.extend(reply for reply in asker.ask(pairs) if reply != value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    try:
        for tag in range(40):
            slot = slot_of(b"{%d}" % tag)
            here = three.primary_of(slot)
            three.move_slots([slot], three.nodes[(three.nodes.index(here) + 1) % 3])
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong[:5]
    assert min(rounds) > 1
    assert int(asker.status()["moved"]) > 0


def test_connections_that_are_cut_under_load_mix_nothing_up(three: Cluster) -> None:
    """All are killed again and again: a reply is right, or there is none."""
    asker = client(three, connections=3, rest_seconds=0.001)
    large = {key: key * 4000 for key in KEYS[:20]}
    asker.ask([put(key, large.get(key, key)) for key in KEYS])
    wrong, right, over = list[Any](), [0], threading.Event()

    def work() -> None:
        while not over.is_set():
            for key, reply in zip(KEYS, asker.ask([get(key) for key in KEYS]), strict=True):
                if isinstance(reply, Down):
                    continue
                right[0] += 1
                if reply != large.get(key, key):
                    wrong.append((key, reply))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        for node in three.nodes:
            node.server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    assert right[0] > len(KEYS)
    assert int(asker.status()["opened"]) > 20


def test_a_slot_that_is_half_there(three: Cluster) -> None:
    """Every state of a move in turn, so that ASK and TRYAGAIN are met for certain."""
    asker = client(three)
    first, second = b"{half}1", b"{half}2"
    asker.ask([put(first, b"1"), put(second, b"2")])
    here = three.primary_of(slot_of(first))
    move = three.moving(slot_of(first), three.nodes[(three.nodes.index(here) + 1) % 3])
    move.begin()
    move.move(first)
    assert asker.ask([get(first), get(second), put(b"{half}3", b"3"), get(b"{half}3")]) == [b"1", b"2", b"OK", b"3"]
    assert int(asker.status()["asked"]) >= 3
    hasty = client(three, timeout_seconds=0.1, rest_seconds=0.01)
    assert until(lambda: "TRYAGAIN" in hasty.ask([Request(first, ("MGET", first, second))])[0])
    patient: list[Any] = []
    thread = threading.Thread(target=lambda: patient.extend(asker.ask([Request(first, ("MGET", first, second))])))
    thread.start()
    assert until(lambda: int(asker.status()["waits"]) > 0)
    move.finish()
    thread.join()
    assert patient == [[b"1", b"2"]]


def test_a_listener_follows_its_slot(three: Cluster) -> None:
    asker = client(three)
    listener = asker.listen(b"news")
    asker.ask([Request(b"news", ("XADD", b"news", "1-1", "a", "b"))])
    told = [[b"news", [[b"1-1", [b"a", b"b"]]]]]
    assert listener.ask(("XREAD", "STREAMS", b"news", "0"), 5.0) == told
    here = three.primary_of(slot_of(b"news"))
    three.move_slots([slot_of(b"news")], three.nodes[(three.nodes.index(here) + 1) % 3])
    assert listener.ask(("XREAD", "STREAMS", b"news", "0"), 5.0) == told
    listener.close()


def test_a_node_that_hangs_costs_one_timeout_and_only_its_own_requests(three: Cluster) -> None:
    asker = client(three, timeout_seconds=4.0, rest_seconds=600.0)
    assert asker.ask([put(key, key) for key in KEYS]) == [b"OK"] * len(KEYS)
    hung = three.primary_of(slot_of(KEYS[0]))
    hangs = {key: three.primary_of(slot_of(key)) is hung for key in KEYS}
    three.pause(hung)
    try:
        for _ in range(10):
            for key, reply in zip(KEYS, asker.ask([get(key) for key in KEYS]), strict=True):
                assert isinstance(reply, Down) if hangs[key] else reply == key
        assert asker.status()["timeouts"] == 1
    finally:
        three.resume(hung)
    three.await_healthy()


@pytest.mark.slow
@pytest.mark.parametrize("end", ["kill", "pause"])
def test_a_primary_that_fails_is_replaced_by_its_replica(tmp_path: Path, end: str) -> None:
    with cluster(tmp_path, primaries=3, replicas=1, node_timeout_ms=3000) as made:
        patient = client(made, timeout_seconds=20.0)
        waits = [Request(key, ("WAIT", 1, 10_000)) for key in KEYS]  # each by the connection of its key
        told = patient.ask([one for pair in zip(map(put, KEYS, KEYS), waits, strict=True) for one in pair])
        assert told == [b"OK", 1] * len(KEYS)
        asker = client(made, timeout_seconds=0.3, rest_seconds=0.2, replica_reads=True)
        assert until(lambda: asker.ask([get(key, replica=True) for key in KEYS]) == KEYS)
        lost = made.primary_of(slot_of(KEYS[0]))
        (made.kill if end == "kill" else made.pause)(lost)
        reads, writes = [get(key, replica=True) for key in KEYS], [put(key, key) for key in KEYS]
        assert until(lambda: asker.ask(writes) == [b"OK"] * len(KEYS))
        assert until(lambda: asker.ask(reads) == KEYS)
        assert lost.port not in {node.port for node in asker.primaries()}
        (made.restart if end == "kill" else made.resume)(lost)
        made.await_healthy()
        assert until(lambda: asker.ask([*reads, *writes]) == [*KEYS, *[b"OK"] * len(KEYS)])


@pytest.mark.slow
def test_a_cluster_with_tls_and_a_password(tmp_path: Path) -> None:
    try:
        made = certificates(tmp_path / "pem")
        choose(tls=True)
    except AssetError as error:
        pytest.skip(str(error))
    with cluster(tmp_path / "nodes", 3, 0, password="p@ss", tls=made) as safe:
        asker = client(safe, password="p@ss", tls_ca=str(made.authority))
        assert asker.ask([put(key, key) for key in KEYS]) == [b"OK"] * len(KEYS)
        assert asker.ask([get(key) for key in KEYS]) == KEYS
        assert asker.status()["nodes"] == 3
        large = bytes(1 << 20)
        replies = asker.ask([put(key, large) for key in KEYS[:40]] + [get(key) for key in KEYS[:40]])
        assert replies == [b"OK"] * 40 + [large] * 40
