"""Whisper's log-mel spectrogram (Radford et al., 2022) in numpy: the encoder's input without torch."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import InvalidInputError

Floats = npt.NDArray[np.float32]

RATE = 16_000
"""Samples a second."""
WINDOW = 400
HOP = 160
BANDS = 80
MAX_SECONDS = 30


def _to_hertz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Slaney's scale: linear below 1 kHz, logarithmic above."""
    linear = mels * (200 / 3)
    return np.where(mels < 15, linear, 1000 * np.exp((mels - 15) * (np.log(6.4) / 27)))


@cache
def filters() -> Floats:
    """float32 [80, 201]: triangular bands of equal area over 0–8 kHz (as `librosa.filters.mel`)."""
    top = 15 + np.log(8) * 27 / np.log(6.4)
    edges = _to_hertz(np.linspace(0, top, BANDS + 2))
    bins = np.fft.rfftfreq(WINDOW, 1 / RATE)
    slopes = edges[:, None] - bins[None, :]
    widths = np.diff(edges)
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    bands = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return bands.astype(np.float32)


def log_mel(samples: Floats) -> Floats:
    """float32 mono PCM at 16 kHz [n] → float32 [80, n // 160].

    Raises `InvalidInputError` for another shape, fewer than 400 samples, more than 30 s, or values that are not finite.
    """
    if samples.ndim != 1 or not WINDOW <= samples.size <= MAX_SECONDS * RATE:
        raise InvalidInputError(f"speech is mono PCM of {WINDOW} to {MAX_SECONDS * RATE} samples, got {samples.shape}")
    if not np.isfinite(samples).all():
        raise InvalidInputError("speech samples must be finite")
    padded = np.pad(samples.astype(np.float32), WINDOW // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][: samples.size // HOP]
    hann = np.hanning(WINDOW + 1)[:-1]
    power = np.abs(np.fft.rfft(frames * hann, axis=1)) ** 2
    decades = np.log10(np.maximum(filters() @ power.T.astype(np.float32), 1e-10))
    scaled = (np.maximum(decades, decades.max() - 8) + 4) / 4
    return np.ascontiguousarray(scaled, np.float32)
