"""Forms: what every parser reads alike is read, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from python_multipart.multipart import MultipartParser
from tests.unit.server.media_world import asked

from mmcache.server.exchange import BypassedError
from mmcache.server.media import multipart
from mmcache.server.media.multipart import Field, fields, read

WAV = b"RIFF$\0\0\0WAVE\r\n--\xff"
GOOD = (
    b'--xyz\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
    b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="a b.WAV"\r\n'
    b"Content-Type: audio/wav\r\n\r\n\r\n\x00--x\r\n--xy\xff\r\n--xyz--\r\n"
)
FOUND = [Field("model", b"whisper"), Field("file", b"\r\n\0--x\r\n--xy\xff", b"a b.WAV", b"audio/wav")]


def form(*parts: bytes, boundary: bytes = b"xyz", end: bytes = b"--\r\n") -> bytes:
    return b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts) + b"--" + boundary + end


def part(value: bytes = b"v", head: bytes = b'content-disposition: form-data; name="a"') -> bytes:
    return head + b"\r\n\r\n" + value


@pytest.mark.parametrize("kind", [b"multipart/form-data; boundary=xyz", b'Multipart/Form-Data;boundary="xyz" '])
def test_a_plain_form(kind: bytes) -> None:
    assert read(asked(GOOD, headers=[(b"content-type", kind)])) == FOUND
    assert fields(GOOD.removesuffix(b"\r\n"), b"xyz") == FOUND
    assert fields(form(part(b"")), b"xyz") == [Field("a", b"")]


async def by_aiohttp() -> tuple[bytes, str]:
    form = aiohttp.FormData({"model": "whisper-1", "prompt": "Grüße"})
    form.add_field("file", WAV, filename="a-b.wav", content_type="audio/wav")
    writer = form()
    return await writer.as_bytes(), writer.headers["content-type"]


async def by_httpx() -> tuple[bytes, str]:
    """What OpenAI's client sends."""
    files = {"file": ("a-b.wav", WAV, "audio/wav")}
    request = httpx.Request("POST", "http://a/", files=files, data={"model": "whisper-1", "prompt": "Grüße"})
    return request.read(), request.headers["content-type"]


async def by_curl() -> tuple[bytes, str]:
    edge = "-" * 24 + "d74496d66958873e"
    head = f"--{edge}\r\nContent-Disposition: form-data; name="
    body = head + '"model"\r\n\r\nwhisper-1\r\n' + head + '"prompt"\r\n\r\nGrüße\r\n' + head
    body += '"file"; filename="a-b.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    return body.encode() + WAV + f"\r\n--{edge}--\r\n".encode(), f"multipart/form-data; boundary={edge}"


