"""Pictures as components take them: a path, a byte stream or a PIL picture in, a document for an embedder out."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

from haystack import Document
from haystack.dataclasses import ByteStream

_PNG = {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}


def as_source(picture: Any) -> Any:
    """What a `Cache` takes for a picture: the bytes of a stream, anything else as it is."""
    return bytes(picture.data) if isinstance(picture, ByteStream) else picture


def embedded_picture(embedder: Any, picture: Any, file_field: str | None) -> Any:
    """The embedding that a document embedder makes of a PIL picture, which it is handed as an upright PNG.

    With `file_field`, the embedder reads a file whose path stands in that entry of `meta`; else the document's blob.
    """
    encoded = _png(picture)
    if file_field is None:
        return _first(embedder, Document(blob=ByteStream(encoded, mime_type="image/png")))
    with tempfile.TemporaryDirectory(prefix="mmcache-") as folder:
        file = Path(folder) / "picture.png"
        file.write_bytes(encoded)
        return _first(embedder, Document(meta={file_field: str(file)}))


def _first(embedder: Any, document: Any) -> Any:
    return embedder.run(documents=[document])["documents"][0].embedding


def _png(picture: Any) -> bytes:
    if isinstance(picture, bytes | str | Path):  # only where the cache is not asked; else it is decoded by now
        from mmcache.keys.content import identify

        picture = identify(picture, "image", salt=bytes(32)).canonical()
    if not hasattr(picture, "save"):
        raise ValueError(f"a picture is a path, a byte stream or a PIL picture, not a {type(picture).__name__}")
    if picture.mode not in _PNG:
        picture = picture.convert("RGB")
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()
