"""The parser of replies: whatever is cut, wherever, comes out whole; what is no reply comes out as an error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tiers.fake_valkey import Error, encoded

from mmcache.model.errors import TierError
from mmcache.tiers.valkey.replies import LARGE, Refusal, Replies

MOST = 1 << 20
line = st.text(st.characters(codec="ascii", exclude_characters="\r\n"), max_size=12)
leaf = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=20), line.map(Error), line,
    st.integers(LARGE - 2, LARGE + 3).map(lambda size: b"\r\n$" * (size // 3)),
)  # fmt: skip
reply = st.recursive(leaf, lambda inner: st.lists(inner, max_size=4), max_leaves=12)


def meant(told: Any) -> Any:
    """As the client hands it over."""
    if isinstance(told, list):
        return [meant(one) for one in told]
    return Refusal(told) if isinstance(told, Error) else told.encode() if isinstance(told, str) else told


def fed(replies: Replies, raw: bytes, cuts: list[int]) -> bool:
    """Feed pieces as a connection would: into `room` where there is some."""
    whole = False
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        piece = raw[start:end]
        while piece:
            assert not whole
            room = replies.room
            if room is None:
                whole, piece = replies.feed(piece), b""
            else:
                count = min(len(room), len(piece))
                room[:count] = piece[:count]
                whole, piece = replies.filled(count), piece[count:]
    return whole


@given(st.lists(reply, min_size=1, max_size=4), st.data())
def test_replies_cut_anywhere_are_whole(told: list[Any], data: st.DataObject) -> None:
    raw = b"".join(map(encoded, told))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    replies = Replies(MOST)
    for _ in range(2):  # a parser is used again and again
        replies.expect(len(told))
        assert fed(replies, raw, cuts)
        assert replies.done == meant(told)


def test_replies_cut_at_every_byte() -> None:
    told = [b"one", [1, None, Error("ERR x"), []], b"y" * LARGE, "OK", [b"z" * LARGE, [b""]]]
    raw = b"".join(map(encoded, told))
    replies = Replies(MOST)
    replies.expect(len(told))
    assert fed(replies, raw, list(range(1, len(raw))))
    assert replies.done == meant(told)
    assert isinstance(replies.done[1][2], Refusal)


def test_large_strings_are_views_that_cannot_be_written() -> None:
    replies = Replies(MOST)
    replies.expect(2)
    assert replies.feed(encoded(bytes(LARGE)) + encoded(bytes(LARGE - 1)))
    large, small = replies.done
    assert isinstance(large, memoryview)
    assert large.readonly
    assert isinstance(small, bytes)


@given(st.lists(reply, min_size=1, max_size=4))
def test_hiredis_reads_the_same(told: list[Any]) -> None:
    hiredis = pytest.importorskip("hiredis", reason="the peer is not installed")
    raw = b"".join(map(encoded, told))
    theirs = hiredis.Reader(protocolError=TierError, replyError=Refusal)
    theirs.feed(raw)
    ours = Replies(MOST)
    ours.expect(len(told))
    assert ours.feed(raw)
    assert ours.done == [theirs.gets() for _ in told]


@pytest.mark.parametrize("nonsense", [
    b"\r\n", b"x", b"HTTP/1.1 400 Bad Request\r\n", b"_\r\n", b"#t\r\n", b"%1\r\n", b"(5\r\n", b"~0\r\n", b":\r\n",
    b":1_0\r\n", b": 1\r\n", b":+1\r\n", b":--1\r\n", b":" + b"9" * 21 + b"\r\n", b"$\r\n", b"$-2\r\n", b"$1x\r\n",
    b"$+1\r\n", b"$" + b"9" * 30 + b"\r\n", b"$3\r\nabcd\r\n", b"*-2\r\n", b"*x\r\n", b"*1\r\n" * 9 + b":1\r\n",
    b"+OK\r\n+more\r\n", b"+OK\r\n\r\n", b"$0\r\n+x", b"$%d\r\n" % (MOST + 1), b"*99999999999\r\n", b"+" + b"x" * 70000,
    b"$%d\r\n" % LARGE + bytes(LARGE) + b"xx", b"\x15\x03\x01\x00\x02\x02\x32",
    b"*40\r\n" + (b"$%d\r\n" % MOST + bytes(MOST) + b"\r\n") * 18,
])  # fmt: skip
def test_nonsense_is_an_error(nonsense: bytes) -> None:
    replies = Replies(MOST)
    replies.expect(1)
    with pytest.raises(TierError):
        fed(replies, nonsense, [])


@given(st.binary(min_size=1, max_size=60))
def test_any_bytes_are_replies_an_error_or_too_few(raw: bytes) -> None:
    replies = Replies(1000)
    replies.expect(2)
    try:
        whole = fed(replies, raw, []) if raw else False
    except TierError:
        return
    assert whole == (len(replies.done) == 2)


def test_nothing_is_allocated_for_what_a_length_promises() -> None:
    replies = Replies(1 << 40)
    replies.expect(1)
    with pytest.raises(TierError, match="allowed"):
        replies.feed(b"*1048577\r\n")
    replies = Replies(MOST)
    replies.expect(1)
    with pytest.raises(TierError, match="allowed"):
        replies.feed(b"$1048577\r\n")
