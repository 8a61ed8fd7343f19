"""Video. Canonical = the list of its sampled frames, upright RGB pictures.

The digest covers the list of the frames' own digests, and for a file how it was sampled. Each frame is a `Content`
of modality image, so a still scene is one block.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from mmcache.keys.containers import opened
from mmcache.keys.content import Content, digest_of, encoded_bytes
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.keys.image import digest_of_picture, identify_image, pillow_version
from mmcache.keys.memo import Encoded
from mmcache.keys.options import ContentOptions
from mmcache.model.errors import InvalidInputError
from mmcache.model.memo import Memo

if TYPE_CHECKING:
    from PIL.Image import Image


@cache
def video_decoder() -> str:
    """PyAV, its codecs, and Pillow, with versions. Raises `InvalidInputError` when PyAV is missing."""
    try:
        import av
    except ImportError as error:
        raise InvalidInputError("video files need PyAV: pip install 'mmcache[media]'") from error
    codec = ".".join(map(str, av.library_versions.get("libavcodec", ())))
    return f"av-{av.__version__} avcodec-{codec} {pillow_version()}"


def identify_video(source: Any, salt: bytes, memo: Memo | None, options: ContentOptions) -> Content:
    """Content of a path, encoded bytes, or a sequence of pictures (all are used). Raises `InvalidInputError`."""
    raw = encoded_bytes(source, "video", options)
    if raw is None:
        if not isinstance(source, Sequence):
            raise InvalidInputError(f"a video is a path, bytes or a list of pictures, not {type(source).__name__}")
        return _identify_list(source, salt, memo, options)
    decoder = video_decoder()
    encoded = Encoded(raw, "video", decoder, memo, salt, options)
    known = encoded.recall()
    film = _Film(raw, options)

    def digest_frames() -> bytes:
        return b"".join(digest_of_picture(picture, salt) for picture in film.pictures())

    @cache  # every frame asks for it
    def canonical() -> list[Image]:
        if known is not None:
            encoded.check(digest_frames(), known)
        return film.pictures()

    digests = digest_frames() if known is None else known
    if known is None:
        encoded.remember(digests)
    frames = [
        Content("image", digests[at : at + DIGEST_BYTES], _frame_of(canonical, at // DIGEST_BYTES), decoder=decoder)
        for at in range(0, len(digests), DIGEST_BYTES)
    ]
    sampling = b"%r s, at most %d" % (float(options.frame_seconds).hex(), options.max_frames)
    return Content(
        "video",
        digest_of(salt, framed("video", sampling), [digests]),
        canonical,
        decoder=decoder,
        encoded_digest=encoded.digest,
        memo_hit=known is not None,
        frames=frames,
    )


def _identify_list(source: Sequence[Any], salt: bytes, memo: Memo | None, options: ContentOptions) -> Content:
    frames = [identify_image(picture, salt, memo, options) for picture in source]
    if not frames:
        raise InvalidInputError("a video has at least one frame")
    digest = digest_of(salt, framed("frames"), [frame.digest for frame in frames])
    decoder = next((frame.decoder for frame in frames if frame.decoder), "")
    return Content("video", digest, lambda: [frame.canonical() for frame in frames], decoder=decoder, frames=frames)


def _frame_of(pictures: Callable[[], list[Image]], place: int) -> Callable[[], Image]:
    return lambda: pictures()[place]


class _Film:
    """A video file's sampled frames, decoded when first asked for, all at once."""

    def __init__(self, raw: bytes, options: ContentOptions) -> None:
        self._raw = raw
        self._options = options
        self._pictures: list[Image] | None = None

    def pictures(self) -> list[Image]:
        if self._pictures is None:
            self._pictures = list(_sampled(self._raw, self._options))
            if not self._pictures:
                raise InvalidInputError("the video has no frames")
        return self._pictures


def _sampled(raw: bytes, options: ContentOptions) -> Iterator[Image]:
    """The first frame at or after each multiple of `frame_seconds`, upright RGB, at most `max_frames`."""
    import av

    taken, due = 0, 0.0
    try:
        with opened(io.BytesIO(raw), options.max_pixels) as container:
            if not container.streams.video:
                raise InvalidInputError("the file has no video stream")
            context = container.streams.video[0].codec_context
            if context is None:
                raise InvalidInputError("the video is of a codec that cannot be decoded here")
            if context.width * context.height > options.max_pixels:  # before a frame is allocated
                raise InvalidInputError(f"the video has more than max_pixels={options.max_pixels} pixels a frame")
            start: float | None = None
            for frame in container.decode(video=0):
                if frame.width * frame.height > options.max_pixels:
                    raise InvalidInputError(f"a frame has more than max_pixels={options.max_pixels} pixels")
                now = frame.time if frame.time is not None else taken * options.frame_seconds
                start = now if start is None else start
                if now - start + 1e-9 < due:
                    continue
                taken += 1
                due = (
                    (int((now - start + 1e-9) / options.frame_seconds) + 1) * options.frame_seconds
                    if options.frame_seconds
                    else 0.0
                )
                yield _upright(frame)
                if taken >= options.max_frames:
                    return
    except InvalidInputError:
        raise
    except (av.FFmpegError, ValueError, EOFError, OSError) as error:
        raise InvalidInputError(f"the video cannot be decoded: {error}") from error


def _upright(frame: Any) -> Image:
    from PIL.Image import Transpose

    picture: Image = frame.to_image()
    turns = {90: Transpose.ROTATE_90, 180: Transpose.ROTATE_180, 270: Transpose.ROTATE_270}
    turn = turns.get(round(frame.rotation) % 360)
    return picture if turn is None else picture.transpose(turn)
