"""Pictures as components take them: a path, a byte stream or a PIL picture in, a document for an embedder out."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

from haystack import Document
from haystack.dataclasses import ByteStream

_SIGNS = {
    b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"BM": "bmp", b"RIFF": "webp", b"II*\0": "tiff",
}  # fmt: skip
_PNG = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}


def as_source(picture: Any) -> Any:
    """What a `Cache` takes for a picture: the bytes of a stream, anything else as it is."""
    return bytes(picture.data) if isinstance(picture, ByteStream) else picture


def embedded_picture(embedder: Any, picture: Any, file_field: str | None) -> Any:
    """The embedding that a document embedder makes of a PIL picture, which it is handed as an upright PNG.

    With `file_field`, the embedder reads a file whose path stands in that entry of `meta`; else the document's blob.
    Where no cache is asked, `picture` is what the caller gave (a path, encoded bytes), and handed on as it is.
    """
    if isinstance(picture, str | Path) and file_field is not None:
        return _first(embedder, Document(meta={file_field: str(picture)}))
    encoded = Path(picture).read_bytes() if isinstance(picture, str | Path) else picture
    if not isinstance(encoded, bytes):
        encoded = png(picture)
    if file_field is None:
        return _first(embedder, Document(blob=ByteStream(encoded, mime_type=_mime_type(encoded))))
    with tempfile.TemporaryDirectory(prefix="mmcache-") as folder:
        file = Path(folder) / f"picture.{_mime_type(encoded).partition('/')[2]}"
        file.write_bytes(encoded)
        return _first(embedder, Document(meta={file_field: str(file)}))


def _mime_type(encoded: bytes) -> str:
    """By its first bytes; what is none of these is no picture that embedders commonly take."""
    return "image/" + next((kind for sign, kind in _SIGNS.items() if encoded.startswith(sign)), "png")


def _first(embedder: Any, document: Any) -> Any:
    return embedder.run(documents=[document])["documents"][0].embedding


def png(picture: Any) -> bytes:
    """A PIL picture as a file. Raises `ValueError` for anything else."""
    if not hasattr(picture, "save"):
        raise ValueError(f"a picture is a path, a byte stream or a PIL picture, not a {type(picture).__name__}")
    if picture.mode not in _PNG:
        picture = picture.convert("RGB")
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()
