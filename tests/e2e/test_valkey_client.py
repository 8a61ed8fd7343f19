"""The wire client against real servers: alone, with TLS, behind sentinels; slow, paused, restarted, forked."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mmcache.lab.servers import Binary, Elsewhere, Server, binaries, certificates, choose, replicated, server
from mmcache.lab.servers.process import until
from mmcache.model.clock import SystemClock
from mmcache.model.errors import AssetError, SettingsError
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.client import Client, Down, Refusal, Request, Script

LARGE = bytes(range(256)) * 8192
"""2 MiB."""


_opened: list[Client] = []


@pytest.fixture(autouse=True)
def closed_in_the_end() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def get(key: bytes) -> Request:
    return Request(key, ("GET", key))


def put(key: bytes, value: bytes) -> Request:
    return Request(key, ("SET", key, value))


def client(url: str, **more: Any) -> Client:
    clock = more.pop("clock", None) or SystemClock()
    asker = Client(SharedSettings(url, **{"timeout_seconds": 5.0, **more}), clock=clock)
    _opened.append(asker)
    return asker


def found() -> tuple[Binary, ...]:
    try:
        choose()
    except AssetError:
        return ()
    return binaries()


@pytest.fixture(scope="module", params=found(), ids=str)
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Every server that is to be had here."""
    with server(tmp_path_factory.mktemp("one"), binary=request.param) as started:
        yield started


def test_values_of_all_sizes_come_back(one: Server) -> None:
    asker = client(one.url)
    values = [b"", b"\r\n", bytes(16383), bytes(16384), bytes(65536), LARGE, memoryview(LARGE)[1:100_000].tobytes()]
    keys = [b"k%d" % n for n in range(len(values))]
    assert asker.ask([put(key, value) for key, value in zip(keys, values, strict=True)]) == [b"OK"] * len(keys)
    assert asker.ask([get(key) for key in (*keys, b"none")]) == [*values, None]
    for key, value in zip(keys, values, strict=True):
        assert asker.ask([get(key)]) == [value]
    assert asker.status()["opened"] == 1


def test_large_batches_in_both_directions_do_not_lock_up(one: Server) -> None:
    asker, count = client(one.url, timeout_seconds=30.0), 24
    requests = [request for n in range(count) for request in (put(b"l%d" % n, LARGE), get(b"l%d" % n))]
    replies = asker.ask(requests)
    assert replies[::2] == [b"OK"] * count
    assert all(reply == LARGE for reply in replies[1::2])


def test_refusals_nested_lists_and_scripts(one: Server) -> None:
    asker = client(one.url)
    script = Script("return {ARGV[1], redis.call('TIME'), {1, false, redis.error_reply('NO way')}}")
    (reply,) = asker.ask([Request(b"k", script.words([b"k"], [b"x"]))])
    assert reply[0] == b"x"
    assert reply[2][:2] == [1, None]
    assert isinstance(reply[2][2], Refusal)
    refusal = asker.ask([Request(None, ("NONSENSE",)), get(b"none")])
    assert isinstance(refusal[0], Refusal)
    assert refusal[1] is None


def test_a_paused_server_costs_one_timeout_and_then_nothing(one: Server) -> None:
    clock = Elsewhere()
    asker = client(one.url, clock=clock, timeout_seconds=0.5, rest_seconds=600.0)

    def rested(request: Request) -> Any:
        """Its reply, when the server was left alone for long enough: on a busy machine it may be late by itself."""
        clock.passed[0] += 600.0
        return asker.ask([request])[0]

    assert until(lambda: rested(put(b"k", b"v")) == b"OK")
    before = int(asker.status()["timeouts"])
    one.pause()
    try:
        assert "in time" in asker.ask([get(b"k")])[0]
        for _ in range(20):
            assert "left alone" in asker.ask([get(b"k")])[0]
        assert int(asker.status()["timeouts"]) == before + 1
    finally:
        one.resume()
    assert until(lambda: rested(get(b"k")) == b"v")
    while isinstance(reply := rested(get(b"none")), Down):
        assert "in time" in reply
    assert reply is None  # and not what was asked for before


def test_a_restarted_server_is_no_failure(one: Server) -> None:
    asker = client(one.url)
    asker.ask([put(b"k", b"v")])
    one.kill()
    one.restart()
    assert asker.ask([get(b"k")]) == [None]
    assert asker.status()["lost"] == 0


def test_a_listener_hears_and_can_be_closed(one: Server) -> None:
    asker = client(one.url)
    listener = asker.listen(b"news")
    assert listener.ask(("XREAD", "BLOCK", 10, "STREAMS", b"news", "$"), 5.0) is None
    heard: list[Any] = []
    thread = threading.Thread(
        target=lambda: heard.append(listener.ask(("XREAD", "BLOCK", 20_000, "STREAMS", b"news", "0"), 30.0))
    )
    thread.start()
    asker.ask([Request(b"news", ("XADD", b"news", "1-1", "a", "b"))])
    thread.join()
    assert heard == [[[b"news", [[b"1-1", [b"a", b"b"]]]]]]
    waiting = threading.Thread(
        target=lambda: heard.append(listener.ask(("XREAD", "BLOCK", 20_000, "STREAMS", b"news", "9-9"), 30.0))
    )
    waiting.start()
    assert until(lambda: b"cmd=xread" in one.ask("CLIENT", "LIST").lower())
    listener.close()
    waiting.join()
    assert isinstance(heard[1], Down)
    assert isinstance(listener.ask(("PING",), 1.0), Down)


