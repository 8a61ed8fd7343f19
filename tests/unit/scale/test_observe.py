"""What nodes say is read as all servers write it, and believed only where a node could say it."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import ScaleError, TierError
from mmcache.scale.atomic import ranges
from mmcache.scale.epochs import Epochs, outranks
from mmcache.scale.observed import SLOTS
from mmcache.scale.views import jobs, moves_slots_itself, read_node, read_view, under_way

A, B, C = "a" * 40, "b" * 40, "c" * 40
INFO = (
    b"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n"
    b"used_memory:5000\r\nmaxmemory:9000\r\n"
    b"keyspace_hits:7\r\nkeyspace_misses:3\r\nevicted_keys:2\r\nrole:master\r\ndb0:keys=5,expires=1,avg_ttl=0\r\n"
    b"db1:keys=2,expires=0\r\n"
)
STATE = b"cluster_state:ok\r\ncluster_my_epoch:4\r\n"


def lines(*said: str) -> bytes:
    return "".join(f"{line}\n" for line in said).encode()


def test_the_lines_of_all_servers() -> None:
    view = read_view(
        lines(
            f"{A} 127.0.0.1:7000@17000 myself,master - 0 0 4 connected 0-99 102 [93->-{B}] [300-<-{C}]",
            f"{B} 10.0.0.2:7001@17001,node-b.example slave,fail? {A} 0 1700000000000 4 disconnected",
            f"{C} 2001:db8::7:7002@17002,,tls-port=0,shard-id={B} master - 0 0 9 connected 100-101 103-16383",
        )
    )
    assert view.me.slots == frozenset({*range(100), 102})
    assert view.migrating == {93: B}
    assert view.importing == {300: C}
    second, third = view.others[B], view.others[C]
    assert (second.host, second.port, second.primary, second.linked) == ("10.0.0.2", 7001, A, False)
    assert second.flags == {"slave", "fail?"}
    assert (third.host, third.port, third.epoch) == ("2001:db8::7", 7002, 9)
    assert view.owner(102) == A
    assert view.owner(101) == C


def test_addresses_that_are_not_known_yet() -> None:
    view = read_view(
        lines(
            f"{A} :7000@17000 myself,slave - 0 0 0 connected",
            f"{B} :0@0 master,noaddr - 0 0 1 disconnected",
            f"{C} :7002@17002,named.example handshake - 0 0 0 disconnected",
        )
    )
    assert (view.me.host, view.me.port) == ("", 7000)
    assert view.me.primary == "?"  # a replica that does not know whose
    assert view.others[C].host == "named.example"


def test_a_node_is_what_it_says() -> None:
    mine = lines(f"{A} 127.0.0.1:7000@17000 myself,master - 0 0 4 connected 0-16383")
    seen = read_node(mine, STATE, INFO, {})
    assert (seen.id, seen.primary, seen.in_sync, seen.epoch, seen.cluster_ok) == (A, "", True, 4, True)
    assert (seen.keys, seen.used_bytes, seen.max_bytes, seen.hits, seen.misses, seen.evicted) == (
        7,
        5000,
        9000,
        7,
        3,
        2,
    )
    assert seen.requests == 10
    assert seen.version == "valkey 9.1.2"
    follower = lines(f"{A} 127.0.0.1:7000@17000 myself,slave {B} 0 0 4 connected")
    link = INFO.replace(b"role:master", b"role:slave\r\nmaster_link_status:down")
    assert not read_node(follower, STATE, link, {}).in_sync
    assert read_node(follower, STATE, link.replace(b":down", b":up"), {}).in_sync


def test_equal_slots_are_kept_once() -> None:
    known: dict[str, frozenset[int]] = {}
    line = lines(f"{A} 127.0.0.1:7000@17000 myself,master - 0 0 4 connected 0-16383")
    assert read_view(line, known).me.slots is read_view(line, known).me.slots


WRONG = [
    b"",
    b"\xff\xfe",
    lines("no line of a node"),
    lines(f"{A} 127.0.0.1:7000@17000 master - 0 0 4 connected"),
    lines(*[f"{A} 127.0.0.1:7000@17000 myself,master - 0 0 4 connected"] * 2),
    lines(f"{A} 127.0.0.1:99999@1 myself,master - 0 0 4 connected"),
    lines(f"{A} 127.0.0.1:x@1 myself,master - 0 0 4 connected"),
    lines(f"{A} 127.0.0.1:1@1 myself,master {A[:5]} 0 0 4 connected"),
    lines(f"{A} 127.0.0.1:1@1 myself,master - 0 0 -4 connected"),
    lines(f"{A} 127.0.0.1:1@1 myself,master - 0 0 {'9' * 50} connected"),
    lines(f"{A} 127.0.0.1:1@1 myself,master - 0 0 4 connected 5-16384"),
    lines(f"{A} 127.0.0.1:1@1 myself,master - 0 0 4 connected 9-5"),
    lines(f"{A} 127.0.0.1:1@1 myself,master - 0 0 4 connected [16384->-{B}]"),
    lines(f"{A} 127.0.0.1:1@1 myself,master - 0 0 4 connected [3->-b]"),
    lines(
        f"{A} 127.0.0.1:1@1 myself,master - 0 0 4 connected 0-16383", f"{B} 127.0.0.1:2@2 master - 0 0 5 connected 7"
    ),
    lines(
        f"{A} 127.0.0.1:1@1 myself,master - 0 0 4 connected",
        *(f"{number:040x} 127.0.0.1:2@2 master - 0 0 5 connected" for number in range(10_000)),
    ),
    None,
    7,
    [b"a"],
    TierError("ERR This instance has cluster support disabled"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_what_no_node_says_is_not_believed(number: int) -> None:
    with pytest.raises(ScaleError):
        read_view(WRONG[number])


@given(st.binary(max_size=300))
def test_noise_is_refused_or_read(noise: bytes) -> None:
    for reply in (noise, lines(f"{A} 1.1.1.1:1@1 myself,master - 0 0 4 connected ") + noise):
        with contextlib.suppress(ScaleError):
            assert all(0 <= slot < SLOTS for slot in read_view(reply).me.slots)


@pytest.mark.parametrize("missing", [b"used_memory:", b"keyspace_hits:", b"evicted_keys:"])
def test_info_that_tells_too_little_is_refused(missing: bytes) -> None:
    mine = lines(f"{A} 127.0.0.1:7000@17000 myself,master - 0 0 4 connected")
    with pytest.raises(ScaleError, match=missing.decode()[:-1]):
        read_node(mine, STATE, INFO.replace(missing, b"x:"), {})


def test_which_servers_move_slots_themselves() -> None:
    assert moves_slots_itself("valkey 9.1.2")
    assert moves_slots_itself("valkey 10.0.0")
    assert not any(map(moves_slots_itself, ("valkey 8.1.8", "redis 9.0.0", "redis 7.0.15", "valkey", "", "valkey x")))
    assert not moves_slots_itself("valkey \N{SUPERSCRIPT NINE}.1")


def test_migrations_of_the_server() -> None:
    told = [[b"name", b"n", b"operation", b"EXPORT", b"state", b"snapshotting", b"cow_size", 0],
            [b"name", b"m", b"state", b"success"]]  # fmt: skip
    first, second = jobs(told)
    assert first == {"name": "n", "operation": "EXPORT", "state": "snapshotting", "cow_size": "0"}
    assert [under_way(first), under_way(second), under_way({})] == [True, False, True]
    assert jobs([]) == []
    for wrong in (None, b"x", 3, [4]):
        with pytest.raises(ScaleError):
            jobs(wrong)


@given(st.sets(st.integers(0, SLOTS - 1), max_size=50))
def test_ranges_are_the_slots(slots: set[int]) -> None:
    found = ranges(slots)
    assert {slot for first, last in found for slot in range(first, last + 1)} == slots
    assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(found))


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_who_outranks_claims_with_a_higher_epoch(own: int, more: int, source: int) -> None:
    heard = own + more
    claimed = own if own > 0 and more == 0 else heard + 1  # CLUSTER BUMPEPOCH, as the servers do it
    assert outranks(Epochs(own, heard), Epochs(source, 99)) == (claimed > source)
