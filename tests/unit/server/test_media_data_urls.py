"""Data URLs and base64: every spelling of the same bytes, and none of others."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.server.media.data_urls import OddSpellingError, data_url, decoded, encoded, is_data_url, read

DATA = bytes(range(256)) + b"\xfb\xff\xfe?"  # all of base64's alphabet, and padding
PLAIN = base64.b64encode(DATA).decode()
SAFE = base64.urlsafe_b64encode(DATA).decode()
HEAD = "data:image/png;base64,"
LINES = "\r\n".join(PLAIN[at : at + 76] for at in range(0, len(PLAIN), 76))


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        (HEAD + PLAIN, True),
        (HEAD + PLAIN.rstrip("="), False),
        (HEAD + SAFE, False),
        (HEAD + SAFE.rstrip("="), False),
        (HEAD + quote(PLAIN, safe=""), False),
        (HEAD + quote(SAFE), False),
        (HEAD + LINES, False),
        (HEAD + quote(LINES), False),
        (HEAD + f" {PLAIN}\n", False),
        (f"\n {HEAD}{PLAIN} ", False),
        ("DATA:image/png;base64," + PLAIN, False),
        ("data:Image/PNG;base64," + PLAIN, False),
        ("data:image/png;BASE64," + PLAIN, False),
        ("data:image/png; base64," + PLAIN, False),
        ("data: image/png ;base64," + PLAIN, False),
        ("data:image/png," + quote(DATA), False),
        ("data:image/png," + "".join(f"%{byte:02x}" for byte in DATA), False),
    ],
)
def test_every_spelling_gives_the_same_bytes_and_only_the_plain_one_is_plain(url: str, plain: bool) -> None:
    found = read(url)
    assert (found.data, found.mime, found.parameters, found.plain) == (DATA, "image/png", "", plain)
    assert is_data_url(url)
    assert read(data_url(found.mime, found.data)).plain


@pytest.mark.parametrize(
    ("head", "mime", "parameters", "plain"),
    [
        ("data:;base64,", "", "", True),
        ("data:image/png;charset=utf-8;base64,", "image/png", ";charset=utf-8", True),
        ("data:audio/L16;Rate=16000;channels=1;base64,", "audio/l16", ";channels=1;rate=16000", False),
        ("data:audio/l16;channels=1;rate=16000;base64,", "audio/l16", ";channels=1;rate=16000", True),
        ("data:image/svg+xml;base64,", "image/svg+xml", "", True),
    ],
)
def test_types_and_parameters(head: str, mime: str, parameters: str, plain: bool) -> None:
    found = read(head + PLAIN)
    assert (found.data, found.mime, found.parameters, found.plain) == (DATA, mime, parameters, plain)


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64",
        "data:" + "x" * 2000 + "," + PLAIN,
        "data:image/png;base64,",
        "data:image/png;base64,====",
        "data:image/png;base64,A",
        "data:image/png;base64,AAAAA",
        "data:image/png;base64,QQ==QQ==",
        "data:image/png;base64,QR==",  # bits behind the last byte
        "data:image/png;base64,QQ===",
        "data:image/png;base64,+_AA",  # two alphabets
        "data:image/png;base64,AA*A",
        "data:image/png;base64,AAAÄ",
        "data:image/png;base64,%4",
        "data:image/png;base64,%FF%FF%FF%FF",
        "data:image/png;base64,\ud800AAA",
        "data:image/png,%zz",
        "data:image/png,ä",
        "data:image/png,",
        "data:image;base64,QUFB",
        "data:image/png;a=1;a=2;base64,QUFB",
        'data:image/png;a="x,y";base64,QUFB',
        "data:image/png;base64;base64,QUFB",
        "data:image/png;base64=1;base64,QUFB",
        "data:image/png\x00;base64,QUFB",
        "http://example.org/,",
    ],
)
def test_what_two_readers_may_read_differently_is_odd(url: str) -> None:
    with pytest.raises(OddSpellingError):
        read(url)


@given(st.binary(min_size=1, max_size=200))
def test_the_plain_spelling_comes_back(data: bytes) -> None:
    found = decoded(encoded(data))
    assert found.data == data
    assert found.plain


@given(st.text(alphabet="ABab01+/-_= %\n\t,;", max_size=40) | st.text(max_size=20))
def test_what_is_decoded_is_what_the_plain_spelling_of_it_says(text: str) -> None:
    try:
        found = decoded(text)
    except OddSpellingError:
        return
    assert base64.b64decode(encoded(found.data), validate=True) == found.data
    assert found.plain == (encoded(found.data) == text)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for url in (text, "data:" + text, "data:image/png;base64," + text):
        try:
            read(url)
        except OddSpellingError:
            continue