@pytest.mark.parametrize("client", [by_aiohttp, by_httpx, by_curl])
async def test_what_real_clients_send_is_plain(client: Callable[[], Awaitable[tuple[bytes, str]]]) -> None:
    body, kind = await client()
    found = {one.name: one for one in read(asked(body, headers=[(b"content-type", kind.encode())]))}
    assert found["model"].value == b"whisper-1"
    assert found["prompt"].value.decode() == "Grüße"
    assert found["file"] == Field("file", WAV, b"a-b.wav", b"audio/wav")


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"content-type", b"multipart/form-data")],
        [(b"content-type", b"multipart/form-data; boundary=")],
        [(b"content-type", b'multipart/form-data; boundary=""')],
        [(b"content-type", b'multipart/form-data; boundary="xyz')],
        [(b"content-type", b"multipart/form-data; boundary=xyz; boundary=abc")],
        [(b"content-type", b"multipart/form-data; boundary=xyz; charset=utf-8")],
        [(b"content-type", b"multipart/form-data; boundary=xyz, multipart/form-data; boundary=abc")],
        [(b"content-type", b"multipart/form-data; boundary*=utf-8''xyz")],
        [(b"content-type", b"multipart/form-data; boundary=" + b"x" * 71)],
        [(b"content-type", b"multipart/mixed; boundary=xyz")],
        [(b"content-type", b"application/x-www-form-urlencoded")],
        [
            (b"content-type", b"multipart/form-data; boundary=xyz"),
            (b"content-type", b"multipart/form-data; boundary=a"),
        ],
    ],
)
def test_types_that_name_no_single_boundary(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(BypassedError) as error:
        read(asked(GOOD, headers=headers))
    assert error.value.reason == "odd-form"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--xyz--\r\n",
        b"--xyz\r\n--xyz--\r\n",
        b"preamble\r\n" + GOOD,
        b"\r\n" + GOOD,
        GOOD + b"epilogue",
        GOOD + GOOD,
        GOOD[:-4],
        GOOD[:60],
        GOOD.replace(b"\r\n", b"\n"),
        form(part(b"a\n--xyz\nb")),  # a delimiter to whom a line feed is enough
        form(part(b"a\n--xyz--")),
        form(part(b"a --xyz")),
        form(part()).replace(b"--xyz\r\n", b"--xyz \r\n"),
        form(part(), end=b"-- "),
        form(part(), end=b"--\r\n\r\n"),
        form(b'content-disposition: form-data; name="a"\r\n'),  # no empty line after the headers
        form(b'content-disposition: form-data; name="a"\r\n\r\n').replace(b"\r\n\r\n\r\n", b"\r\n\r\n"),
        form(part(head=b"x: y")),
        form(part(head=b"content-type: text/plain")),
        form(part(head=b"content-disposition: form-data")),
        form(part(head=b"content-disposition: form-data; name=a")),
        form(part(head=b'content-disposition: attachment; name="a"')),
        form(part(head=b'content-disposition: form-data; name=""')),
        form(part(head=b'content-disposition: form-data; name="a"; name="b"')),
        form(part(head=b'content-disposition: form-data; name="a\\"b"')),
        form(part(head=b'content-disposition: form-data; name="a"; filename="b\\"c"')),
        form(part(head=b"content-disposition: form-data; name=\"a\"; filename*=utf-8''b")),
        form(part(head=b'content-disposition: form-data; filename="b"; name="a"; x="y"')),
        form(part(head=b'content-disposition : form-data; name="a"')),
        form(part(head=b'content-disposition:\r\n form-data; name="a"')),
        form(part(head=b'content-disposition: form-data; name="a"\r\ncontent-disposition: form-data; name="b"')),
        form(part(head=b'content-disposition: form-data; name="a"\r\ncontent-transfer-encoding: base64')),
        form(part(head=b'content-disposition: form-data; name="a"\r\nx-other: 1')),
        form(part(head=b'content-disposition: form-data; name="a"\r\ncontent-length: 2')),
        form(part(head=b'content-disposition: form-data; name="a"\r\ncontent-length: -1')),
        form(part(head=b'content-disposition: form-data; name="a\x00"')),
        form(part(head=b'content-disposition: form-data; name="\xc3\xa4"')),
        form(part(head=b'content-disposition: form-data; name="a"\r\ncontent-type: ' + b"x" * 5000)),
        form(part(b"v" * (multipart.LARGEST_FIELD + 1))),
    ],
)
def test_what_two_parsers_may_read_differently(body: bytes) -> None:
    with pytest.raises(BypassedError) as error:
        fields(body, b"xyz")
    assert error.value.reason == "odd-form"


def test_limits() -> None:
    many = [part()] * multipart.MOST_FIELDS
    assert len(fields(form(*many), b"xyz")) == multipart.MOST_FIELDS
    with pytest.raises(BypassedError) as error:
        fields(form(*many, part()), b"xyz")
    assert error.value.reason == "too-many-fields"
    head = b'content-disposition: form-data; name="a"; filename="f"\r\ncontent-length: 100000'
    assert len(fields(form(part(bytes(100_000), head)), b"xyz")[0].value) == 100_000


def elsewhere(body: bytes, boundary: bytes) -> list[bytes]:
    """The values, as the parser of most Python servers reads them."""
    found: list[bytearray] = []

    def data(raw: bytes, start: int, end: int) -> None:
        found[-1] += raw[start:end]

    parser = MultipartParser(
        boundary, {"on_part_begin": lambda: found.append(bytearray()), "on_part_data": data}
    )  # fmt: skip
    parser.write(body)
    parser.finalize()
    return [bytes(one) for one in found]


VALUES = st.binary(max_size=60) | st.lists(st.sampled_from([b"\r\n", b"--", b"xyz", b"\n", b"\r", b"x"])).map(b"".join)


@given(st.lists(VALUES, min_size=1, max_size=5))
def test_what_is_read_is_read_by_others_alike(values: list[bytes]) -> None:
    body = form(*(part(value) for value in values))
    try:
        found = [one.value for one in fields(body, b"xyz")]
    except BypassedError:
        assert any(b"xyz" in value for value in values)
        return
    assert found == values == elsewhere(body, b"xyz")


@given(st.binary(max_size=200) | st.lists(st.sampled_from([*GOOD.split(b"\r\n"), b"\r\n", b"\n"])).map(b"".join))
def test_any_bytes_are_a_form_or_are_refused(body: bytes) -> None:
    for given_body in (body, b"--xyz\r\n" + body, GOOD.replace(b"whisper", body)):
        try:
            found = fields(given_body, b"xyz")
        except BypassedError:
            continue
        assert [one.value for one in found] == elsewhere(given_body, b"xyz")
