"""Two sounds: the same one saved again, the same with its ends trimmed, or another one. Without a model.

A sketch is a spectrogram in decibels: 40 bands from 150 to 3 800 Hz (what telephone codecs keep), 1.4 semitones each,
in frames of 64 ms every 20 ms, as fingerprints of music have it (Haitsma & Kalker 2002, "A highly robust audio
fingerprinting system"). They ask whether most of it agrees; here no patch of 160 ms by three bands may differ by more
than lossy codecs do to it, so that one changed word is enough to refuse.

What this cannot see: anything below 150 or above 3 800 Hz, what is more than 30 dB below the loudest, and phase.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from mmcache.likeness.base import Nearness
from mmcache.model.errors import CorruptFrameError

Floats = npt.NDArray[np.float32]

BANDS = 40
LOWEST, HIGHEST = 150.0, 3800.0
"""Hz."""
HOP, WINDOW = 0.02, 0.064
"""Seconds."""
LEAST_SECONDS, MOST_SECONDS = 0.5, 480.0
"""A shorter or longer sound matches nothing but itself."""
LEAST_RATE = 7600
"""Hz."""
MOST_SHIFTED = 0.06
"""Seconds by which a codec may delay a sound, so that it still counts as `REENCODED`."""
MOST_TRIMMED = 0.05
"""Share of the longer sound's length that may be missing at either end."""
DEPTH = 30.0
"""Decibels below the loudest band that count; what is quieter is noise of codecs and rooms."""
LEAST_LEVEL = -80.0
"""Decibels of full scale that the loudest band must reach."""
LEAST_VARIED = 6.0
"""Decibels that the bands' levels must vary by over time (standard deviation, of the liveliest band): a steady tone or
noise has no detail by which to know it again."""
LEAST_LOUD = 16
"""Frames within half of `DEPTH` of the loudest: a click or a knock in a pause has too little to know it again by."""
MOST_OFF = 5.5
"""Mean decibels by which a patch may differ. What is measured of codecs: table `likeness`."""
_PATCH = (8, 3)
"""Frames by bands."""
_STEP = 0.5
_QUIETEST = -110.0
_VERSION = 1
_PARTS = 8
_VECTOR_BANDS = 20
DIMENSIONS = _PARTS * _VECTOR_BANDS
"""Of `SoundSketch.vector`."""


