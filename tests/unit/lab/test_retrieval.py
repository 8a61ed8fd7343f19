"""The codec table's tasks judge rightly, and its peers compute what the product's INT4 computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from mmcache.codecs.int4 import INT4
from mmcache.lab import peers_int4, retrieval
from mmcache.lab.bench import run
from mmcache.lab.table_codec import CodecTable
from mmcache.model.block import ArraySpec

TOKENS = [np.random.default_rng(i).standard_normal((257, 8)).astype(np.float32) for i in range(6)]
WHOLE = (0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize("descriptor", retrieval.DESCRIPTORS)
def test_precision_is_one_over_the_rank(descriptor: str) -> None:
    assert (retrieval.precision(TOKENS, TOKENS, descriptor) == 1).all()
    swapped = [TOKENS[1], TOKENS[0], *TOKENS[2:]]
    assert (retrieval.precision(TOKENS, swapped, descriptor)[:2] < 1).all()
    zeros = [np.zeros((257, 8), np.float32)] * 6
    assert (retrieval.precision(zeros, zeros, descriptor) == 1 / 6).all()  # ties never count as right


def test_correspondence_knows_where_patches_went() -> None:
    assert (retrieval.correspondence(TOKENS, TOKENS, [WHOLE] * 6) == 1).all()
    elsewhere = (0.5, 0.5, 1.0, 1.0)
    assert (retrieval.correspondence(TOKENS, TOKENS, [elsewhere] * 6) < 0.2).all()


def test_copies_depend_on_their_seed_alone() -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8))
    one, two, other = (retrieval.alter(picture, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one[0].tobytes() == two[0].tobytes()
    assert one[0].tobytes() != other[0].tobytes()
    left, upper, right, lower = one[1]
    assert 0 <= left < right <= 1
    assert 0 <= upper < lower <= 1


def test_bootstrap_surrounds_the_mean() -> None:
    lost = np.random.default_rng(0).standard_normal(500) + 3
    low, high = np.percentile(retrieval.bootstrap(lost), [2.5, 97.5])
    assert low < lost.mean() < high
    assert high - low < 0.3


def test_peers_compute_the_same_int4() -> None:
    array = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float16)
    spec = ArraySpec.of(array)
    ours = INT4().decode(INT4().encode(array, spec), spec).astype(np.float64)
    calls = peers_int4.calls(array)
    step = np.abs(array).max(axis=0).astype(np.float64) / 7
    for name in ("numpy/decode", "torch/decode"):
        if name in calls:
            theirs: Any = np.asarray(calls[name]())
            apart = np.abs(theirs.astype(np.float64) - ours)
            assert (apart <= step * 1.01).all()  # a tie may round the other way
            assert (apart > step * 0.01).mean() < 0.01


@pytest.mark.slow
def test_the_table_runs() -> None:
    result = run(CodecTable(), quick=True)
    ids = {row.id for row in result.rows}
    assert {"1024x1024/int4/encode/memcpy", "1024x1024/numpy/decode/memcpy", "int4/bytes", "int4/map-class"} <= ids
    share = next(row for row in result.rows if row.id == "int4/bytes")
    assert share.met
