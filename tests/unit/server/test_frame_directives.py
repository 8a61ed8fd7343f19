"""`Cache-Control` and `x-mmcache` on the wire."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.server.directives import read
from mmcache.server.exchange import Directives, Verdict
from mmcache.server.verdict import rendered


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (b"", Directives()),
        (b"no-store", Directives(no_store=True)),
        (b"No-Store", Directives(no_store=True)),
        (b"no-cache", Directives(no_cache=True)),
        (b"no-cache, no-store", Directives(no_store=True, no_cache=True)),
        (b"max-age=60", Directives(max_age=60)),
        (b'max-age="60"', Directives(max_age=60)),
        (b"max-age=60, max-age=5", Directives(max_age=5)),
        (b"max-age=5,max-age=60", Directives(max_age=5)),
        (b"max-age", Directives(max_age=0)),
        (b"max-age=", Directives(no_store=True)),
        (b"max-age=-1", Directives(max_age=0)),
        (b"max-age=1.5", Directives(max_age=0)),
        (b"max-age=60 s", Directives(no_store=True)),
        (b"max-age=99999999999999999999999", Directives(max_age=1e18)),
        (b"only-if-cached", Directives(only_if_cached=True)),
        (b"only-if-cached, max-age=1", Directives(only_if_cached=True, max_age=1)),
        (b"min-fresh=5", Directives(no_cache=True)),
        (b"max-stale=5, no-transform", Directives()),
        (b",, ,no-cache,", Directives(no_cache=True)),
        (b'ext="a, no-store", no-cache', Directives(no_cache=True)),
        (b'ext="a\\"b, no-store"', Directives()),
        (b'ext="open', Directives(no_store=True)),
        (b"no-cache; no-store", Directives(no_store=True)),
        (b"\xff", Directives(no_store=True)),
        (b'no-cache="authorization"', Directives(no_cache=True)),
        (b" \t no-store\t", Directives(no_store=True)),
        (b"\n", Directives(no_store=True)),
        (b"no-cache\n", Directives(no_store=True)),
    ],
)
def test_it_is_read_as_the_standard_says_and_else_carefully(field: bytes, expected: Directives) -> None:
    assert read(field, None) == expected


def test_pragma_counts_only_alone() -> None:
    assert read(None, b"no-cache") == Directives(no_cache=True)
    assert read(None, b"x") == Directives()
    assert read(b"max-age=5", b"no-cache") == Directives(max_age=5)


@given(st.binary(max_size=60))
def test_nonsense_is_never_an_error(field: bytes) -> None:
    assert isinstance(read(field, None), Directives)


@given(st.lists(st.sampled_from([b"no-store", b"no-cache", b"x=1", b'y="a,b"', b"max-age=7", b" "]), max_size=5))
def test_what_is_asked_for_is_never_lost(pieces: list[bytes]) -> None:
    found = read(b",".join(pieces), None)
    assert found.no_store == (b"no-store" in pieces)
    assert found.no_cache == (b"no-cache" in pieces)
    assert (found.max_age == 7) == (b"max-age=7" in pieces)


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Verdict("hit"), b"hit"),
        (Verdict("hit", saved_seconds=0.01234), b"hit; saved_ms=12.3"),
        (Verdict("miss", "absent"), b"miss; reason=absent"),
        (Verdict("partial", "", 1.0, {"hits": "3", "misses": "1"}), b"partial; saved_ms=1000.0; hits=3; misses=1"),
        (Verdict("bypass", "a b"), b'bypass; reason="a b"'),
        (Verdict("hit", details={"near": "0.997", "Bad Name": "1"}), b"hit; near=0.997"),
        (Verdict("hit", details={"x": 'a"\r\nset-cookie: b\\'}), b'hit; x="a\\"??set-cookie: b\\\\"'),
        (Verdict("hit", details={"x": ""}), b'hit; x=""'),
    ],
)
def test_the_verdict_is_an_item_of_structured_fields(verdict: Verdict, expected: bytes) -> None:
    assert rendered(verdict) == expected


@given(st.text(max_size=30), st.dictionaries(st.text(max_size=5), st.text(max_size=30), max_size=3), st.floats(0, 1e12))
def test_no_verdict_breaks_out_of_its_header(reason: str, details: dict[str, str], seconds: float) -> None:
    assert re.fullmatch(rb"[ -~]+", rendered(Verdict("bypass", reason, seconds, details)))
