"""Media files by PyAV, opened so that they can do no harm: what they hold, and no other file, address or device.

FFmpeg also "opens" lists of other files (HLS, DASH, `ffconcat`), session descriptions (SDP: it binds UDP ports and
waits for packets) and plain text (as a picture of a terminal). A file from a stranger may be any of these, whatever its
name says; only formats that hold their content themselves are let through, in what is nested in them, too.
"""

from __future__ import annotations

from typing import Any

from mmcache.model.errors import InvalidInputError

FORMATS = (
    "mov", "matroska", "webm", "avi", "mpegts", "mpeg", "mpegvideo", "m4v", "flv", "asf", "ogg", "gif", "apng", "mjpeg",
    "h264", "hevc", "vvc", "av1", "obu", "ivf", "dv", "mxf", "gxf", "nut", "wtv", "rm", "swf", "yuv4mpegpipe",
    "wav", "w64", "aiff", "au", "caf", "flac", "mp3", "aac", "loas", "ac3", "eac3", "dts", "amr", "amrnb", "amrwb",
    "ape", "tta", "wv", "tak", "mpc", "mpc8", "dsf", "voc",
)  # fmt: skip
"""FFmpeg's names of the formats that are opened."""


def opened(file: Any, max_pixels: int) -> Any:
    """An `av` container of a binary file object; close it. max_pixels: of a frame that is allocated.

    Raises PyAV's errors, `ValueError` (`av.ArgumentError`) for another format among them, and `ImportError` without it.
    """
    import av

    options = {"format_whitelist": ",".join(FORMATS), "protocol_whitelist": "none", "max_pixels": str(max_pixels)}
    container = av.open(file, metadata_errors="ignore", io_open=_alone, options=options)
    for stream in container.streams.video:
        if stream.codec_context is not None:
            stream.codec_context.options = {"max_pixels": str(max_pixels)}
    return container


def _alone(name: str, flags: int, options: object) -> Any:
    raise InvalidInputError("this file refers to another file, which is not followed")
