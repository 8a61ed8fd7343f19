"""Pictures. Canonical = decoded, upright (EXIF orientation applied), without palette or metadata.

| stored as | becomes |
|---|---|
| 1 bit | L (0 and 255) |
| palette; L or RGB with a transparent colour | RGB, or RGBA where anything is transparent |
| L, LA, RGB, RGBA, CMYK, YCbCr, LAB, HSV, I, F | itself |
| 16-bit grey, either byte order | I;16 (16-bit colour files are read at 8 bits, as Pillow does) |
| premultiplied La, RGBa; padded RGBX | LA, RGBA; RGB |
| MPO (phone JPEGs with previews) | its first picture |
| more than one frame (GIF, WebP, APNG, TIFF) | `InvalidInputError` |

Only raster formats are opened: a cache must not start the PostScript interpreter that EPS needs.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any

from mmcache.keys.content import Content, digest_of, encoded_bytes
from mmcache.keys.framing import framed
from mmcache.keys.memo import Encoded
from mmcache.keys.options import ContentOptions
from mmcache.keys.tensor import identify_array, is_array
from mmcache.model.errors import InvalidInputError
from mmcache.model.memo import Memo

if TYPE_CHECKING:
    from PIL.Image import Image

COMMON = ("JPEG", "PNG", "GIF", "BMP", "PPM")
"""What Pillow can open without loading all of its plug-ins (tens of milliseconds)."""
FORMATS = (*COMMON, "WEBP", "AVIF", "TIFF", "JPEG2000", "ICO", "TGA", "DIB", "PCX", "SGI", "QOI")

_AS_IS = frozenset({"L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "I;16"})
_CONVERT = {"1": "L", "La": "LA", "RGBa": "RGBA", "RGBX": "RGB", "PA": "RGBA", "P": "RGB"}
_DTYPES = {"I": f"int32-{sys.byteorder}", "F": f"float32-{sys.byteorder}", "I;16": "uint16-little"}
_STRIP_PIXELS = 1 << 16
"""Pixels hashed at a time: what Pillow copies out is still in the cache when BLAKE3 reads it."""

_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    LookupError,
    ArithmeticError,
    RuntimeError,  # AVIF
    struct.error,
    zlib.error,
)
"""What Pillow's decoders raise for damaged files."""


@cache
def pillow_version() -> str:
    """`pillow-VERSION`. Raises `InvalidInputError` when Pillow is missing."""
    try:
        import PIL
    except ImportError as error:
        raise InvalidInputError("pictures need Pillow: pip install 'mmcache[media]'") from error
    return f"pillow-{PIL.__version__}"


@cache
def _formats() -> tuple[str, ...]:
    """Those of `FORMATS` that this Pillow knows; it raises `KeyError` when asked for another."""
    from PIL import Image

    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _memo_decoder() -> str:
    """What the pixels of an encoded picture depend on besides its bytes, for the memo."""
    from PIL import ImageFile

    return f"{pillow_version()} {_codecs()} {ImageFile.LOAD_TRUNCATED_IMAGES}"


@cache
def _codecs() -> str:
    from PIL import features

    return " ".join(f"{name}-{features.version(name)}" for name in ("jpg", "libjpeg_turbo", "jpg_2000", "webp", "avif"))


def identify_image(source: Any, salt: bytes, memo: Memo | None, options: ContentOptions) -> Content:
    """Content of a PIL image, a path, encoded bytes or an array. Raises `InvalidInputError`."""
    if is_array(source):
        return identify_array(source, "image", salt)
    decoder = pillow_version()
    from PIL.Image import Image

    if isinstance(source, Image):
        return _identify_open(source, salt, options)
    raw = encoded_bytes(source, "image", options)
    if raw is None:
        raise InvalidInputError(f"a picture cannot be a {type(source).__module__}.{type(source).__qualname__}")
    encoded = Encoded(raw, "image", _memo_decoder(), memo, salt, options)
    known = encoded.recall()
    if known is not None and len(known) == 16:

        def canonical() -> Image:
            picture = decode(raw, options)
            encoded.check(digest_of_picture(picture, salt), known)
            return picture

        return Content("image", known, canonical, decoder=decoder, encoded_digest=encoded.digest, memo_hit=True)
    picture = decode(raw, options)
    digest = digest_of_picture(picture, salt)
    encoded.remember(digest)
    return Content("image", digest, lambda: picture, decoder=decoder, encoded_digest=encoded.digest)


