"""Video files made to measure: pictures and sound at known times, by PyAV. Frames may come at any times.

Also ways to damage one. What FFmpeg's muxer cannot say through PyAV (a display matrix) is written into its header.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

Mono = npt.NDArray[np.float32]
Shown = tuple[int, Image.Image]
"""From which millisecond on, and the picture (RGB, even sides)."""

TICKS = 1_000
"""Of the video track, a second."""
_TURNS = {
    0: (1, 0, 0, 1),
    90: (0, -1, 1, 0),
    180: (-1, 0, 0, -1),
    270: (0, 1, -1, 0),
}
"""Display matrices by what `av` then calls the frame's rotation (counter-clockwise)."""


def steady(until_ms: int, rate: float = 25.0) -> list[int]:
    """Times of frames at a constant rate, in ms."""
    return [round(1000 * n / rate) for n in range(int(until_ms * rate / 1000))]


def film(
    path: Path, shown: Sequence[Shown], times: Sequence[int], sound: Mono | None = None, *, rate: int = 16_000,
    rotation: int = 0, sound_from_ms: int = 0,
) -> None:  # fmt: skip
    """Write a file: at each of `times` (ms, rising) a frame with what is then `shown`, and `sound` from a time on.

    rotation: degrees that a player must turn the frames by, counter-clockwise, to show the pictures as given; they are
    stored turned the other way. The container goes by the path's ending.
    """
    import av

    turned = {
        0: None, 90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90,
    }[rotation]  # fmt: skip
    pictures = [(ms, picture if turned is None else picture.transpose(turned)) for ms, picture in shown]
    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    with av.open(str(path), "w") as container:
        video = container.add_stream(codec, rate=25)
        video.width, video.height = pictures[0][1].size
        video.pix_fmt = "yuv420p"
        video.codec_context.time_base = video.time_base = Fraction(1, TICKS)
        video.codec_context.thread_count = 1  # the same bytes on every machine
        if codec == "libx264":
            video.options = {"crf": "20", "preset": "veryfast", "g": "50", "bf": "0"}
        else:
            video.bit_rate = 8_000_000
        audio = None if sound is None else container.add_stream("aac", rate=rate, layout="mono")
        place, last = 0, None
        for ms in times:
            while place + 1 < len(pictures) and pictures[place + 1][0] <= ms:
                place += 1
            if last is None or last[0] != place:
                last = place, np.asarray(pictures[place][1])
            frame = av.VideoFrame.from_ndarray(last[1], format="rgb24")
            frame.pts, frame.time_base = ms, Fraction(1, TICKS)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        if audio is not None and sound is not None:
            for begin in range(0, sound.size, 1024):
                piece = av.AudioFrame.from_ndarray(sound[None, begin : begin + 1024], format="fltp", layout="mono")
                piece.sample_rate, piece.time_base = rate, Fraction(1, rate)
                piece.pts = begin + sound_from_ms * rate // 1000
                container.mux(audio.encode(piece))
            container.mux(audio.encode(None))
    if rotation:
        _turn(path, rotation)


def _turn(path: Path, rotation: int) -> None:
    """Write the display matrix into the first track's header (ISO/IEC 14496-12, `tkhd`)."""
    data = bytearray(path.read_bytes())
    head = data.index(b"tkhd")
    version = data[head + 4]
    matrix = head + 8 + (32 if version else 20) + 16
    a, b, c, d = _TURNS[rotation]
    values = (a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)
    for place, value in enumerate(values):
        data[matrix + 4 * place : matrix + 4 * place + 4] = value.to_bytes(4, "big", signed=True)
    path.write_bytes(data)


def cut_short(source: Path, target: Path, share: float) -> None:
    """The first `share` (0…1) of a file's bytes."""
    data = source.read_bytes()
    target.write_bytes(data[: int(share * len(data))])


def scratched(source: Path, target: Path, seed: int, holes: int = 6, size: int = 400) -> None:
    """A file with runs of random bytes in its second half."""
    data = bytearray(source.read_bytes())
    random = np.random.default_rng(seed)
    for place in random.integers(len(data) // 3, len(data) - size, holes):
        data[place : place + size] = random.bytes(size)
    target.write_bytes(data)
