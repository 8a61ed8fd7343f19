"""Sound and film: rates, channels, sampling, bad files."""

from __future__ import annotations

import io
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from PIL import Image
from tests.unit.keys.media import ContentOptions, encoded, noise, of, same

from mmcache.keys import audio
from mmcache.keys.resample import resample
from mmcache.model.errors import InvalidInputError


def tone(rate: int, seconds: float = 0.5, hz: float = 440.0) -> Any:
    return (0.5 * np.sin(2 * np.pi * hz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def wave(pcm: Any, rate: int, format: str = "WAV", subtype: str | None = None) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, pcm, rate, format=format, subtype=subtype)
    return buffer.getvalue()


def test_lossless_wrappings_of_the_same_samples_share_a_digest() -> None:
    pcm = (np.random.default_rng(0).integers(-30000, 30000, 4000)).astype(np.int16)
    files = [wave(pcm, 16000, *kind) for kind in (("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("AIFF", "PCM_16"),
                                                  ("FLAC", "PCM_24"))]  # fmt: skip
    files.append(wave((pcm / 32768).astype(np.float32), 16000, "WAV", "FLOAT"))
    digests = {of(file, "audio").digest for file in files}
    assert len(digests) == 1
    given = of((pcm, 16000), "audio")
    assert given.digest in digests
    assert given.decoder == ""
    assert given.canonical().dtype == np.float32
    assert np.array_equal(given.canonical(), (pcm / 32768).astype(np.float32))
    two = np.stack([pcm, pcm], axis=1)
    assert of((two, 16000), "audio").digest == given.digest
    assert of((pcm.astype(np.int32) << 16, 16000), "audio").digest == given.digest


def test_the_target_rate_is_part_of_the_digest() -> None:
    pcm = tone(16000)
    digests = {of((pcm, 16000), "audio", options=ContentOptions(sample_rate=rate)).digest for rate in (8000, 16000)}
    digests |= {of((pcm, 8000), "audio", options=ContentOptions(sample_rate=8000)).digest}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("rate", "target"), [(44100, 16000), (48000, 16000), (8000, 16000), (22050, 16000), (16000, 24000)]
)
def test_resampling_keeps_what_both_rates_can_hold(rate: int, target: int) -> None:
    found = resample(tone(rate), rate, target)
    assert len(found) == -(-rate // 2 * target // rate)
    middle = slice(200, -200)
    assert np.abs(found - tone(target)[: len(found)])[middle].max() < 2e-4


def test_resampling_removes_what_would_alias_and_is_repeatable() -> None:
    high = tone(48000, hz=11000)
    assert np.abs(resample(high, 48000, 16000))[200:-200].max() < 2e-4
    assert resample(high, 48000, 16000).tobytes() == resample(high, 48000, 16000).tobytes()
    for rate in (999_983, 11025, 1):
        found = resample(np.ones(1000), rate, 16000)
        assert np.isfinite(found).all()


def test_bad_audio_is_refused() -> None:
    good = wave(tone(16000), 16000)
    bad: list[Any] = [
        (np.array([0.0, np.nan], np.float32), 16000), (np.array([np.inf]), 16000), (np.array([1e300]), 16000),
        (np.zeros(0, np.float32), 16000), (np.zeros((2, 2, 2), np.float32), 16000),
        (np.zeros((2, 900), np.float32), 16000), wave(np.zeros(0, np.float32), 16000), (np.zeros(4), True),
        (np.zeros(4, np.uint8), 16000), (np.zeros(4), 0), (np.zeros(4), -5), (np.zeros(4), 16000.5),
        good[:20], b"RIFF", b"", b"noise" * 99, 5, encoded(noise(4, 4)),
    ]  # fmt: skip
    for source in bad:
        with pytest.raises(InvalidInputError):
            of(source, "audio")
    for source in (good, (tone(16000), 16000)):
        with pytest.raises(InvalidInputError, match="max_audio_seconds"):
            of(source, "audio", options=ContentOptions(max_audio_seconds=0.1))


def test_pyav_reads_what_soundfile_cannot() -> None:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        stream: Any = container.add_stream("aac", rate=16000)
        frame: Any = av.AudioFrame.from_ndarray(tone(16000)[None, :4096], format="fltp", layout="mono")
        frame.sample_rate = 16000
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)
    content = of(buffer.getvalue(), "audio")
    assert len(content.canonical()) >= 4096
    options = ContentOptions()
    pcm = audio._decode_av(wave(tone(16000), 16000, "WAV", "FLOAT"), options)
    assert np.array_equal(pcm, audio.decode(wave(tone(16000), 16000, "WAV", "FLOAT"), options))
    with pytest.raises(InvalidInputError, match="no audio"):
        of(film([noise(16, 16)]), "audio")


def test_a_codec_that_nobody_knows_is_refused() -> None:
    raw = bytearray(wave(tone(16000), 16000, "WAV", "FLOAT"))
    raw[20:22] = b"\xef\xbe"  # the format's number
    for decode in (audio.decode, audio._decode_av):
        with pytest.raises(InvalidInputError):
            decode(bytes(raw), ContentOptions())


def film(frames: list[Image.Image], rate: int = 2, format: str = "matroska", codec: str = "ffv1") -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=format) as container:
        stream: Any = container.add_stream(codec, rate=Fraction(rate))
        stream.width, stream.height = frames[0].size
        stream.pix_fmt = "bgr0" if codec == "ffv1" else "yuv420p"
        for picture in frames:
            for packet in stream.encode(av.VideoFrame.from_image(picture).reformat(format=stream.pix_fmt)):
                container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)
    return buffer.getvalue()


