"""What becomes of recordings on their way: edits after which one is the same, and changes after which it is not."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from mmcache.keys.audio import decode
from mmcache.keys.options import ContentOptions

Mono = npt.NDArray[np.float32]
Edited = Iterator[tuple[str, Mono]]
RATE = 16_000


def saved(samples: Mono, codec: str, kind: str, bits: int, rate: int = RATE) -> Mono:
    """16 kHz `samples` encoded by FFmpeg's `codec` at `bits` a second into a `kind` file, decoded as `keys` does it."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.bit_rate, stream.layout = bits, "mono"
        stream.codec_context.open()
        frame = av.AudioFrame.from_ndarray(samples[None].astype(np.float32), format="fltp", layout="mono")
        frame.sample_rate = RATE
        suited = av.AudioResampler(format=stream.codec_context.format.name, layout="mono", rate=rate)
        queue, size, done = av.AudioFifo(), stream.codec_context.frame_size or 1024, 0
        for piece in (*suited.resample(frame), *suited.resample(None)):
            queue.write(piece)
        while piece := queue.read(size) or queue.read(size, partial=True):
            piece.pts, done = done, done + piece.samples
            container.mux(stream.encode(piece))
        container.mux(stream.encode(None))
    return decode(file.getvalue(), ContentOptions())


def reencoded(samples: Mono, random: np.random.Generator) -> Edited:
    """The same sound."""
    for bits in (12, 16, 32):
        yield f"opus-{bits}k", saved(samples, "libopus", "ogg", bits * 1000, 48_000)
    for bits in (32, 64):
        yield f"mp3-{bits}k", saved(samples, "libmp3lame", "mp3", bits * 1000)
    yield "8-kHz", saved(samples, "pcm_s16le", "wav", 0, 8000)
    yield "louder-6dB", samples * np.float32(2)
    yield "softer-6dB", samples * np.float32(0.5)
    for decibels in (30, 20):
        noise = random.standard_normal(samples.size) * np.sqrt(np.mean(samples**2)) * 10 ** (-decibels / 20)
        yield f"noise-{decibels}dB", (samples + noise).astype(np.float32)
    yield "late-7ms", samples[112:]


def trimmed(samples: Mono) -> Edited:
    """The same sound, with a few per cent of its ends cut off."""
    for percent in (3, 5):
        size = samples.size * percent // 100
        yield f"head-{percent}", samples[size:]
        yield f"tail-{percent}", samples[:-size]
        yield f"ends-{percent}", samples[size:-size]
    yield "ends-3-opus-16k", saved(samples[samples.size * 3 // 100 :], "libopus", "ogg", 16_000, 48_000)


def changed(samples: Mono, other: Mono, random: np.random.Generator) -> Edited:
    """Other sounds made of it. `other`: the same speaker, to splice in. Pauses are not worth cutting: speech is."""
    for millis in (150, 250, 400):
        size = millis * RATE // 1000
        at, source = _loudest(samples, size, random), _loudest(other, size, random)
        spliced, muted = samples.copy(), samples.copy()
        spliced[at : at + size] = other[source : source + size]
        muted[at : at + size] = 0
        yield f"spliced-{millis}ms", spliced
        yield f"muted-{millis}ms", muted
        yield f"cut-{millis}ms", np.concatenate([samples[:at], samples[at + size :]])
    yield "backwards", samples[::-1].copy()
    for percent in (2, 6):
        places = np.arange(0, samples.size - 1, 1 + percent / 100)
        yield f"faster-{percent}%", np.interp(places, np.arange(samples.size), samples).astype(np.float32)


def _loudest(samples: Mono, size: int, random: np.random.Generator) -> int:
    """Where a stretch of `size` begins that is among the louder half, not within 0.5 s of the ends."""
    starts = random.integers(RATE // 2, samples.size - size - RATE // 2, 16)
    power = [float(np.mean(samples[start : start + size] ** 2)) for start in starts]
    return int(starts[np.argsort(power)[-int(random.integers(1, 9))]])
