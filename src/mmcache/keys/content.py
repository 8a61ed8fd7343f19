"""`identify`: any supported input → `Content`, its canonical form and the keyed digest of exactly that form.

The model is given the canonical form. So nothing that the key does not describe (EXIF orientation, palettes, byte
order of text, sample rates) can change the model's output, and equal content in another wrapping is a hit.

| modality | sources | canonical form |
|---|---|---|
| image | PIL image, path (str or Path), bytes, array | upright `PIL.Image` without metadata; an array stays one |
| text | str | NFC str |
| audio | path, encoded bytes, `(pcm, sample_rate)` | float32 array (samples,), mono, at `options.sample_rate` |
| video | path, encoded bytes, sequence of pictures | list of upright RGB pictures |
| tensor | numpy array, torch tensor | a C-contiguous copy of the same kind |
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.keys.options import ContentOptions
from mmcache.model.errors import InvalidInputError
from mmcache.model.memo import Memo

_UNMADE = object()

MODALITIES = ("image", "text", "audio", "video", "tensor")


class Content:
    """An input, identified. Made by `identify`."""

    __slots__ = ("_frames", "_make", "_value", "decoder", "digest", "encoded_digest", "memo_hit", "modality")

    def __init__(
        self,
        modality: str,
        digest: bytes,
        make: Callable[[], Any],
        *,
        decoder: str = "",
        encoded_digest: bytes | None = None,
        memo_hit: bool = False,
        frames: list[Content] | None = None,
    ) -> None:
        self.modality = modality
        self.digest = digest
        """16 bytes: BLAKE3 of the canonical content, keyed with the realm's salt."""
        self.decoder = decoder
        """Name and version of what decoded it, e.g. `pillow-13.0.0`; empty for arrays and text."""
        self.encoded_digest = encoded_digest
        """16 bytes that identify the encoded bytes, or None where there were none, or no memo."""
        self.memo_hit = memo_hit
        """Whether the digest was known from the encoded bytes, so that nothing was decoded."""
        self._make = make
        self._value: Any = _UNMADE
        self._frames = frames

    def __repr__(self) -> str:
        return f"Content({self.modality}, {self.digest.hex()})"

    def canonical(self) -> Any:
        """What the model must be given: exactly what `digest` describes. Decodes lazily, once; do not write to it.

        Raises `InvalidInputError` when the source (an array, a PIL image) was changed since it was identified.
        """
        if self._value is _UNMADE:
            self._value = self._make()
        return self._value

    def frames(self) -> list[Content]:
        """A video's sampled frames, each an image. Raises `InvalidInputError` for other modalities."""
        if self._frames is None:
            raise InvalidInputError(f"{self.modality} content has no frames")
        return self._frames


def identify(
    source: Any,
    modality: str,
    *,
    salt: bytes,
    memo: Memo | None = None,
    options: ContentOptions = ContentOptions(),  # noqa: B008 - frozen
) -> Content:
    """Identify `source` as `modality`, in the realm of `salt` (32 bytes, see `RealmKeys.salt`).

    A path is read once, here; later changes of the file change nothing. Raises `InvalidInputError` for input that
    has no canonical content: truncated, animated, zero-sized, too large, not finite audio, lone surrogates…
    """
    if modality == "text":
        return _identify_text(source, salt)
    if modality == "tensor":
        from mmcache.keys import tensor

        return tensor.identify_array(source, modality, salt)
    if modality == "image":
        from mmcache.keys import image

        return image.identify_image(source, salt, memo, options)
    if modality == "audio":
        from mmcache.keys import audio

        return audio.identify_audio(source, salt, memo, options)
    if modality == "video":
        from mmcache.keys import video

        return video.identify_video(source, salt, memo, options)
    raise InvalidInputError(f"no modality {modality!r}; there are {', '.join(MODALITIES)}")


def _identify_text(source: Any, salt: bytes) -> Content:
    if not isinstance(source, str):
        raise InvalidInputError(f"text is a str, not {type(source).__name__}; decode bytes first")
    text = unicodedata.normalize("NFC", str.__str__(source))  # what an enum holds, not how it prints
    try:
        payload = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"text holds a lone surrogate at {error.start}; pass valid Unicode") from error
    return Content("text", digest_of(salt, framed("text"), [payload]), lambda: text)


def digest_of(salt: bytes, head: bytes, payload: Iterable[Any]) -> bytes:
    """16 bytes: BLAKE3 keyed with `salt`, of `head` after its length and the payload's buffers, without a copy."""
    hasher = blake3(framed("content", head), key=salt)
    for part in payload:
        hasher.update(part)
    return hasher.digest(length=DIGEST_BYTES)


def encoded_bytes(source: Any, modality: str, options: ContentOptions) -> bytes | None:
    """The encoded bytes of a path or a byte string; None when `source` is neither. Raises `InvalidInputError`."""
    limit = options.max_encoded_bytes
    if isinstance(source, bytes | bytearray | memoryview):
        raw = source if type(source) is bytes else bytes(source)
    elif isinstance(source, str | os.PathLike):
        try:
            raw = _read(Path(source), limit)
        except (OSError, ValueError) as error:  # ValueError: a null byte in the path
            raise InvalidInputError(f"cannot read the {modality} file {os.fspath(source)!r}: {error}") from error
    else:
        return None
    if not raw:
        raise InvalidInputError(f"the encoded {modality} has no bytes")
    if len(raw) > limit:
        raise InvalidInputError(f"the encoded {modality} has more than max_encoded_bytes = {limit}")
    return raw


def _read(path: Path, limit: int) -> bytes:
    # read(), not mmap: a file that somebody truncates while it is mapped kills the process (SIGBUS).
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0))
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_size > limit:
            raise OSError(f"more than max_encoded_bytes = {limit}")
        return file.read(-1) or b""


__all__ = ["MODALITIES", "Content", "ContentOptions", "digest_of", "encoded_bytes", "identify"]
