"""Large blocks in pieces: cut, named, joined; whatever is missing, foreign or damaged is no block."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import CorruptFrameError, FormatVersionError
from mmcache.model.event import MissReason
from mmcache.model.frame import Frame
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.valkey.chunks import Cut, Large
from mmcache.tiers.valkey.names import Names, chunk_names
from mmcache.tiers.valkey.record import MOST_CHUNKS, VERSION, Record, names_in
from mmcache.tiers.valkey.replies import Refusal

KEY = make_key(1)
HEAD = Names("p:").head(KEY)


def stored(payload: bytes, chunk_bytes: int) -> tuple[bytes, list[bytes]]:
    """A head as it rests, and its pieces."""
    frame = make_frame(KEY, payload)
    cut = Cut.of(len(payload), chunk_bytes)
    head = Record(b"machine1", None, 1.0, cut.chunk_id, cut.count, cut.size).encode(frame.header)
    assert head is not None
    return head + frame.prefix(), [bytes(piece) for piece in cut.pieces(memoryview(payload))]


def read(raw: bytes) -> Large:
    return Large.of(KEY, HEAD, raw, Record.decode(raw), None)


@given(st.binary(min_size=1, max_size=3000), st.integers(1, 4000))
def test_what_was_cut_is_joined(payload: bytes, chunk_bytes: int) -> None:
    raw, pieces = stored(payload, chunk_bytes)
    large = read(raw)
    assert len(large.requests(False)) == len(pieces) == large.cut.count <= MOST_CHUNKS
    frame = large.joined(pieces)
    assert isinstance(frame, Frame)
    assert bytes(frame.payload) == payload
    assert memoryview(frame.payload).readonly


@given(st.integers(1, 1 << 40), st.integers(1, 1 << 30))
def test_pieces_are_never_too_many_for_one_script(payload_bytes: int, chunk_bytes: int) -> None:
    cut = Cut.of(payload_bytes, chunk_bytes)
    assert 1 <= cut.count <= MOST_CHUNKS
    assert (cut.count - 1) * cut.size < payload_bytes <= cut.count * cut.size


def test_ids_are_drawn_anew_for_each_value() -> None:
    assert len({Cut.of(10, 3).chunk_id for _ in range(100)}) == 100
    names = chunk_names(HEAD, b"0123456789abcdef", 2)
    assert names == [HEAD + b":c:0123456789abcdef:0", HEAD + b":c:0123456789abcdef:1"]


@pytest.mark.parametrize("spoil", [
    lambda pieces: [*pieces[:-1], b""],
    lambda pieces: [*pieces[:-1], None],
    lambda pieces: [b"", *pieces[1:]],
])  # fmt: skip
def test_a_missing_piece_is_a_miss(spoil: Any) -> None:
    raw, pieces = stored(bytes(range(200)), 64)
    assert read(raw).joined(spoil(pieces)) is MissReason.ABSENT


@pytest.mark.parametrize("spoil", [
    lambda pieces: pieces[::-1],
    lambda pieces: [pieces[1], *pieces[1:]],
    lambda pieces: [*pieces[:-1], pieces[-1] + b"x"],
    lambda pieces: [*pieces[:-1], pieces[-1][:-1]],
    lambda pieces: [bytes(64), *pieces[1:]],
])  # fmt: skip
def test_other_pieces_are_no_block(spoil: Any) -> None:
    raw, pieces = stored(bytes(range(200)), 64)
    with pytest.raises(CorruptFrameError):
        read(raw).joined(spoil(pieces))


@pytest.mark.parametrize("said", [Refusal("WRONGTYPE"), 5, [b"a"]])
def test_what_the_server_refuses_is_no_block(said: Any) -> None:
    raw, pieces = stored(bytes(200), 64)
    assert read(raw).joined([said, *pieces[1:]]) is MissReason.CORRUPT


def head_of(record: Record, payload: int = 200) -> bytes:
    frame = make_frame(KEY, bytes(payload))
    head = record.encode(frame.header)
    assert head is not None
    return head + frame.prefix()


@pytest.mark.parametrize("count", [1, 3, 5, 4096])
def test_a_head_that_does_not_fit_its_pieces_is_refused_before_they_are_fetched(count: int) -> None:
    with pytest.raises(CorruptFrameError):
        read(head_of(Record(b"machine1", None, 1.0, b"0123456789abcdef", count, 64)))
    with pytest.raises(CorruptFrameError):
        read(head_of(Record(b"machine1", None, 1.0, b"0123456789abcdef", count, 64), payload=0))


@pytest.mark.parametrize("changes", [{"chunks": 4097}, {"chunks": 3, "chunk_bytes": 0}, {"until": float("nan")}])
def test_a_head_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptFrameError):
        Record.decode(head_of(msgspec.structs.replace(Record(b"machine1", None, 1.0), **changes)))


def test_newer_and_older_formats_are_refused() -> None:
    raw = bytearray(head_of(Record(b"machine1", None, 1.0)))
    raw[4] = VERSION + 1
    with pytest.raises(FormatVersionError):
        Record.decode(raw)
    raw[4] = VERSION - 1
    with pytest.raises(CorruptFrameError):
        Record.decode(raw)
    with pytest.raises(CorruptFrameError):
        Record.decode(b"MMCV")


@given(st.binary(min_size=1, max_size=300))
def test_rubbish_is_refused(rubbish: bytes) -> None:
    with pytest.raises((CorruptFrameError, FormatVersionError)):
        Record.decode(rubbish)


def test_names_that_are_none_are_refused() -> None:
    raw = bytearray(head_of(Record(b"machine1", None, 1.0)))
    assert names_in(raw) == ("default", "default", "model-1", "tensor")
    raw[70] = 0xC1
    with pytest.raises(CorruptFrameError):
        names_in(raw)


@pytest.mark.parametrize("prefix", ["mmcache:", "", "a%b:", "[*]?\\^-", "ünï:"])
def test_a_name_tells_its_key_and_all_names_of_a_block_are_one_slot(prefix: str) -> None:
    names = Names(prefix)
    for n in range(50):
        key = make_key(n * 7919, region=n)
        head, lease, fence = names.block(key)
        assert names.key_of(head) == key
        tag = head[head.index(b"{") : head.index(b"}") + 1]
        assert len(tag) == 66
        for other in (lease, fence, *chunk_names(head, b"0" * 16, 1)):
            assert names.key_of(other) is None
            assert other.startswith(head)
    assert names.key_of(names.clock) is None
    assert names.key_of(names.prefix + b"{" + b"!" * 64 + b"}") is None
    assert names.key_of(b"x" + names.prefix + b"{" + b"A" * 64 + b"}") is None
