"""The real encoders on real input: what their docstrings claim about equality."""

import itertools
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmcache.lab import data
from mmcache.lab.models import ImageEncoder, SpeechEncoder, TextEncoder
from mmcache.lab.models.mel import filters, log_mel
from mmcache.model.errors import InvalidInputError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    return [Image.open(path) for path in data.shapes()[:3]] + list(data.frames("bunny", 0, 2))


@pytest.fixture(scope="module")
def image() -> ImageEncoder:
    return ImageEncoder()


@pytest.fixture(scope="module")
def text() -> TextEncoder:
    return TextEncoder()


@pytest.fixture(scope="module")
def speech() -> SpeechEncoder:
    return SpeechEncoder()


def test_patch_tokens_do_not_depend_on_batch_or_threads(image: ImageEncoder, pictures: list[Image.Image]) -> None:
    single = [image.encode(picture) for picture in pictures]
    for tokens in single:
        assert tokens.shape == (257, 384)
        assert tokens.dtype == np.float32
    assert not image.encode_batch([])
    for ours, theirs in zip(single, image.encode_batch(pictures), strict=True):
        assert np.array_equal(ours, theirs)
    assert np.array_equal(ImageEncoder(threads=1).encode(pictures[0]), single[0])


def test_neighbouring_frames_are_closer_than_others(image: ImageEncoder, pictures: list[Image.Image]) -> None:
    pooled = [tokens[1:].mean(axis=0) for tokens in image.encode_batch(pictures)]
    unit = np.stack([vector / np.linalg.norm(vector) for vector in pooled])
    cosine = unit @ unit.T
    assert cosine[3, 4] > 0.95 > cosine[0, 3]


def test_text_vectors_are_normalised_and_mean_something(text: TextEncoder) -> None:
    ours, near, far = text.encode_batch(
        ["What colour is the circle?", "Which color does the disk have?", "Stocks fell on Monday."]
    )
    assert ours.shape == (384,)
    assert abs(float(ours @ ours) - 1) < 1e-5
    assert ours @ near > ours @ far


def test_text_is_the_same_from_many_threads(text: TextEncoder) -> None:
    texts = data.paragraphs()[:6]
    expected = text.encode_batch(texts)
    found: dict[int, list[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]] = {}
    threads = [
        threading.Thread(target=lambda me=me: found.__setitem__(me, text.encode_batch(texts))) for me in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for vectors in found.values():
        assert all(itertools.starmap(np.array_equal, zip(vectors, expected, strict=True)))
    assert len(found) == 4


@pytest.mark.parametrize("bad", ["a\0b", "\ud800"])
def test_text_that_c_would_cut_is_refused(text: TextEncoder, bad: str) -> None:
    with pytest.raises(InvalidInputError):
        text.encode(bad)


def test_speech_states_follow_the_clip(speech: SpeechEncoder) -> None:
    clips = [clip.samples for clip in data.speech()[:2]]
    states = speech.encode_batch(clips)
    assert [one.shape for one in states] == [(200, 512)] * 2
    assert np.array_equal(speech.encode(clips[1]), states[1])
    assert not np.array_equal(states[0], states[1])


def test_log_mel_equals_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    theirs = transformers.WhisperFeatureExtractor()
    samples = data.speech(10, 10)[0].samples
    reference = theirs(samples, sampling_rate=16_000, padding=False, return_tensors="np")["input_features"][0]
    assert np.abs(theirs.mel_filters.T - filters()).max() < 1e-8
    assert np.abs(reference[:, :1000] - log_mel(samples)).max() < 5e-5  # theirs is a float32 transform


def test_signatures_differ_and_need_no_weights() -> None:
    signatures = [ImageEncoder().signature, TextEncoder().signature, SpeechEncoder().signature]
    assert len({signature.digest for signature in signatures}) == 3


def test_every_pinned_package_is_in_the_licence_table() -> None:
    root = Path(__file__).parents[2]
    table = (root / "docs/reference/data-licences.md").read_text()
    pins = re.findall(r"^([\w-]+)==(\S+)", (root / "requirements/demo-assets.txt").read_text(), re.M)
    assert len(pins) == 14
    for name, version in pins:
        assert name in table or name.replace("-part2", "") in table
        assert version in table


def test_data_is_what_its_docstrings_say() -> None:
    assert len(data.questions()) == 38_575
    assert len({question for question, _ in data.questions()}) == 107
    assert {clip.samples.size for clip in data.speech()} == {64_000}
    assert [frame.size for clip in data.CLIPS for frame in data.frames(clip, 0, 1)] == [
        (1280, 720),
        (640, 272),
        (176, 144),
    ]
    assert Image.open(data.portrait()).size == (512, 600)
    assert len(data.paragraphs()) > 300
    assert len(data.documents()) > 10