def test_a_forked_child_has_connections_of_its_own(one: Server) -> None:
    asker = client(one.url)
    listener = asker.listen(b"k")
    asker.ask([put(b"k", b"v")])
    assert listener.ask(("PING",), 5.0) == b"PONG"
    child = os.fork()
    if child == 0:
        well = asker.ask([get(b"k")] * 100) == [b"v"] * 100 and listener.ask(("ECHO", "c"), 5.0) == b"c"
        os._exit(0 if well and asker.status()["connections"] == 1 else 1)
    for _ in range(100):
        assert asker.ask([get(b"none")]) == [None]
        assert listener.ask(("ECHO", "p"), 5.0) == b"p"
    assert os.waitpid(child, 0)[1] == 0
    assert asker.status()["opened"] == 1


def test_users_passwords_and_databases(tmp_path: Path) -> None:
    users = {"tenant": "on >s3cret ~tenant:* +@all"}
    with server(tmp_path, password="p@ss", users=users) as started:
        at = f"127.0.0.1:{started.port}"
        assert client(f"valkey://:p%40ss@{at}/1").ask([put(b"k", b"v"), get(b"k")]) == [b"OK", b"v"]
        assert client(f"valkey://{at}", password="p@ss").ask([get(b"k")]) == [None]
        tenant = client(f"valkey://tenant:s3cret@{at}")
        assert tenant.ask([put(b"tenant:a", b"v"), get(b"other")])[0] == b"OK"
        assert tenant.ask([get(b"other")])[0].startswith("NOPERM")
        wrong = client(f"valkey://tenant:guess@{at}").ask([get(b"k")])[0]
        assert isinstance(wrong, Down)
        assert "WRONGPASS" in wrong
        assert "NOAUTH" in client(f"valkey://{at}").ask([get(b"k")])[0]


@pytest.mark.parametrize("mutual", [False, True])
def test_tls(tmp_path: Path, mutual: bool) -> None:
    try:
        made = certificates(tmp_path / "pem", ask_clients=mutual)
        other = certificates(tmp_path / "other", host="elsewhere.example")
        choose(tls=True)
    except AssetError as error:
        pytest.skip(str(error))
    mine = {"tls_cert": str(made.client_certificate), "tls_key": str(made.client_key)} if mutual else {}
    with server(tmp_path / "server", tls=made) as started:
        asker = client(started.url, tls_ca=str(made.authority), **mine)
        assert asker.ask([put(b"k", LARGE), get(b"k")]) == [b"OK", LARGE]
        assert asker.ask([get(b"k")]) == [LARGE]
        assert [asker.ask([get(b"none")]) for _ in range(5)] == [[None]] * 5
        assert asker.status()["opened"] == 1
        stranger = client(started.url, tls_ca=str(made.stranger), **mine).ask([get(b"k")])[0]
        assert isinstance(stranger, Down)
        assert "not trusted" in stranger
        plain = client(f"valkey://127.0.0.1:{started.tls_port}").ask([get(b"k")])[0]
        assert isinstance(plain, Down)
        secret = client(f"valkeys://127.0.0.1:{started.port}", timeout_seconds=0.5, tls_ca=str(made.authority))
        assert "TLS" in secret.ask([get(b"k")])[0]
        if mutual:
            assert isinstance(client(started.url, tls_ca=str(made.authority)).ask([get(b"k")])[0], Down)
    with server(tmp_path / "misnamed", tls=other) as started:
        assert "not trusted" in client(started.url, tls_ca=str(other.authority)).ask([get(b"k")])[0]
        for name, good in (("elsewhere.example", True), ("nowhere.example", False)):
            told = client(started.url, tls_ca=str(other.authority), tls_name=name).ask([get(b"none")])[0]
            assert told is None if good else "not trusted" in told
    with pytest.raises(SettingsError, match="PEM"):
        client("valkeys://one", tls_ca=str(tmp_path / "none"))
    for told in ({"tls_ca": str(made.authority)}, {"tls_name": "one"}):  # who says so does not mean plain words
        with pytest.raises(SettingsError, match="valkeys://"):
            client("valkey://one", **told)


@pytest.mark.slow
def test_sentinels_name_the_next_master(tmp_path: Path) -> None:
    with replicated(tmp_path, replicas=1, sentinels=3) as made:
        patient = client(made.url, timeout_seconds=20.0)
        assert patient.ask([put(b"k", b"v"), Request(None, ("WAIT", 1, 10_000))]) == [b"OK", 1]
        asker = client(made.url, timeout_seconds=0.5, rest_seconds=0.2)
        former = made.primary
        former.kill()
        (reply,) = asker.ask([get(b"k")])
        assert isinstance(reply, Down) or reply == b"v"  # where the machine stood still, another has its place already
        assert until(lambda: asker.ask([put(b"n", b"w"), get(b"k")]) == [b"OK", b"v"])
        made.restart(former)
        assert former.ask("ROLE")[0] == b"slave"
        assert until(lambda: asker.ask([get(b"n")]) == [b"w"])
        assert "knows no master" in client(made.url + "x").ask([get(b"k")])[0]
