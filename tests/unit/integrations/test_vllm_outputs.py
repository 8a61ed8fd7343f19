"""Outputs come back bit by bit, or are a miss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache
from mmcache.codecs.int4 import INT4
from mmcache.integrations.vllm.outputs import Expected, pack, tensor, unpack
from mmcache.model.block import ArraySpec
from mmcache.model.errors import UnsupportedValueError
from mmcache.model.key import Key
from mmcache.model.signature import Signature

torch = pytest.importorskip("torch")
ROWS, WIDTH = 24, 64


def made(dtype: str, seed: int = 0) -> Any:
    plain = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(seed))
    return plain.to(getattr(torch, dtype))


def expected(dtype: str) -> Expected:
    return Expected("image", ROWS, dtype, {"image_grid_thw": [1, 4, 6]})


def through(value: dict[str, Any], root: Path, codec: str = "raw") -> Any:
    """Stored by one cache, read by another, as after a restart."""
    for store in (True, False):
        with Cache(root, codec=codec) as cache:
            scope = cache.scopes.of(Signature(model_version="m", modality="image"), "t", "n")
            key = Key(scope.digest, b"c" * 16)
            if store:
                cache.put(key, value)
            else:
                return cache.get(key)
    raise AssertionError


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("codec", ["raw", "fp16"])
def test_sixteen_bits_and_raw_come_back_bit_by_bit(dtype: str, codec: str, tmp_path: Path) -> None:
    output = made(dtype)
    stored = through(pack(output, expected(dtype), widen=False), tmp_path, codec)
    found = unpack(stored, expected(dtype), width=WIDTH)
    assert found is not None
    back = tensor(found)
    assert back.dtype == output.dtype
    if codec == "raw" or dtype != "float32":
        assert torch.equal(back.view(torch.uint8), output.view(torch.uint8))
    else:
        assert (back - output).abs().max() <= output.abs().max() * 2**-11


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_int4_stays_within_its_bound(dtype: str, tmp_path: Path) -> None:
    output = made(dtype)
    found = unpack(through(pack(output, expected(dtype), widen=True), tmp_path, "int4"), expected(dtype))
    assert found is not None
    back, plain = tensor(found).float().numpy(), output.float().numpy()
    rounding = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 0.0}[dtype]
    bound = INT4().error_bound(plain, ArraySpec.of(plain)) + rounding * np.abs(back)
    assert (np.abs(back - plain) <= bound).all()
    assert tensor(found).dtype == output.dtype


def test_a_loaded_tensor_is_the_engines_own(tmp_path: Path) -> None:
    value = through(pack(made("bfloat16"), expected("bfloat16"), widen=False), tmp_path)
    found = unpack(value, expected("bfloat16"))
    assert found is not None
    tensor(found).zero_()
    assert torch.equal(tensor(found), made("bfloat16"))


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": ROWS + 1},
        {"dtype": "float16"},
        {"modality": "video"},
        {"sizes": {}},
        {"sizes": {"image_grid_thw": [1, 6, 4]}},
    ],
)
def test_what_is_not_what_was_expected_is_a_miss(changes: dict[str, Any]) -> None:
    value = pack(made("bfloat16"), expected("bfloat16"), widen=False)
    assert unpack(value, expected("bfloat16")) is not None
    assert unpack(value, replace(expected("bfloat16"), **changes)) is None


def test_another_width_is_a_miss() -> None:
    value = pack(made("float16"), expected("float16"), widen=False)
    assert unpack(value, expected("float16"), width=WIDTH * 2) is None


@pytest.mark.parametrize(
    "value", [None, 7, [], {}, {"output": 1, "dtype": "float16", "modality": "image", "sizes": {}}]
)
def test_anything_else_is_a_miss(value: object) -> None:
    assert unpack(value, expected("float16")) is None


@pytest.mark.parametrize(
    "output", [made("bfloat16")[:-1], made("bfloat16")[None], made("float32"), made("bfloat16").to(torch.int32)]
)
def test_an_output_that_does_not_fit_its_item_is_not_stored(output: Any) -> None:
    with pytest.raises(UnsupportedValueError):
        pack(output, expected("bfloat16"), widen=False)
