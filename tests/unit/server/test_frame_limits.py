"""Bodies: JSON that all read alike, sizes, compression."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import ProxyError
from mmcache.server.exchange import BypassedError
from mmcache.server.limits import MOST_DEEP, inflated, parse
from mmcache.server.rate import Bucket

TEXTS = st.text(alphabet=':"\\{}a\u00e9\U0001f600', max_size=8)
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | TEXTS | NUMBERS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


@given(st.dictionaries(TEXTS, VALUES, max_size=5), st.booleans())
def test_what_is_plain_json_is_read(found: dict[str, Any], ascii_only: bool) -> None:
    body = json.dumps(found, ensure_ascii=ascii_only).encode()
    assert parse(body) == found
    escaped = body.replace(b":a", b"\\u003aa").replace(b"::", b"\\u003A\\u003a")
    try:
        expected = json.loads(escaped)
    except ValueError:
        return
    if expected == found:
        assert parse(escaped) == found


@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=5), VALUES, st.data())
def test_a_name_that_is_given_twice_is_always_seen(found: dict[str, Any], other: Any, data: st.DataObject) -> None:
    """Also where colons in texts are written as escapes, so that the colons of the two readings would add up."""
    twice = data.draw(st.sampled_from(sorted(found)))
    pieces = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in found.items()]
    pieces.insert(data.draw(st.integers(0, len(pieces))), f"{json.dumps(twice)}:{json.dumps(other)}")
    body = ("{" + ",".join(pieces) + "}").encode()
    deep = b'{"a":[' + body + b"]}"
    for each in (body, deep, body.replace(b'":', b'" \n:'), deep.replace(b'"}', b'\\u003a"}')):
        with pytest.raises(BypassedError):
            parse(each)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"1", b'"a"', b"null", b"{", b"{}x", b"{'a':1}", b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1e400}',
        b'{"a":"\\ud800"}', b'{"a":"\\udc00\\ud800"}', b'{"a":"\xff"}', b'\xef\xbb\xbf{"a":1}',
        b'{"a":18446744073709551616}', b'{"a":-99999999999999999999}', b'{"a":' + b"9" * 5000 + b"}",
        '{"a":1}'.encode("utf-16"), b'{"a":1,"a":1}', b'{"a":1,"\\u0061":1}', b'{"a\\u003a":1,"a:":2}',
        b'{"x":"\\u003a","a":1,"a":2}', b"[" * 100_000, b'{"a":' * 100_000,
        b'{"a":' * (MOST_DEEP + 1) + b"1" + b"}" * (MOST_DEEP + 1),
    ],
)  # fmt: skip
def test_what_two_parsers_may_read_differently_goes_upstream_as_it_is(body: bytes) -> None:
    with pytest.raises(BypassedError) as raised:
        parse(body)
    assert raised.value.reason == "unreadable"


def test_what_is_deep_but_not_too_deep_is_read() -> None:
    parse(b'{"a":' * (MOST_DEEP - 1) + b"1" + b"}" * (MOST_DEEP - 1))


@given(st.binary(max_size=5000))
def test_compressed_bodies_come_out_whole(body: bytes) -> None:
    bare = zlib.compressobj(wbits=-15)
    forms = [(gzip.compress(body), b"gzip"), (zlib.compress(body), b"deflate"), (gzip.compress(body), b" X-GZIP "),
             (gzip.compress(zlib.compress(body)), b"deflate, gzip"), (body, b"identity"), (body, b"")]  # fmt: skip
    for sent, encoding in forms:
        assert inflated(sent, encoding, 10_000) == body
    raw = bare.compress(body) + bare.flush()
    assert inflated(raw, b"deflate", 10_000) == body


def refused(body: bytes, encoding: bytes, limit: int = 1000) -> int:
    with pytest.raises(ProxyError) as raised:
        inflated(body, encoding, limit)
    return raised.value.status


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(bytes(50 << 20))
    assert refused(bomb, b"gzip") == 413
    assert refused(gzip.compress(bomb), b"gzip, gzip", 100_000) == 413
    assert refused(gzip.compress(bytes(1001)), b"gzip") == 413
    assert len(inflated(gzip.compress(bytes(1000)), b"gzip", 1000)) == 1000


def test_what_is_damaged_or_in_other_forms_is_refused() -> None:
    good = gzip.compress(b"hello")
    assert refused(good[:-1], b"gzip") == 400
    assert refused(good + good, b"gzip") == 400
    assert refused(good + b"x", b"gzip") == 400
    assert refused(b"hello", b"gzip") == 400
    assert refused(b"", b"gzip") == 400
    for encoding in (b"br", b"zstd", b"gzip, br", b"gzip, gzip, gzip", b"chunked"):
        assert refused(good, encoding) == 415


def test_a_bucket_gives_its_rate_and_no_more() -> None:
    bucket = Bucket(2.0, now=0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [0.0, 0.0, 0.5]
    assert bucket.take(0.5) == 0.0
    assert bucket.take(0.4) > 0  # a clock that is set back gives nothing
    assert [bucket.take(100.0) for _ in range(3)] == [0.0, 0.0, 0.5]
    slow = Bucket(0.1, now=0.0)
    assert slow.take(0.0) == 0.0
    assert slow.take(1.0) == pytest.approx(9.0)
