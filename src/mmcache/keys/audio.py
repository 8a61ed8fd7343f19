"""Audio. Canonical = mono float32 PCM in a (samples,) array at `options.sample_rate`.

Channels are averaged; the rate is converted by `keys.resample`. Not a number, infinite, and no samples are errors.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.keys.containers import opened
from mmcache.keys.content import Content, digest_of, encoded_bytes
from mmcache.keys.framing import framed
from mmcache.keys.memo import Encoded
from mmcache.keys.options import ContentOptions
from mmcache.keys.resample import RESAMPLER, resample
from mmcache.model.errors import InvalidInputError
from mmcache.model.memo import Memo

_MOST_CHANNELS = 64

Mono = npt.NDArray[np.float32]


@cache
def audio_decoder() -> str:
    """Decoders and resampler with versions. Raises `InvalidInputError` when soundfile and PyAV are missing."""
    found = []
    try:
        import soundfile

        found.append(f"soundfile-{soundfile.__version__} sndfile-{soundfile.__libsndfile_version__}")
    except (ImportError, OSError):  # OSError: libsndfile itself is missing
        pass
    try:
        import av

        found.append(f"av-{av.__version__}")
    except ImportError:
        pass
    if not found:
        raise InvalidInputError("audio files need soundfile or PyAV: pip install 'mmcache[media]'")
    return " ".join([*found, RESAMPLER])


def identify_audio(source: Any, salt: bytes, memo: Memo | None, options: ContentOptions) -> Content:
    """Content of a path, encoded bytes, or `(pcm, sample_rate)`. Raises `InvalidInputError`.

    pcm: (samples,) or (samples, channels), float32, float64, int16 or int32 (integers are full scale = 1).
    """
    if isinstance(source, tuple) and len(source) == 2 and not isinstance(source[0], str | bytes):
        return _identify_pcm(source[0], source[1], salt, options)
    raw = encoded_bytes(source, "audio", options)
    if raw is None:
        raise InvalidInputError(f"audio is a path, bytes or (pcm, sample_rate), not {type(source).__name__}")
    decoder = audio_decoder()
    encoded = Encoded(raw, "audio", decoder, memo, salt, options)
    known = encoded.recall()
    if known is not None and len(known) == 16:

        def canonical() -> Mono:
            pcm = decode(raw, options)
            encoded.check(_digest(pcm, salt, options), known)
            return pcm

        return Content("audio", known, canonical, decoder=decoder, encoded_digest=encoded.digest, memo_hit=True)
    pcm = decode(raw, options)
    digest = _digest(pcm, salt, options)
    encoded.remember(digest)
    return Content("audio", digest, lambda: pcm, decoder=decoder, encoded_digest=encoded.digest)


def _identify_pcm(pcm: Any, rate: Any, salt: bytes, options: ContentOptions) -> Content:
    if isinstance(rate, bool) or not isinstance(rate, int | np.integer):
        raise InvalidInputError(f"the sample rate is a whole number of Hz, got {rate!r}")
    mono = _canonical(_floats(np.asarray(pcm)), int(rate), options)
    if np.may_share_memory(mono, pcm):
        mono = mono.copy()  # the caller may reuse its buffer before the model runs
    return Content(
        "audio", _digest(mono, salt, options), lambda: mono, decoder=RESAMPLER if rate != options.sample_rate else ""
    )


def _digest(mono: Mono, salt: bytes, options: ContentOptions) -> bytes:
    pcm = mono.astype("<f4", copy=False).view(np.uint8)
    return digest_of(salt, framed("audio", b"float32", b"%d" % options.sample_rate), [pcm])


def _floats(pcm: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if pcm.dtype in (np.int16, np.int32):
        return pcm.astype(np.float64) / -float(np.iinfo(pcm.dtype).min)
    if pcm.dtype in (np.float32, np.float64):
        return pcm
    raise InvalidInputError(f"PCM is float32, float64, int16 or int32, not {pcm.dtype}")


def _canonical(pcm: npt.NDArray[Any], rate: int, options: ContentOptions) -> Mono:
    """Averaged, resampled, checked."""
    if pcm.ndim == 2 and pcm.shape[1] > _MOST_CHANNELS:
        raise InvalidInputError(f"PCM of shape {pcm.shape} is not (samples, channels); transpose it")
    if pcm.ndim not in (1, 2) or pcm.size == 0:
        raise InvalidInputError(f"PCM is (samples,) or (samples, channels) and not empty, got {pcm.shape}")
    if not 1 <= rate <= 10_000_000:
        raise InvalidInputError(f"a sample rate of {rate} Hz makes no sense")
    if len(pcm) > options.max_audio_seconds * rate:
        raise InvalidInputError(f"the audio is longer than max_audio_seconds = {options.max_audio_seconds}")
    mono = pcm if pcm.ndim == 1 else pcm[:, 0] if pcm.shape[1] == 1 else pcm.mean(axis=1, dtype=np.float64)
    if not np.isfinite(mono).all():
        raise InvalidInputError("the audio holds NaN or infinity")
    with np.errstate(over="ignore"):  # becomes infinity, which is refused
        found = np.ascontiguousarray(resample(mono, rate, options.sample_rate), dtype=np.float32)
    if not np.isfinite(found).all():
        raise InvalidInputError("the audio is too loud for float32")
    return found


def decode(raw: bytes, options: ContentOptions) -> Mono:
    """Encoded bytes → canonical PCM, by soundfile, else by PyAV. Raises `InvalidInputError`."""
    try:
        import soundfile
    except (ImportError, OSError):
        return _decode_av(raw, options)
    try:
        with soundfile.SoundFile(io.BytesIO(raw)) as file:
            if file.frames > options.max_audio_seconds * file.samplerate:
                raise InvalidInputError(f"the audio is longer than max_audio_seconds = {options.max_audio_seconds}")
            pcm = file.read(dtype="float32", always_2d=True)
            if 0 < file.frames != len(pcm):
                raise InvalidInputError(f"the audio is cut off: {len(pcm)} of {file.frames} samples")
            rate = file.samplerate
    except soundfile.SoundFileError:
        return _decode_av(raw, options)
    return _canonical(pcm, rate, options)


def _decode_av(raw: bytes, options: ContentOptions) -> Mono:
    try:
        import av
    except ImportError as error:
        raise InvalidInputError("soundfile cannot decode this audio; PyAV may: pip install 'mmcache[media]'") from error
    try:
        with opened(io.BytesIO(raw), options.max_pixels) as container:
            if not container.streams.audio:
                raise InvalidInputError("the file has no audio stream")
            context = container.streams.audio[0].codec_context
            if context is None:
                raise InvalidInputError("the audio is of a codec that cannot be decoded here")
            rate = context.sample_rate
            pcm = np.concatenate(list(_chunks(container, rate, options)) or [np.empty((0, 1), np.float32)])
    except InvalidInputError:
        raise
    except (av.FFmpegError, ValueError, EOFError, OSError) as error:
        raise InvalidInputError(f"the audio cannot be decoded: {error}") from error
    return _canonical(pcm, rate, options)


def _chunks(container: Any, rate: int, options: ContentOptions) -> Iterator[npt.NDArray[np.float32]]:
    """Decoded (samples, channels) pieces."""
    import av

    planar = av.AudioResampler(format="fltp", rate=rate)
    total = 0
    for frame in container.decode(audio=0):
        for piece in planar.resample(frame):
            total += piece.samples
            if total > options.max_audio_seconds * rate:
                raise InvalidInputError(f"the audio is longer than max_audio_seconds = {options.max_audio_seconds}")
            yield piece.to_ndarray().T
    for piece in planar.resample(None):
        yield piece.to_ndarray().T
