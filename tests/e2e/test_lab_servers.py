"""The servers of the lab are real ones: they fail over, move slots, refuse strangers, and are gone afterwards."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmcache.lab import servers
from mmcache.lab.servers import Binary, Cluster, Network
from mmcache.lab.servers.process import free_ports, free_row, until
from mmcache.model.errors import AssetError, TierError


def chosen(name: str, major: int) -> Binary:
    try:
        return servers.choose(name, major)
    except AssetError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder, binary = tmp_path_factory.mktemp("cluster"), chosen("valkey", 9)
    with servers.cluster(folder, binary=binary, node_timeout_ms=4000) as made:
        yield made


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        with servers.network(["one", "two"]) as made:
            yield made
    except AssetError as missing:
        pytest.skip(str(missing))


def answers(server: servers.Server) -> bool:
    try:
        with socket.create_connection((server.host, server.port), 0.2):
            return True
    except OSError:
        return False


def test_slots_are_the_ones_of_the_specification() -> None:
    assert servers.slot_of(b"123456789") == 0x31C3
    assert servers.slot_of(b"a{b}c") == servers.slot_of(b"b")
    assert servers.slot_of(b"a{}c") != servers.slot_of(b"")


def test_no_two_processes_are_given_the_same_port() -> None:
    """Though nobody listens there yet, or for a while."""
    ours = {*free_ports(150), *range(first := free_row(40), first + 40)}
    assert len(ours) == 190
    script = "from mmcache.lab.servers.process import free_ports; print(*free_ports(150))"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    theirs = set(map(int, told.split()))
    assert len(theirs) == 150
    assert sys.platform != "linux" or not ours & theirs


def test_a_server_is_killed_paused_and_started_again(tmp_path: Path) -> None:
    with servers.server(tmp_path, binary=chosen("valkey", 9)) as server:
        first, port = server.pid, server.port
        server.pause()
        server.resume()
        assert server.ask("PING") == "PONG"
        server.kill()
        assert not server.alive
        server.restart()
        assert server.pid != first
        assert server.port == port
        last = server.pid
    assert not Path(f"/proc/{last}").exists()


def test_a_paused_server_is_ended_too(tmp_path: Path) -> None:
    with servers.server(tmp_path, binary=chosen("valkey", 9)) as server:
        server.pause()
    assert not server.alive


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_no_crash_leaves_a_server_behind(tmp_path: Path) -> None:
    chosen("valkey", 9)
    script = (
        "import sys; from pathlib import Path; from mmcache.lab.servers import server\n"
        "with server(Path(sys.argv[1])) as s: print(s.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        owner.kill()
        owner.wait()
        assert until(lambda: not running(pid))


def running(pid: int) -> bool:
    """And is no zombie that nobody has fetched."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("name", "major"), [("valkey", 9), ("valkey", 8), ("redis", 6), ("redis", 7), ("redis", 8)])
def test_every_server_knows_users_and_passwords(tmp_path: Path, name: str, major: int) -> None:
    users = {"tenant": "on >secret ~tenant:* +@all -@dangerous"}
    with servers.server(tmp_path, binary=chosen(name, major), password="p", users=users) as server:
        refused, *_ = servers.talk(server.port, ("PING",))
        assert "NOAUTH" in str(refused)
        replies = servers.talk(
            server.port, ("AUTH", "tenant", "secret"), ("SET", "tenant:1", "v"), ("GET", "other:1"), ("KEYS", "*")
        )
        assert [str(reply)[:6] for reply in replies] == ["OK", "OK", "NOPERM", "NOPERM"]


def test_a_cluster_serves_all_slots_with_a_replica_for_each(cluster: Cluster) -> None:
    assert [node.role for node in cluster.nodes] == ["primary"] * 3 + ["replica"] * 3
    assert {cluster.primary_of(slot).port for slot in (0, 8000, 16383)} == {n.port for n in cluster.nodes[:3]}
    assert all(len(cluster.replicas_of(primary)) == 1 for primary in cluster.primaries)
    assert cluster.url.count("127.0.0.1:") == 6


def test_a_slot_on_its_way_answers_ask_and_tryagain_and_then_moved(cluster: Cluster) -> None:
    slot = servers.slot_of(b"{tag}")
    source = cluster.primary_of(slot)
    target = next(node for node in cluster.primaries if node is not source)
    for number in range(5):
        source.server.ask("SET", b"{tag}%d" % number, "value")
    move = cluster.moving(slot, target)
    move.begin()
    move.move(b"{tag}0")
    gone, here, both = servers.talk(source.port, ("GET", "{tag}0"), ("GET", "{tag}1"), ("MGET", "{tag}0", "{tag}1"))
    assert str(gone) == f"ASK {slot} 127.0.0.1:{target.port}"
    assert here == b"value"
    assert str(both).startswith("TRYAGAIN")
    asked = servers.talk(target.port, ("GET", "{tag}0"), ("ASKING",), ("GET", "{tag}0"))
    assert str(asked[0]).startswith("MOVED")
    assert asked[2] == b"value"
    move.finish()
    (moved,) = servers.talk(source.port, ("GET", "{tag}4"))
    assert str(moved) == f"MOVED {slot} 127.0.0.1:{target.port}"
    assert cluster.primary_of(slot) is target
    cluster.await_healthy()


