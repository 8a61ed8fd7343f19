"""Speech: two recordings, cut into clips."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from mmcache.lab.assets import Asset
from mmcache.model.errors import AssetError

RATE = 16_000
"""Samples a second of every recording here."""
RECORDINGS = {
    "dialogue": Asset(
        "pyannote", "audio/sample/sample.wav", "c319b4abca767b124e41432d364fd7df006cb26bb79d09326c487d606a134e6e"
    ),
    "reading": Asset(
        "moonshine_onnx", "assets/beckett.wav", "e5a26b3d29e5b0bc8dbd72c11d16a3808a4ec0ac45b21f12a27d2a2fe5c5ae61"
    ),
}
"""30 s of two people on the telephone, and 10 s of one reader."""


@dataclass(frozen=True)
class Clip:
    """Mono float32 PCM at 16 kHz."""

    recording: str
    start: float
    """Seconds."""
    samples: npt.NDArray[np.float32]


@cache
def _recording(name: str) -> npt.NDArray[np.float32]:
    import soundfile

    samples, rate = soundfile.read(RECORDINGS[name].verified(), dtype="float32")
    if rate != RATE or samples.ndim != 1:
        raise AssetError(f"the recording {name!r} should be mono at {RATE} Hz")
    pcm: npt.NDArray[np.float32] = samples
    return pcm


def speech(seconds: float = 4.0, hop: float = 2.0) -> tuple[Clip, ...]:
    """Clips of `seconds`, one every `hop` seconds: they overlap where `hop` is shorter. Raises `AssetError`."""
    size, clips = round(seconds * RATE), []
    for name in RECORDINGS:
        samples = _recording(name)
        clips += [
            Clip(name, begin / RATE, samples[begin : begin + size])
            for begin in range(0, samples.size - size + 1, round(hop * RATE))
        ]
    return tuple(clips)
