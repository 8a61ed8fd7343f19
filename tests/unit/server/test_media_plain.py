"""Which files show the same pixels to every decoder, and which only may."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, PngImagePlugin
from tests.unit.server.media_world import pixels, saved

from mmcache.server.media import plain
from mmcache.server.media.plain import settled, sniffed

RGB, GREY = pixels(), pixels(channels=1)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*between: bytes, picture: Image.Image = RGB, end: bytes = chunk(b"IEND", b"")) -> bytes:
    """A PNG made by hand, with other chunks before its data."""
    rows = b"".join(b"\0" + row.tobytes() for row in np.asarray(picture))
    head = struct.pack(">IIBBBBB", *picture.size, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(between) + data + end


PLAIN = {
    "png": saved(RGB),
    "png, uncompressed": saved(RGB, compress_level=0),
    "png, by hand": png(),
    "png, with a program's name": png(chunk(b"tEXt", b"Software\0x")),
    "png, sRGB and a time": png(chunk(b"sRGB", b"\0"), chunk(b"tIME", bytes(7))),
    "grey png": saved(GREY),
    "bmp": saved(RGB, "BMP"),
}


def with_text(name: str, text: str, **options: bool) -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text(name, text, **options)
    return saved(RGB, pnginfo=info)


def oriented() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(RGB, exif=exif)


NOT_PLAIN = {
    "jpeg": saved(RGB, "JPEG"),
    "lossy webp": saved(RGB, "WEBP"),
    "lossless webp": saved(RGB, "WEBP", lossless=True),
    "gif": saved(RGB, "GIF"),
    "grey bmp, with a palette": saved(GREY, "BMP"),
    "bmp with alpha": saved(RGB.convert("RGBA"), "BMP"),
    "png with alpha": saved(RGB.convert("RGBA")),
    "png with grey and alpha": saved(GREY.convert("LA")),
    "png with a palette": saved(RGB.quantize(16)),
    "png with a transparent colour": saved(RGB, transparency=(0, 0, 0)),
    "png of 16 bits": saved(Image.fromarray(np.zeros((4, 4), np.uint16))),
    "png of 1 bit": saved(GREY.convert("1")),
    "oriented png": oriented(),
    "png with a profile": saved(RGB, icc_profile=b"profile"),
    "png with a resolution": saved(RGB, dpi=(300, 300)),
    "png with gamma": png(chunk(b"gAMA", struct.pack(">I", 45455))),
    "png with chromaticities": png(chunk(b"cHRM", bytes(32))),
    "png with HDR": png(chunk(b"cICP", bytes(4))),
    "png with a background": png(chunk(b"bKGD", bytes(6))),
    "png whose text is EXIF": with_text("Raw profile type exif", "x"),
    "png with XMP": with_text("XML:com.adobe.xmp", "<x/>"),
    "png with compressed text": with_text("Software", "x" * 2000, zip=True),
    "png with a generator's prompt": with_text("parameters", "a cat"),
    "animated png": saved(RGB, save_all=True, append_images=[pixels(1)]),
    "png with something behind it": saved(RGB) + b"\0",
    "png cut off": saved(RGB)[:-1],
    "png without an end": png(end=b""),
    "png with two heads": png(chunk(b"IHDR", bytes(13))),
    "png with a private chunk": png(chunk(b"prVt", b"")),
    "webp with alpha": saved(pixels(channels=4).convert("RGBA"), "WEBP", lossless=True, exact=True),
    "webp with EXIF": saved(RGB, "WEBP", lossless=True, exif=Image.Exif().tobytes()),
    "bmp with something behind it": saved(RGB, "BMP") + b"\0",
    "bmp cut off": saved(RGB, "BMP")[:-1],
    "tiff": saved(RGB, "TIFF"),
    "ppm": saved(RGB, "PPM"),
    "nothing": b"",
    "a signature": b"\x89PNG\r\n\x1a\n",
    "a head": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    "a RIFF": b"RIFF\0\0\0\0WEBP",
    "a BM": b"BM",
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_files(name: str) -> None:
    assert settled(PLAIN[name])


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_files_that_some_decoder_may_show_differently(name: str) -> None:
    assert not settled(NOT_PLAIN[name])


def test_a_picture_beyond_the_limit_is_not_even_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "LARGEST_PIXELS", RGB.width * RGB.height - 1)
    assert not any(settled(raw) for raw in PLAIN.values())
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 65_535, 65_535, 8, 2, 0, 0, 0))
    assert not settled(bomb + chunk(b"IDAT", b"") + chunk(b"IEND", b""))


def test_kinds() -> None:
    names = ("png", "bmp", "lossless webp", "jpeg", "gif", "lossy webp")
    files = PLAIN | NOT_PLAIN
    assert [sniffed(files[name]) for name in names] == ["png", "bmp", "webp", "jpeg", "gif", "webp"]
    assert sniffed(files["tiff"]) == sniffed(b"<svg/>") == ""


@given(st.sampled_from(sorted(PLAIN)), st.data())
def test_a_byte_changed_anywhere_is_no_accident(name: str, data: st.DataObject) -> None:
    """It may stay plain (then its pixels decide), but never raises."""
    raw = bytearray(PLAIN[name])
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    settled(bytes(raw))
    settled(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
