"""Pictures that decode to equal pixels here, and to others elsewhere: each is known by its bytes alone."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import AsyncIterator

import numpy as np
import pytest
from PIL import Image
from tests.unit.server.media_world import asked, closed, pixels, proxy, saved
from tests.unit.server.test_media_parts import image, known
from tests.unit.server.test_media_plain import chunk

from mmcache import Cache
from mmcache.server.exchange import Proxy
from mmcache.server.media import plain
from mmcache.server.media.plain import filled, settled

PICTURE = pixels()
ROWS = [b"\0" + row.tobytes() for row in np.asarray(PICTURE)]
BLACK = [b"\0" + bytes(len(ROWS[0]) - 1)]


def png(packed: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", *PICTURE.size, 8, 2, 0, 0, 0)
    middle = len(packed) // 2
    data = chunk(b"IDAT", packed[:middle]) + chunk(b"IDAT", packed[middle:])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + data + chunk(b"IEND", b"")


def denying_its_alpha() -> bytes:
    """A lossless WebP with alpha, in whose header stands that it has none."""
    told = np.dstack([np.asarray(PICTURE), np.full(PICTURE.size[::-1], 7, np.uint8)])
    raw = bytearray(saved(Image.fromarray(told, "RGBA"), "WEBP", lossless=True, exact=True))
    (bits,) = struct.unpack_from("<I", raw, 21)
    assert raw[12:16] == b"VP8L"
    assert bits >> 28 & 1
    struct.pack_into("<I", raw, 21, bits & ~(1 << 28))
    return bytes(raw)


WHOLE = zlib.compress(b"".join(ROWS))
SHORT = ROWS[:9]
ODD = {
    "data that end early": png(zlib.compress(b"".join(SHORT))),
    "more data than pixels": png(zlib.compress(b"".join(ROWS + ROWS))),
    "no check sum": png(WHOLE[:-4]),
    "bytes behind the data": png(WHOLE + b"more"),
    "no zlib": png(b"x" * 99),
    "no data": png(b""),
}


@pytest.fixture
async def world() -> AsyncIterator[Proxy]:
    with Cache(memory="16MiB") as cache:
        one = proxy(cache)
        yield one
        await closed(one)


async def test_hidden_alpha(world: Proxy) -> None:
    hidden = denying_its_alpha()
    with Image.open(io.BytesIO(hidden)) as shown:
        assert np.array_equal(np.asarray(shown.convert("RGB")), np.asarray(PICTURE))
    assert not settled(hidden)
    one, other = await known(image(hidden, "image/webp"), world), await known(image(), world)
    assert one.identity != other.identity


@pytest.mark.parametrize("name", ODD)
async def test_a_png_must_have_data_for_exactly_its_pixels(name: str, world: Proxy) -> None:
    assert settled(ODD[name])
    assert not filled(ODD[name])
    black = png(zlib.compress(b"".join(SHORT + BLACK * (len(ROWS) - len(SHORT)))))
    others = [await known(image(raw), world, asked()) for raw in (png(WHOLE), black)]
    assert (await known(image(ODD[name]), world)).identity not in {one.identity for one in others}


@pytest.mark.parametrize("piece", [1, 7, 64, 1 << 20])
def test_whatever_is_unpacked_at_a_time(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "_PIECE", piece)
    assert filled(png(WHOLE))
    assert filled(saved(PICTURE))
    assert filled(saved(PICTURE, "BMP"))
    assert filled(saved(pixels(channels=1)))
    assert filled(saved(Image.new("RGB", (257, 31)))), "far more pixels than data"
    assert not filled(ODD["data that end early"])
    assert not filled(ODD["more data than pixels"])
