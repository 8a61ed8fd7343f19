"""Mistakes that other caches made, each of which must not happen here."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.keys.media import encoded, noise, of

from mmcache.model.errors import InvalidInputError


def test_a_recompressed_png_is_the_same_picture() -> None:
    """vLLM keyed pictures on their encoded bytes, so that a re-compressed file missed."""
    fast, small = encoded(noise(64, 64), compress_level=0), encoded(noise(64, 64), compress_level=9)
    assert fast != small
    assert of(fast).digest == of(small).digest


@pytest.mark.parametrize("modality", ["image", "tensor"])
def test_shape_and_dtype_of_features_count(modality: str) -> None:
    """SGLang's feature hash saw the bytes alone."""
    raw = bytes(range(64))
    arrays = [np.frombuffer(raw, kind).reshape(shape) for kind, shape in (
        ("u1", (2, 32)), ("u1", (4, 16)), ("u1", (64,)), ("i1", (64,)), ("<f4", (4, 4)),
        ("<i4", (4, 4)), ("<f2", (4, 8)),
    )]  # fmt: skip
    assert len({of(array, modality).digest for array in arrays}) == len(arrays)
    tensors = [torch.frombuffer(bytearray(raw), dtype=kind) for kind in (torch.float16, torch.bfloat16, torch.int16)]
    assert len({of(tensor, modality).digest for tensor in tensors}) == len(tensors)


def test_every_picture_has_an_entry_of_its_own() -> None:
    """LMCache once gave all pictures one entry: the placeholder tokens were equal, and the key was made of them."""
    assert len({of(noise(8, 8, seed=seed)).digest for seed in range(200)}) == 200


def test_width_and_height_are_not_interchangeable() -> None:
    """Dynamo confused 30 × 150 with 150 × 30."""
    wide, high = noise(150, 30), noise(30, 150)
    assert wide.tobytes() == high.tobytes()
    assert of(wide).digest != of(high).digest
    assert of(encoded(wide)).digest != of(encoded(high)).digest
    assert of(np.asarray(wide)).digest != of(np.asarray(high)).digest


def test_a_palette_is_what_it_shows() -> None:
    """Hashing a palette picture's indices makes two pictures of other colours one."""
    one = noise(8, 8).quantize(4)
    two = one.copy()
    two.putpalette(bytes(range(12)))
    assert one.tobytes() == two.tobytes()
    assert of(one).digest != of(two).digest


def test_an_id_of_the_callers_is_no_key() -> None:
    """Caches that trust a caller's id let one tenant read, or replace, another's features: here only content counts."""
    with pytest.raises(InvalidInputError):
        of({"uuid": "picture-1"})
