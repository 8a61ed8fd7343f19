"""What is asked and where: addresses, commands as bytes, slots, the breaker. All pure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import SettingsError, TierError
from mmcache.settings import SharedSettings
from mmcache.testing.clock import FakeClock
from mmcache.tiers.valkey.address import Address, Node
from mmcache.tiers.valkey.breaker import LONGEST, Breaker
from mmcache.tiers.valkey.limit import SLOWEST, Limit
from mmcache.tiers.valkey.replies import Replies
from mmcache.tiers.valkey.slots import Shard, read_redirection, read_slots, slot_of
from mmcache.tiers.valkey.words import LARGE, Script, encode, in_full

A, B = Node("10.0.0.1", 7000), Node("10.0.0.2", 7001)


def parse(url: str, **more: Any) -> Address:
    return Address.parse(SharedSettings(url, **more))


def test_addresses() -> None:
    assert parse("valkey://one") == Address((Node("one", 6379),))
    assert parse("rediss://one:7/3") == Address((Node("one", 7),), tls=True, database=3)
    cluster = parse("redis://me:p%40ss@one,two:7,[::1],[::2]:8?cluster=true&prefix=a:")
    assert cluster.hosts == (("one", 6379), ("two", 7), ("::1", 6379), ("::2", 8))
    assert (cluster.mode, cluster.prefix, cluster.username, cluster.password) == ("cluster", "a:", "me", "p@ss")
    sentinel = parse("valkeys+sentinel://one,two:7/the%20master/2", password="secret")
    assert sentinel.hosts == (("one", 26379), ("two", 7))
    assert (sentinel.mode, sentinel.master, sentinel.database, sentinel.tls) == ("sentinel", "the master", 2, True)
    assert sentinel.password == "secret"
    assert parse("valkey://:own@one", password="other").password == "own"
    assert parse("valkey://one?cluster=false").mode == "standalone"


@pytest.mark.parametrize("url", [
    "", "one:6379", "http://:hidden@one", ":hidden@one", "valkey://:hidden@", "valkey://:hidden@one:0",
    "valkey://:hidden@one:65536", "valkey://:hidden@one:x", "valkey://:hidden@one:-1", "valkey://:hidden@one/x",
    "valkey://:hidden@one/1/2", "valkey://:hidden@one/1?cluster=true", "valkey://:hidden@one?cluster=maybe",
    "valkey://:hidden@one?cluster=true&x=1", "valkey://:hidden@one?prefix={}", "valkey+sentinel://:hidden@one",
    "valkey+sentinel://:hidden@one/m?cluster=true", "valkey+tower://:hidden@one/m", "valkey://:hidden@[::1",
    "valkey://:hidden@[::1]x", "valkey://:hidden@one,,two?cluster=true", "valkey://:hidden@one,two", "valkey://:hidden@one/²",
        "valkey://me:hidden/x@one", "valkey://me:hid/hidden@one", "valkey://:hidden?x@one", "valkey://:x?hidden@one",
        "valkey://:x?a=hidden@one", "valkey://:hidden#x@one:y",
])  # fmt: skip
def test_what_is_no_address_says_so_without_the_password(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(url)
    assert "hidden" not in str(caught.value)


def test_an_address_does_not_show_its_password() -> None:
    assert "hidden" not in repr(parse("valkey://me:hidden@one"))


word = st.one_of(st.binary(max_size=50), st.text(max_size=20), st.integers(), st.just(b"x" * LARGE))


@given(st.lists(st.lists(word, min_size=1, max_size=5).map(tuple), min_size=1, max_size=4))
def test_commands_can_be_read_back(commands: list[tuple[Any, ...]]) -> None:
    replies = Replies(1 << 20)
    replies.expect(len(commands))
    assert replies.feed(b"".join(encode(commands)))
    told = [[w if isinstance(w, bytes) else str(w).encode() for w in words] for words in commands]
    assert replies.done == told


def test_large_words_are_not_copied() -> None:
    large, shaped = bytes(LARGE), memoryview(bytes(4 * LARGE)).cast("I")
    parts = encode([("SET", "k", large), ("SET", "k", shaped)])
    assert parts[1] is large
    assert parts[3].nbytes == 4 * LARGE  # type: ignore[union-attr]
    assert b"".join(encode([("SET", bytearray(b"k"))])) == b"*2\r\n$3\r\nSET\r\n$1\r\nk\r\n"
    for wrong in (None, 1.5, ["x"]):
        with pytest.raises(TypeError):
            encode([("SET", wrong)])  # type: ignore[list-item]


def test_a_script_knows_its_source() -> None:
    words = Script("return 1").words([b"k"], ["a", 2])
    assert words == ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 1, b"k", "a", 2)
    assert in_full(words) == ("EVAL", "return 1", 1, b"k", "a", 2)
    assert in_full(("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0)) is None


@pytest.mark.parametrize(("key", "slot"), [
    (b"123456789", 0x31C3), (b"", 0), (b"foo", 12182), (b"a{foo}b", 12182), (b"{foo}{bar}", 12182),
    (b"{}foo", slot_of(b"{}foo")), (b"a}{foo}", 12182), (b"a{foo", slot_of(b"a{foo")),
])  # fmt: skip
def test_slots_are_those_of_the_specification(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot
    assert slot_of(b"{}foo") != slot_of(b"foo")


def test_a_map_of_slots() -> None:
    told = [[0, 1, [b"10.0.0.1", 7000, b"id"], [b"10.0.0.2", 7001]], [16383, 16383, [b"", 7001, b"id", []]]]
    slots = read_slots(told, A)
    assert slots[0] == slots[1] == Shard(A, (B,))
    assert slots[2] is None
    assert slots[16383] == Shard(Node("10.0.0.1", 7001))


@pytest.mark.parametrize("nonsense", [
    5, None, b"x", [1], [[0, 1]], [[0, 16384, [b"h", 1]]], [[1, 0, [b"h", 1]]], [[0, 1, []]], [[0, 1, [b"\xff", 1]]],
    [[0, 1, [b"h", b"x"]]], [[b"0", 1, [b"h", 1]]], [[0, 1, 7]],
])  # fmt: skip
def test_nonsense_is_no_map(nonsense: Any) -> None:
    with pytest.raises(TierError, match=r"10\.0\.0\.1:7000"):
        read_slots(nonsense, A)


def test_redirections() -> None:
    assert read_redirection("MOVED 5 10.0.0.2:7001", A) == (5, B)
    assert read_redirection("ASK 5 :7001", A) == (5, Node("10.0.0.1", 7001))
    assert read_redirection("MOVED 5 ::1:7001", A) == (5, Node("::1", 7001))
    for wrong in ("MOVED", "MOVED x y:1", "MOVED 5 ?:7001", "MOVED 16384 h:1", "MOVED 5 h:x", "MOVED 5 h:1 more"):
        assert read_redirection(wrong, A) is None


def test_nodes_as_text() -> None:
    assert (str(A), str(Node("::1", 5))) == ("10.0.0.1:7000", "[::1]:5")


def test_a_limit_is_later_by_what_has_moved() -> None:
    clock = FakeClock()
    limit = Limit(clock.monotonic, 1.0)
    assert limit.left() == 1.0
    limit.moved += SLOWEST
    clock.advance(1.5)
    assert limit.left() == 0.5
    assert limit.part(0.5).left() == 0.25


def test_a_breaker_lets_one_in_after_a_rest_that_doubles() -> None:
    breaker, now = Breaker(1.0), 100.0
    assert breaker.allows(now)
    assert breaker.failed(now, "gone")
    assert not breaker.failed(now + 0.5, "gone")  # it was under way
    for rest in (1.0, 2.0, 4.0, 8.0, 16.0, 16.0):
        assert not breaker.allows(now + rest - 0.01)
        assert not breaker.due(now + rest - 0.01)
        now += rest
        assert breaker.due(now)
        assert breaker.allows(now)
        assert not breaker.allows(now)  # one at a time
        assert not breaker.failed(now, "still gone")
    assert breaker.why == "still gone"
    breaker.served()
    assert breaker.allows(now)
    assert breaker.failed(now, "again")
    assert breaker.allows(now + 1.0)  # the rest is short again
    assert LONGEST == 16


def test_a_probe_that_never_reports_is_followed_by_another() -> None:
    breaker = Breaker(1.0)
    breaker.failed(0.0, "gone")
    assert breaker.allows(1.0)
    assert not breaker.allows(1.5)
    assert breaker.allows(2.0)
