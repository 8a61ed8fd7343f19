"""Fused blocks in a real cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmcache import Cache
from mmcache.fused import FusedBlocks, Triple, triples
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key

WORDS = ["red", "square"]


def attention() -> np.ndarray[Any, np.dtype[np.float32]]:
    found = np.full((2, 4, 4), 0.01, np.float32)
    found[:, 1:3, 1:3] = 1
    return found


def picture(cache: Cache, colour: str = "red") -> Key:
    return cache.key(Image.new("RGB", (40, 40), colour), modality="image", signature="eye-1")


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache(memory="16MiB") as made:
        yield made


class Counted:
    """Says how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, triple: Triple) -> Any:
        self.asked.append(triple.span)
        return np.full(3, len(self.asked), np.float32)


def test_a_triple_is_computed_once(cache: Cache) -> None:
    fused, compute = FusedBlocks(cache, "fuser-1"), Counted()
    for _ in range(2):
        (block,) = fused.keep(picture(cache), (40, 40), attention(), WORDS, compute)
        assert block.triple.span == "red square"
        assert block.triple.region.box == (10, 10, 30, 30)
        assert np.array_equal(block.value, [1, 1, 1])
        assert np.array_equal(cache.get(block.key), [1, 1, 1])
    assert compute.asked == ["red square"]


def test_invalidating_the_picture_drops_its_fused_blocks(cache: Cache) -> None:
    fused, compute = FusedBlocks(cache, "fuser-1"), Counted()
    (block,) = fused.keep(picture(cache), (40, 40), attention(), WORDS, compute)
    (other,) = fused.keep(picture(cache, "blue"), (40, 40), attention(), WORDS, compute)
    cache.invalidate(picture(cache))
    assert cache.get(block.key) is None
    assert cache.get(other.key) is not None
    (again,) = fused.keep(picture(cache), (40, 40), attention(), WORDS, compute)
    assert again.key == block.key
    assert len(compute.asked) == 3


def test_a_picture_that_changes_while_a_value_is_computed_leaves_none_behind(cache: Cache) -> None:
    def compute(triple: Triple) -> Any:
        cache.invalidate(picture(cache))
        return np.ones(3)

    (block,) = FusedBlocks(cache, "fuser-1").keep(picture(cache), (40, 40), attention(), WORDS, compute)
    assert cache.get(block.key) is None


def test_keys_differ_by_picture_region_words_model_and_realm(cache: Cache) -> None:
    (one,) = triples(attention(), WORDS, (40, 40))
    fused = FusedBlocks(cache, "fuser-1")
    keys = [
        fused.key(picture(cache), one),
        fused.key(picture(cache, "blue"), one),
        fused.key(picture(cache), replace(one, span="square")),
        fused.key(picture(cache), replace(one, region=one.region.crop((0, 0, 5, 5)))),
        FusedBlocks(cache, "fuser-2").key(picture(cache), one),
        FusedBlocks(cache, "fuser-1", tenant="other").key(picture(cache), one),
        picture(cache),
    ]
    assert len(set(keys)) == len(keys)
    assert fused.key(picture(cache), replace(one, score=0.1)) == keys[0]
    assert fused.put(picture(cache), one, np.ones(2)) == keys[0]
    assert np.array_equal(cache.get(keys[0]), [1, 1])


def test_entropy_lfu_hears_how_sure_the_attention_was() -> None:
    heard: dict[Key, float] = {}

    class Telling(Cache):
        def attended(self, key: Key, entropy: float) -> None:
            heard[key] = entropy
            super().attended(key, entropy)

    with Telling(memory="16MiB", policy="entropy-lfu") as cache:
        eye = picture(cache)
        cache.put(eye, np.ones(4))
        (block,) = FusedBlocks(cache, "fuser-1").keep(eye, (40, 40), attention(), WORDS, Counted())
        shares = attention()[0].ravel() / attention()[0].sum()
        expected = float(-(shares * np.log(shares)).sum())
        assert heard == {block.key: pytest.approx(expected), eye: pytest.approx(expected)}


def test_what_is_no_key_or_no_text_is_refused(cache: Cache) -> None:
    (one,) = triples(attention(), WORDS, (40, 40))
    fused = FusedBlocks(cache, "fuser-1")
    with pytest.raises(InvalidInputError):
        fused.key(b"no key", one)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        fused.key(picture(cache), replace(one, span="\ud800"))


@pytest.mark.parametrize("scale", [1.0, 1e308])
def test_how_sure_it_was_does_not_depend_on_the_scale(scale: float) -> None:
    with Cache(memory="1MiB") as cache:
        picture = cache.key(np.zeros((8, 8, 3), np.uint8), modality="image", signature="e-1")
        attention = np.ones((1, 2, 2)) * scale
        (block,) = FusedBlocks(cache, "m-1").keep(picture, (8, 8), attention, ["here"], lambda _: 1)
        assert block.entropy == pytest.approx(np.log(4))
