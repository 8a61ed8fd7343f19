"""Sketches of sounds, on recorded speech where it is installed, and on made-up sounds."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmcache.likeness.base import Nearness
from mmcache.likeness.sound import DIMENSIONS, SoundSketch, compare, describe
from mmcache.model.errors import AssetError, CorruptFrameError

RATE = 16_000
Mono = npt.NDArray[np.float32]


def babble(seed: int, seconds: float = 3.0, rate: int = RATE) -> Mono:
    """Syllables of gliding harmonics with pauses between: as lively as speech, and free to test with."""
    random = np.random.default_rng(seed)
    found = np.zeros(round(seconds * rate))
    at = 0.0
    while at < seconds:
        length = random.uniform(0.12, 0.3)
        time = np.arange(round(length * rate)) / rate
        pitch = random.uniform(100, 250) * (1 + random.uniform(-0.3, 0.3) * time / length)
        phase, centre = 2 * np.pi * np.cumsum(pitch) / rate, random.uniform(400, 2500)
        syllable = sum(
            np.exp(-(((k * pitch.mean() - centre) / 500) ** 2)) * np.sin(k * phase) for k in range(1, 20)
        ) * np.hanning(len(time))
        begin = round(at * rate)
        room = found[begin : begin + len(time)]
        room += 0.2 * np.asarray(syllable)[: len(room)]
        at += length + random.uniform(0.02, 0.15)
    return (found + 1e-5 * random.standard_normal(found.size)).astype(np.float32)


def nearness(one: Mono, other: Mono) -> Nearness:
    return compare(describe(one, RATE), describe(other, RATE))


@pytest.fixture(scope="module")
def clips() -> list[Any]:
    pytest.importorskip("soundfile", reason="recordings are read by soundfile")
    from mmcache.lab import data

    try:
        found = data.speech(4.0, 4.0)
    except AssetError as error:
        pytest.skip(str(error))
    return [clip for clip in found if describe(clip.samples, RATE).comparable]


def test_recorded_speech_saved_again_is_reencoded(clips: list[Any]) -> None:
    pytest.importorskip("av", reason="lossy codecs come from PyAV")
    from mmcache.lab import edited_sounds

    random = np.random.default_rng(0)
    for clip in clips[:3]:
        said = {name: nearness(copy, clip.samples) for name, copy in edited_sounds.reencoded(clip.samples, random)}
        assert set(said.values()) == {Nearness.REENCODED}, said
        said = {name: nearness(copy, clip.samples) for name, copy in edited_sounds.trimmed(clip.samples)}
        assert set(said.values()) <= {Nearness.TRIMMED, Nearness.REENCODED}, said


def test_other_words_of_the_same_speaker_are_unlike(clips: list[Any]) -> None:
    sketches = [describe(clip.samples, RATE) for clip in clips]
    assert {compare(a, b) for i, a in enumerate(sketches) for b in sketches[:i]} == {Nearness.UNLIKE}


@pytest.mark.parametrize("seed", range(4))
def test_one_changed_syllable_is_unlike(seed: int) -> None:
    sound = babble(seed)
    spliced = sound.copy()
    spliced[20_000:23_200] = babble(seed + 100)[8_000:11_200]
    assert nearness(spliced, sound) is Nearness.UNLIKE
    cut = np.concatenate([sound[:16_000], sound[20_800:]])
    assert nearness(cut, sound) is Nearness.UNLIKE
    assert nearness(sound[::-1], sound) is Nearness.UNLIKE
    transposed = np.interp(np.arange(0, sound.size - 1, 1.06), np.arange(sound.size), sound).astype(np.float32)
    assert nearness(transposed, sound) is Nearness.UNLIKE


@pytest.mark.parametrize("seed", range(4))
def test_loudness_noise_and_delay(seed: int) -> None:
    sound = babble(seed)
    noise = np.random.default_rng(seed).standard_normal(sound.size) * sound.std() * 0.03
    for copy in (sound * 2, sound / 2, sound + noise, sound[300:], sound[:-500]):
        assert nearness(copy.astype(np.float32), sound) is Nearness.REENCODED


@pytest.mark.parametrize("seed", range(4))
def test_trimmed_ends(seed: int) -> None:
    sound = babble(seed, 4.0)
    cut = RATE * 4 * 4 // 100
    for copy in (sound[cut:], sound[:-cut], sound[cut:-cut]):
        assert nearness(copy, sound) is Nearness.TRIMMED
    assert nearness(sound[5 * cut :], sound) is Nearness.UNLIKE


def test_rates_do_not_matter_to_a_sketch() -> None:
    slow = babble(1, 3.0, 16_000)
    fast = np.interp(np.arange(0, 3, 1 / 24_000), np.arange(0, 3, 1 / 16_000), slow).astype(np.float32)
    assert compare(describe(fast, 24_000), describe(slow, 16_000)) is Nearness.REENCODED


@pytest.mark.parametrize(
    ("sound", "rate"),
    [
        (np.zeros(RATE, np.float32), RATE),
        (np.sin(np.arange(RATE) * 0.2).astype(np.float32), RATE),
        (np.random.default_rng(0).standard_normal(2 * RATE).astype(np.float32), RATE),
        (np.pad(babble(0)[:2000], (20_000, 20_000)), RATE),
        (babble(0)[: RATE // 3], RATE),
        (babble(0), 4000),
        (np.zeros((2, RATE), np.float32), RATE),
        (np.zeros(RATE, np.int16), RATE),
        (np.full(RATE, np.nan, np.float32), RATE),
        (np.zeros(0, np.float32), RATE),
        (np.zeros(0, np.float32), 0),
        (np.zeros(500 * 8000, np.float32), 8000),
    ],
    ids=["silence", "tone", "noise", "click", "short", "slow", "stereo", "integers", "NaN", "empty", "no rate", "long"],
)
def test_what_cannot_be_judged_is_like_nothing(sound: npt.NDArray[Any], rate: int) -> None:
    sketch = describe(sound, rate)
    assert not sketch.comparable
    assert compare(sketch, sketch) is Nearness.UNLIKE
    assert compare(sketch, describe(babble(0), RATE)) is Nearness.UNLIKE
    assert not sketch.vector.any()
    assert SoundSketch.from_bytes(sketch.to_bytes()) == sketch


def test_vectors_find_trimmed_copies() -> None:
    sounds = [babble(seed) for seed in range(20)]
    known = np.stack([describe(sound, RATE).vector for sound in sounds])
    assert known.shape == (20, DIMENSIONS)
    assert known.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(known, axis=1), 1, atol=1e-5)
    for i, sound in enumerate(sounds):
        assert int((known @ describe(sound[1500:-1500] * np.float32(0.5), RATE).vector).argmax()) == i


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 4000), st.booleans(), st.floats(0.6, 3))
def test_comparing_is_symmetric_reflexive_and_repeatable(
    seed: int, other_seed: int, trim: int, same: bool, seconds: float
) -> None:
    one, other = babble(seed, seconds), babble(seed if same else other_seed, seconds)[trim:]
    a, b = describe(one, RATE), describe(other, RATE)
    assert compare(a, a) is (Nearness.REENCODED if a.comparable else Nearness.UNLIKE)
    assert compare(a, b) is compare(b, a)
    assert describe(one, RATE) == a
    assert SoundSketch.from_bytes(a.to_bytes()) == a


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(junk: bytes) -> None:
    with pytest.raises(CorruptFrameError):
        SoundSketch.from_bytes(junk)


@pytest.mark.parametrize("fields", [(2, 1.0, 0, b""), (1, 1.0, 2, b"x"), (1, -1.0, 0, b""), (1, 1.0, -1, b"")])
def test_sketches_that_do_not_fit_are_refused(fields: tuple[Any, ...]) -> None:
    with pytest.raises(CorruptFrameError):
        SoundSketch.from_bytes(msgspec.msgpack.encode(fields))
