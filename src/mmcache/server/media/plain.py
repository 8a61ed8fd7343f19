"""Which pictures show the same pixels to every decoder. Pure.

That is: 8 bits a channel, grey or RGB, one frame, no alpha, no palette, not interlaced, and nothing else that some
decoder may heed: no colour profile, gamma, chromaticities, orientation (EXIF, or hidden in text chunks and XMP),
resolution, animation, or bytes after the end. JPEG is out, for decoders differ by ±1; GIF is out, for they differ over
indices beyond the palette and data that end early; WebP is out, for a lossless one may hold alpha that its header
denies, which some decoders believe and others do not.
"""

from __future__ import annotations

import struct
import zlib

LARGEST_PIXELS = 1 << 25
"""Width × height up to which a picture is decoded: some 0.3 s and 100 MB."""

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_CHUNKS = frozenset({b"IHDR", b"IDAT", b"IEND", b"sRGB", b"tIME", b"tEXt"})
_PNG_TEXTS = frozenset({b"Software", b"Creation Time", b"date:create", b"date:modify", b"date:timestamp"})
_MOST_CHUNKS = 1 << 16
_PIECE = 1 << 20
"""Unpacked at a time."""
_BMP_RESOLUTIONS = frozenset({0, 2834, 2835, 3779, 3780})
"""Pixels a metre that encoders write when they know nothing: none, 72 and 96 a inch."""


def sniffed(raw: bytes) -> str:
    """What kind of raster file `raw` begins like: `png jpeg gif bmp webp`, or empty."""
    if raw.startswith(_PNG):
        return "png"
    if raw.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if raw.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if raw.startswith(b"BM"):
        return "bmp"
    return "webp" if raw.startswith(b"RIFF") and raw[8:12] == b"WEBP" else ""


def settled(raw: bytes) -> bool:
    """Whether any decoder that reads `raw` at all gives the same pixels, if it is `filled`. Reads headers only."""
    judge = {"png": _png, "bmp": _bmp}.get(sniffed(raw))
    try:
        return judge is not None and judge(raw)
    except struct.error:
        return False


def filled(raw: bytes) -> bool:
    """Whether a `settled` picture has data for exactly its pixels. Unpacks it all, so not for an event loop.

    Where a PNG's data end early, some decoders leave the rest black, some as it was in memory, and some refuse.
    """
    if sniffed(raw) != "png":
        return True
    width, height, _, colour = struct.unpack_from(">IIBB", raw, 16)
    left = height * (1 + width * (3 if colour else 1))
    at, unpack = 8, zlib.decompressobj()
    try:
        while at < len(raw) and left >= 0:
            (length,) = struct.unpack_from(">I", raw, at)
            packed, made = raw[at + 8 : at + 8 + length] if raw[at + 4 : at + 8] == b"IDAT" else b"", _PIECE
            while left >= 0 and (packed or made == _PIECE):  # after a full piece it may hold more, with all data read
                made = len(unpack.decompress(packed, _PIECE))
                left, packed = left - made, unpack.unconsumed_tail
            at += 12 + length
    except zlib.error:
        return False
    return left == 0 and unpack.eof and not unpack.unused_data


def _small(width: int, height: int) -> bool:
    return min(width, height) > 0 and width * height <= LARGEST_PIXELS


def _png(raw: bytes) -> bool:
    width, height, depth, colour, compression, filtering, interlace = struct.unpack_from(">IIBBBBB", raw, 16)
    if raw[8:16] != b"\0\0\0\rIHDR" or depth != 8 or colour not in (0, 2) or not _small(width, height):
        return False
    if compression or filtering or interlace:
        return False
    at, before, data_ended = 8, b"", False
    for _ in range(_MOST_CHUNKS):
        (length,) = struct.unpack_from(">I", raw, at)
        kind = raw[at + 4 : at + 8]
        if kind not in _PNG_CHUNKS or (kind == b"IHDR") != (at == 8) or at + 12 + length > len(raw):
            return False
        if kind == b"tEXt" and raw[at + 8 : at + 90].partition(b"\0")[0] not in _PNG_TEXTS:
            return False
        data_ended = data_ended or (before == b"IDAT" and kind != b"IDAT")
        if kind == b"IDAT" and data_ended:
            return False
        at, before = at + 12 + length, kind
        if kind == b"IEND":
            return data_ended and length == 0 and at == len(raw)
    return False


def _bmp(raw: bytes) -> bool:
    at, header, width, height, planes, bits, packed = struct.unpack_from("<IIiiHHI", raw, 10)
    across, down, colours = struct.unpack_from("<iiI", raw, 38)
    row = (width * 3 + 3) // 4 * 4
    return (
        (at, header, planes, bits, packed, colours) == (54, 40, 1, 24, 0, 0)
        and _small(width, abs(height))
        and across == down
        and across in _BMP_RESOLUTIONS
        and len(raw) == at + row * abs(height)
    )