def _identify_open(source: Image, salt: bytes, options: ContentOptions) -> Content:
    picture = _guarded(source, options)
    digest = digest_of_picture(picture, salt)

    def canonical() -> Image:
        if picture is not source:
            return picture  # made above: nobody else can write to it
        copy = _bare(source)
        if digest_of_picture(copy, salt) != digest:
            raise InvalidInputError("the picture was changed after it was identified; do not draw on an input")
        return copy

    return Content("image", digest, canonical, decoder=pillow_version())


def _open(raw: bytes) -> Image:
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(io.BytesIO(raw), formats=COMMON)
    except UnidentifiedImageError:
        return Image.open(io.BytesIO(raw), formats=_formats())


def decode(raw: bytes, options: ContentOptions) -> Image:
    """Encoded bytes → canonical picture. Raises `InvalidInputError`."""
    from PIL import Image

    try:
        with _open(raw) as opened:
            picture = _guarded(opened, options)
            return _bare(opened) if picture is opened else picture
    except InvalidInputError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InvalidInputError(f"the picture may be a decompression bomb: {error}") from error
    except _BROKEN as error:
        raise InvalidInputError(f"the picture cannot be decoded: {error}") from error


def _guarded(image: Image, options: ContentOptions) -> Image:
    """`image` in canonical form, after the checks that need no decoding."""
    width, height = image.size
    if width < 1 or height < 1:
        raise InvalidInputError(f"the picture has no pixels: {width} × {height}")
    if width * height > options.max_pixels:
        raise InvalidInputError(f"the picture has {width} × {height} pixels, more than max_pixels={options.max_pixels}")
    if getattr(image, "is_animated", False) and image.format != "MPO":
        raise InvalidInputError(
            f"the picture has {getattr(image, 'n_frames', 'several')} frames; use modality='video', "
            "or pass one frame: image.seek(n); image.copy()"
        )
    try:
        image.load()
        picture = _upright(_plain(image))
        if picture is not image:
            picture.info = {}
        return picture
    except _BROKEN as error:
        raise InvalidInputError(f"the picture cannot be decoded: {error}") from error


def _plain(image: Image) -> Image:
    mode = image.mode
    if mode in ("1", "L", "RGB", "P", "PA") and image.has_transparency_data:
        return image.convert("RGBA")
    if mode in _AS_IS:
        return image
    if mode.startswith("I;16"):
        return image.convert("I").convert("I;16")
    if mode in _CONVERT:
        return image.convert(_CONVERT[mode])
    raise InvalidInputError(f"a picture of mode {mode} has no canonical form; convert it to RGB first")


def _upright(image: Image) -> Image:
    from PIL.Image import Transpose

    turns = (
        None,
        Transpose.FLIP_LEFT_RIGHT,
        Transpose.ROTATE_180,
        Transpose.FLIP_TOP_BOTTOM,
        Transpose.TRANSPOSE,
        Transpose.ROTATE_270,
        Transpose.TRANSVERSE,
        Transpose.ROTATE_90,
    )
    try:
        orientation = image.getexif().get(0x0112, 1)
    except _BROKEN:
        orientation = 1  # unreadable EXIF; the model is given what the key describes either way
    turn = turns[orientation - 1] if orientation in range(1, 9) else None
    return image if turn is None else image.transpose(turn)


def _bare(image: Image) -> Image:
    """A private copy that is nothing but pixels."""
    copy = image.copy()
    copy.info = {}
    return copy


def digest_of_picture(picture: Image, salt: bytes) -> bytes:
    """16 bytes over mode, dtype, width, height and pixels of a canonical picture."""
    width, height = picture.size
    dtype = _DTYPES.get(picture.mode, "uint8")
    head = framed("picture", picture.mode.encode(), dtype.encode(), b"%d %d" % (width, height))
    rows = max(1, _STRIP_PIXELS // width)
    boxes = ((0, top, width, min(height, top + rows)) for top in range(0, height, rows))
    return digest_of(salt, head, (picture.crop(box).tobytes() for box in boxes))