class SoundSketch(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a sound to know it again: 2 KB a second."""

    version: int
    seconds: float
    frames: int
    """0 for a sound that nothing can be said about: it is like no other."""
    levels: bytes
    """uint8 [frames, 40]: half decibels above −110 dB of full scale."""

    def to_bytes(self) -> bytes:
        """As msgpack."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def from_bytes(data: bytes) -> SoundSketch:
        """The sketch that `to_bytes` wrote. Raises `CorruptFrameError` for anything else."""
        try:
            sketch = msgspec.msgpack.decode(data, type=SoundSketch)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise CorruptFrameError(f"these {len(data)} bytes are no sound sketch; drop them") from error
        sizes = 0 <= sketch.frames <= MOST_SECONDS / HOP and len(sketch.levels) == sketch.frames * BANDS
        if sketch.version != _VERSION or not sizes or not 0 <= sketch.seconds < float("inf"):
            raise CorruptFrameError(f"a sound sketch of version {sketch.version}, {sketch.frames} frames: drop it")
        return sketch

    @property
    def comparable(self) -> bool:
        """Whether it can be like any other sound: silence, steady tones, very short and long ones cannot."""
        return self.frames > 0

    @property
    def vector(self) -> Floats:
        """float32 [160], L2-normalised (zeros where not `comparable`): 20 bands' levels in 8 overlapping parts."""
        if not self.comparable:
            return np.zeros(DIMENSIONS, np.float32)
        levels = _decibels(self)
        levels = np.maximum(levels - levels.max(), -DEPTH).reshape(self.frames, _VECTOR_BANDS, -1).mean(axis=2)
        centres = (np.arange(_PARTS) + 0.5) / _PARTS
        bells = np.exp(-0.5 * (((np.arange(self.frames) + 0.5) / self.frames - centres[:, None]) * _PARTS / 0.75) ** 2)
        parts = (bells / bells.sum(axis=1, keepdims=True)) @ levels
        found = (parts - parts.mean()).ravel()
        return np.asarray(found / max(float(np.linalg.norm(found)), 1e-6), np.float32)


def _decibels(sketch: SoundSketch) -> Floats:
    levels = np.frombuffer(sketch.levels, np.uint8).reshape(sketch.frames, BANDS)
    return levels.astype(np.float32) * np.float32(_STEP) + np.float32(_QUIETEST)


@lru_cache(maxsize=16)
def _bands(rate: int, size: int) -> Floats:
    """Float32 [size / 2 + 1, 40]: overlapping triangles, evenly spaced in pitch."""
    edges = np.geomspace(LOWEST, HIGHEST, BANDS + 2)
    bins = np.arange(size // 2 + 1) * (rate / size)
    centres = edges[1:-1]
    half = np.maximum(edges[2:] - centres, rate / size)
    weights = np.clip(1 - np.abs(bins[:, None] - centres) / half, 0, None)
    return np.asarray(weights / weights.sum(axis=0, keepdims=True), np.float32)


def describe(pcm: npt.NDArray[Any], sample_rate: int) -> SoundSketch:
    """The sketch of canonical mono float PCM [samples]. Never raises for sound: what cannot be judged is like none."""
    samples = np.asarray(pcm)
    seconds = samples.size / sample_rate if sample_rate > 0 else 0.0
    blind = SoundSketch(_VERSION, seconds, 0, b"")
    if samples.ndim != 1 or samples.dtype.kind != "f" or sample_rate < LEAST_RATE:
        return blind
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        return blind
    size = round(WINDOW * sample_rate)
    count = int((seconds - WINDOW) / HOP) + 1
    starts = np.rint(np.arange(count) * (HOP * sample_rate)).astype(np.intp)
    starts = starts[starts <= samples.size - size]
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float32, copy=False), size)[starts]
    power = np.abs(np.fft.rfft(frames * np.hanning(size).astype(np.float32), axis=1)) ** 2 @ _bands(sample_rate, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = 10 * np.log10(power * (16.0 / (3.0 * size * size)))
    if np.isnan(levels).any():
        return blind
    coded = np.clip(np.rint((levels - _QUIETEST) / _STEP), 0, 255).astype(np.uint8)
    sketch = SoundSketch(_VERSION, seconds, len(starts), coded.tobytes())
    heard = _decibels(sketch)
    heard = np.maximum(heard, heard.max() - DEPTH)
    lively = heard.std(axis=0).max() >= LEAST_VARIED
    loud = int((heard.max(axis=1) > heard.max() - DEPTH / 2).sum()) >= LEAST_LOUD
    return sketch if heard.max() > LEAST_LEVEL and lively and loud else blind


def compare(asked: SoundSketch, stored: SoundSketch) -> Nearness:
    """How near two sounds are by how they sound: `REENCODED`, `TRIMMED` or `UNLIKE`; symmetric, loudness apart.

    Never `SAME`: that is a matter of digests. A sketch is `REENCODED` from itself, unless it is not `comparable`.
    """
    if not asked.comparable or not stored.comparable:
        return Nearness.UNLIKE
    if asked == stored:
        return Nearness.REENCODED
    one, other = sorted((asked, stored), key=lambda s: (s.frames, s.seconds, s.levels))
    most = MOST_TRIMMED * other.seconds + MOST_SHIFTED
    if other.seconds - one.seconds > 2 * most:
        return Nearness.UNLIKE
    a, b = _decibels(one), _decibels(other)
    a, b = np.maximum(a, a.max() - DEPTH), np.maximum(b, b.max() - DEPTH)
    lag = _lag(a, b, round(most / HOP))
    end = lag + one.frames - other.frames
    if max(abs(lag), abs(end)) * HOP > most or not _agree(a, b, lag):
        return Nearness.UNLIKE
    alike = max(abs(lag), abs(end)) * HOP <= MOST_SHIFTED + HOP
    return Nearness.REENCODED if alike else Nearness.TRIMMED


def _lag(one: Floats, other: Floats, most: int) -> int:
    """By how many frames `one` begins later than `other`, −most to most: the peak of their correlation."""
    size = 1 << (len(one) + len(other)).bit_length()
    spectra = [np.fft.rfft(levels - levels.mean(), size, axis=0) for levels in (other, one)]
    product = np.fft.irfft((spectra[0] * spectra[1].conj()).sum(axis=1), size)
    lags = np.arange(-most, most + 1)
    return int(lags[np.argmax(product[lags])])


def _agree(one: Floats, other: Floats, lag: int) -> bool:
    """Whether no patch differs by more than codecs do to it, once loudness is made equal."""
    begin, end = max(lag, 0), min(len(other), lag + len(one))
    a, b = one[begin - lag : end - lag], other[begin:end]
    if len(a) < _PATCH[0]:
        return False
    loud = (a > a.max() - DEPTH / 2) & (b > b.max() - DEPTH / 2)
    if loud.sum() < len(a) / 4:
        return False
    b = b + np.median((a - b)[loud])
    floor = max(a.max(), b.max()) - DEPTH
    off = np.abs(np.maximum(a, floor) - np.maximum(b, floor))
    sums = np.pad(off.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    t, f = _PATCH
    patches = sums[t:, f:] - sums[:-t, f:] - sums[t:, :-f] + sums[:-t, :-f]
    return bool(patches.max() <= MOST_OFF * t * f)
