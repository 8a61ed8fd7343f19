"""The repository's own small vision-language model, on tokens of noise and on what its weights promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.lab.data.picture_questions import Asked
from mmcache.lab.models.vlm import VisionLanguage
from mmcache.lab.models.vlm.decoder import Decoder, State, shapes
from mmcache.lab.models.vlm.examples import Example, of_shapes
from mmcache.lab.models.vlm.weights import FILE, load, save
from mmcache.lab.models.vlm.words import ANSWER, SPECIAL, WEIGH, learn, split
from mmcache.model.errors import AssetError, InvalidInputError

QUESTION = "What color is the shape?"
WORDS = learn(["the quick brown fox jumps over the lazy dog 0123456789", "the shape is blue"], 90)


@pytest.fixture(scope="module")
def model() -> VisionLanguage:
    return VisionLanguage()


@pytest.fixture(scope="module")
def tokens() -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((257, 384)).astype(np.float32)


# Words --------------------------------------------------------------------------------------------------------------


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789 ?'-é", min_size=1).filter(lambda text: bool(split(text))))
def test_any_latin_text_is_spelt_and_read_back(text: str) -> None:
    pieces, words, places = WORDS.encode(text)
    assert WORDS.decode(pieces) == " ".join(words) == " ".join(split(text))
    assert places == sorted(places)
    assert set(places) == set(range(len(words)))


def test_frequent_words_are_whole() -> None:
    assert [WORDS.pieces[piece] for piece in WORDS.encode("The")[0]] == ["▁the"]
    assert WORDS.pieces[: len(SPECIAL)] == SPECIAL


@pytest.mark.parametrize("text", ["", "?!", "кошка", "🙂", None, 3, b"what"])
def test_what_has_no_word_is_refused(text: Any) -> None:
    with pytest.raises(InvalidInputError):
        WORDS.encode(text)


# Decoder ------------------------------------------------------------------------------------------------------------


def small() -> Decoder:
    random = np.random.default_rng(1)
    weights = {
        name: random.standard_normal(shape).astype(np.float32) * np.float32(0.2)
        for name, shape in shapes(len(WORDS), 2, 16, 12).items()
    }
    return Decoder(weights, 2, 4)


def test_steps_in_numpy_are_the_batch_in_torch(tokens: npt.NDArray[np.float32]) -> None:
    torch = pytest.importorskip("torch")
    from mmcache.lab.models.vlm import train

    decoder, pieces = small(), [5, 9, ANSWER, 5]
    state = State.of(decoder.look(tokens))
    ours = np.stack([decoder.step(state, piece) for piece in pieces])
    weights = {name: torch.from_numpy(value) for name, value in decoder.weights.items()}
    batch = torch.from_numpy(tokens[None, 1:])
    theirs = train.forward(weights, batch, torch.tensor([[pieces, pieces]]), 0.0)
    for row in theirs[0]:
        np.testing.assert_allclose(ours, row.numpy(), atol=2e-4)


def test_there_is_an_end_to_what_fits(tokens: npt.NDArray[np.float32]) -> None:
    decoder = small()
    state = State.of(decoder.look(tokens))
    for _ in range(decoder.longest):
        decoder.step(state, 5)
    with pytest.raises(InvalidInputError, match="shorter"):
        decoder.step(state, 5)


# The model ----------------------------------------------------------------------------------------------------------


def test_a_stream_is_the_answer_in_parts(model: VisionLanguage, tokens: npt.NDArray[np.float32]) -> None:
    for question in (QUESTION, "is there a circle?", None):
        parts = list(model.stream(tokens, question))
        said = model.describe(tokens) if question is None else model.answer(tokens, question)
        assert "".join(parts) == said == model.answers(tokens, [question])[0]
    assert model.answer(tokens, QUESTION) == model.answer(tokens, "what color is the SHAPE")


def test_what_is_weighed_before_a_yes_or_no_is_not_shown(
    model: VisionLanguage, tokens: npt.NDArray[np.float32]
) -> None:
    for seed in range(5):
        noise = np.random.default_rng(seed).standard_normal((257, 384)).astype(np.float32)
        assert model.answer(noise, "is there a red shape?") in ("yes", "no")
        assert list(model.stream(noise, "is there not a circle?")) in (["yes"], ["no"])
    assert len(model.read(tokens, "is there a circle?").words) == 5


def test_examples_say_what_is_seen_before_they_say_yes_or_no() -> None:
    questions = [
        Asked("is there a red shape?", "no", 0),
        Asked("what color is the shape?", "blue", 0),
        Asked("is there a circle?", "yes", 1),
    ]
    about, unknown = of_shapes(questions, {0: ("blue", "circle")})
    assert about == [
        Example("is there a red shape?", "no", "blue"),
        Example("what color is the shape?", "blue"),
        Example("", "a blue circle"),
    ]
    assert unknown == []
    pieces, begin = about[0].pieces(WORDS)
    assert pieces[begin : begin + 2] == [ANSWER, WEIGH]
    assert WORDS.decode(pieces) == "is there a red shape blue no"


def test_attention_is_a_share_of_the_patches_for_each_word(
    model: VisionLanguage, tokens: npt.NDArray[np.float32]
) -> None:
    found = model.read(tokens, QUESTION)
    assert found.words[: found.asked] == ("what", "color", "is", "the", "shape")
    assert found.words[found.asked :] == tuple(found.answer.split())
    assert found.attention.shape == (len(found.words), 16, 16)
    assert found.attention.dtype == np.float32
    assert (found.attention >= 0).all()
    np.testing.assert_allclose(found.attention.sum(axis=(1, 2)), 1, atol=1e-5)
    np.testing.assert_array_equal(found.attention, model.attention(tokens, QUESTION))
    unasked = model.read(tokens)
    assert unasked.asked == 0
    assert len(unasked.words) == len(unasked.attention)


def test_a_words_pieces_share_one_map(model: VisionLanguage, tokens: npt.NDArray[np.float32]) -> None:
    found = model.read(tokens, "is there a xylophonist?")
    assert len(load()[1].encode("xylophonist")[0]) > 1
    assert found.words[:4] == ("is", "there", "a", "xylophonist")
    np.testing.assert_allclose(found.attention.sum(axis=(1, 2)), 1, atol=1e-5)


@pytest.mark.parametrize("shape", [(257, 383), (16, 16), (0, 384), (257,)])
def test_tokens_of_another_shape_are_refused(model: VisionLanguage, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError):
        model.answer(np.zeros(shape, np.float32), QUESTION)


def test_bad_questions_and_tokens_are_refused(model: VisionLanguage, tokens: npt.NDArray[np.float32]) -> None:
    with pytest.raises(InvalidInputError):
        model.answer(np.full((257, 384), np.nan, np.float32), QUESTION)
    with pytest.raises(InvalidInputError, match="shorter"):
        model.answer(tokens, "why " * 40)
    with pytest.raises(InvalidInputError):
        model.answer(tokens, "…")


# Weights ------------------------------------------------------------------------------------------------------------


def test_the_committed_weights_are_small_and_say_what_they_are_made_of() -> None:
    from safetensors import safe_open

    assert FILE.stat().st_size < 10_000_000
    with safe_open(FILE, framework="numpy") as file:
        assert "easy-vqa 1.0 (MIT)" in file.metadata()["made"]


def test_the_signature_names_the_weights(model: VisionLanguage, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    copy = tmp_path / "vlm.safetensors"
    copy.write_bytes(FILE.read_bytes())
    assert VisionLanguage(path=copy).signature == model.signature
    decoder = small()
    halves = {name: value.astype(np.float16) for name, value in decoder.weights.items()}
    save(copy, halves, WORDS, decoder.heads, "noise")
    assert load(copy)[1] == WORDS
    assert VisionLanguage(path=copy).signature != model.signature


def test_weights_that_are_missing_or_of_another_model_are_an_asset_error(tmp_path: Path) -> None:
    path = tmp_path / "vlm.safetensors"
    with pytest.raises(AssetError, match=r"vlm\.train"):
        load(path)
    path.write_bytes(b"no weights at all")
    with pytest.raises(AssetError):
        load(path)
    decoder = small()
    halves = {name: value.astype(np.float16) for name, value in decoder.weights.items() if name != "norm"}
    save(path, halves, WORDS, decoder.heads, "noise")
    with pytest.raises(AssetError, match="another model"):
        load(path)


def test_inference_imports_no_torch() -> None:
    code = "import sys, mmcache.lab.models.vlm as v; v.VisionLanguage(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