def test_a_replica_takes_over_and_the_killed_node_comes_back(cluster: Cluster) -> None:
    victim = cluster.primary_of(42)
    cluster.kill(victim)
    assert victim.role == "down"
    assert until(lambda: owner(cluster, 42) not in (None, victim.port))
    cluster.restart(victim)
    cluster.await_healthy()
    assert victim.role == "replica"


def owner(cluster: Cluster, slot: int) -> int | None:
    try:
        return cluster.primary_of(slot).port
    except TierError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize(("name", "major"), [("redis", 6), ("redis", 7), ("redis", 8), ("valkey", 8)])
def test_a_cluster_of_every_server_grows(tmp_path: Path, name: str, major: int) -> None:
    with servers.cluster(tmp_path, 3, 0, binary=chosen(name, major), password="p") as made:
        keys = [b"key%d" % number for number in range(200)]
        for key in keys:
            made.primary_of(servers.slot_of(key)).server.ask("SET", key, key)
        node = made.add_node()
        moved = [slot for key in keys[:50] if made.primary_of(slot := servers.slot_of(key)) is not node]
        made.move_slots(moved, node)
        made.await_healthy()
        assert node.server.ask("DBSIZE") >= 50
        assert all(made.primary_of(servers.slot_of(key)).server.ask("GET", key) == key for key in keys)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "major"), [("valkey", 9), ("redis", 6)])
def test_sentinels_replace_a_dead_primary(tmp_path: Path, name: str, major: int) -> None:
    with servers.replicated(tmp_path, binary=chosen(name, major), password="p") as made:
        former = made.primary
        kept = servers.talk(former.port, ("SET", "key", "value"), ("WAIT", 1, 8000), password="p")
        assert kept == ["OK", 1]  # by one connection: another one has nothing to wait for
        former.kill()
        made.await_failover(former)
        assert until(lambda: held(made.primary))
        made.restart(former)
        made.await_healthy()
        assert until(lambda: all(held(server) for server in made.servers))  # also who was dead, and fetches it anew


def held(server: servers.Server) -> bool:
    try:
        return bool(server.ask("GET", "key") == b"value")
    except (OSError, TierError):  # a sentinel moves it once more
        return False


def test_only_the_right_authority_and_name_are_believed(tmp_path: Path) -> None:
    try:
        binary = servers.choose(tls=True)
        right = servers.certificates(tmp_path / "right")
        wrong = servers.certificates(tmp_path / "wrong", "example.org")
    except AssetError as missing:
        pytest.skip(str(missing))
    for made, authority, believed in (
        (right, right.authority, True),
        (right, right.stranger, False),
        (wrong, wrong.authority, False),
    ):
        with servers.server(tmp_path / "server", tls=made, binary=binary) as server:
            assert server.tls_port is not None
            context = ssl.create_default_context(cafile=str(authority))
            with socket.create_connection(("127.0.0.1", server.tls_port)) as plain:
                try:
                    with context.wrap_socket(plain, server_hostname="127.0.0.1") as safe:
                        safe.sendall(b"PING\r\n")
                        assert safe.recv(64) == b"+PONG\r\n"
                    seen = True
                except ssl.SSLCertVerificationError:
                    seen = False
            assert seen is believed


def test_a_clock_of_its_own_steps(tmp_path: Path) -> None:
    try:
        with servers.server(tmp_path, 3600.0, binary=chosen("valkey", 9)) as server:
            ahead = int(server.ask("TIME")[0])
            server.set_clock(-3600.0)
            assert until(lambda: abs(ahead - int(server.ask("TIME")[0]) - 7200) < 60)
    except AssetError as missing:
        pytest.skip(str(missing))


def test_a_cut_cable_loses_all_without_a_word_until_it_is_healed(network: Network, tmp_path: Path) -> None:
    one, two = network.hosts
    with (
        servers.server(tmp_path / "1", binary=chosen("valkey", 9), at=one) as first,
        servers.server(tmp_path / "2", binary=chosen("valkey", 9), at=two) as second,
    ):
        assert first.ask("PING") == second.ask("PING") == "PONG"
        network.cut(network.here, one)
        assert not answers(first)
        assert answers(second)
        between = f"import socket; socket.create_connection(({one.address!r}, 6379), 5)"
        subprocess.run([*two.within, sys.executable, "-c", between], check=True)
        network.heal(network.here, one)
        assert first.ask("PING") == "PONG"
        network.isolate(two)
        assert not answers(second)
        network.rejoin(two)
        assert second.ask("PING") == "PONG"


def test_a_network_leaves_nothing_behind(network: Network) -> None:
    names = {link.name for link in Path("/sys/class/net").iterdir()}
    assert f"mm{os.getpid()}" in "".join(names)
    network.opened.close()
    assert until(lambda: not any(f"mm{os.getpid()}-" in link.name for link in Path("/sys/class/net").iterdir()))


def test_a_throttled_host_answers_slowly(network: Network, tmp_path: Path) -> None:
    host = network.hosts[0]
    with servers.server(tmp_path, binary=chosen("valkey", 9), at=host) as server:
        server.ask("SET", "large", b"x" * 100_000)
        network.throttle(host, 1000)
        with pytest.raises(OSError, match="timed out"):
            servers.talk(server.port, ("GET", "large"), host=server.host, timeout_seconds=0.3)
        network.at_ease(host)
        assert len(server.ask("GET", "large")) == 100_000