FRAMES = [noise(16, 12, seed=seed) for seed in range(6)]


def test_a_film_is_the_list_of_its_sampled_frames() -> None:
    raw = film(FRAMES)
    whole = of(raw, "video", options=ContentOptions(frame_seconds=0))
    assert len(whole.frames()) == 6
    assert all(same(one, two) for one, two in zip(whole.canonical(), FRAMES, strict=True))
    assert [frame.digest for frame in whole.frames()] == [of(picture).digest for picture in FRAMES]
    assert all(same(frame.canonical(), picture) for frame, picture in zip(whole.frames(), FRAMES, strict=True))
    by_second = of(raw, "video")
    assert [frame.digest for frame in by_second.frames()] == [of(picture).digest for picture in FRAMES[::2]]
    few = of(raw, "video", options=ContentOptions(max_frames=2))
    assert len(few.frames()) == 2
    assert len({whole.digest, by_second.digest, few.digest}) == 3
    assert by_second.decoder.startswith("av-")


def test_lossless_wrappings_of_a_film_share_a_digest() -> None:
    assert of(film(FRAMES), "video").digest == of(film(FRAMES, format="avi"), "video").digest
    assert of(film(FRAMES), "video").digest != of(film(FRAMES[::-1]), "video").digest


def test_a_list_of_frames_keeps_order_and_number() -> None:
    one, two = FRAMES[:2]
    lists = [[one], [two], [one, two], [two, one], [one, one], [one, two, two], [np.asarray(one)]]
    contents = [of(frames, "video") for frames in lists]
    assert len({content.digest for content in contents}) == len(lists)
    assert contents[2].digest == of((encoded(one), two), "video").digest
    assert contents[0].digest != of(one).digest
    assert same(contents[3].canonical()[0], two)
    assert [frame.modality for frame in contents[2].frames()] == ["image", "image"]


def test_bad_films_are_refused() -> None:
    raw = film(FRAMES)
    bad: list[Any] = [[], b"", b"no film", raw[:100], 5, [5], wave(tone(16000), 16000)]
    for source in bad:
        with pytest.raises(InvalidInputError):
            of(source, "video")
    with pytest.raises(InvalidInputError, match="max_pixels"):
        of(raw, "video", options=ContentOptions(max_pixels=16 * 12 - 1))
    with pytest.raises(InvalidInputError, match="no frames"):
        of(FRAMES[0]).frames()
