"""The Triton kernel says what BLAS says; on a CPU, in Triton's interpreter.

Triton reads when it is imported whether it interprets, so the kernel runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from mmcache.placement.cosine import unit

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="Triton takes 1 GB: pip install 'mmcache[gpu]'"
)

SHAPES = ((1, 1, 1), (3, 5, 7), (16, 16, 32), (33, 17, 50), (130, 140, 40), (0, 4, 8), (4, 0, 8))
CHILD = """
import sys, numpy as np, torch
from mmcache.placement import kernels
given = np.load(sys.argv[1])
found = {}
for name in sorted({key[1:] for key in given}):
    one, other = (given[side + name] for side in "ab")
    found["s" + name] = kernels.products(one, other)
    halves = [torch.from_numpy(side).half().to(kernels.device()) for side in (one, other)]
    found["h" + name] = kernels.multiply(*halves).cpu().numpy()
wide = torch.arange(60, dtype=torch.float32).reshape(6, 10).to(kernels.device())
found["view"] = kernels.multiply(wide[:, ::2], wide[::2, ::2]).cpu().numpy()
np.savez(sys.argv[2], **found)
"""
Arrays = Mapping[str, npt.NDArray[np.float32]]


def vectors(count: int, width: int, seed: int) -> npt.NDArray[np.float32]:
    return unit(np.random.default_rng(seed).standard_normal((count, width)))


def given() -> dict[str, npt.NDArray[np.float32]]:
    return {
        f"{side}{number}": vectors(shape[place], shape[2], place)
        for number, shape in enumerate(SHAPES)
        for place, side in enumerate("ab")
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Arrays:
    import torch

    folder: Path = tmp_path_factory.mktemp("kernels")
    np.savez(folder / "in.npz", **given())  # type: ignore[arg-type]
    environment = os.environ | ({} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"})
    child = [sys.executable, "-c", CHILD, str(folder / "in.npz"), str(folder / "out.npz")]
    done = subprocess.run(child, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(np.load(folder / "out.npz"))


@pytest.mark.parametrize("number", range(len(SHAPES)), ids=[str(shape) for shape in SHAPES])
def test_is_the_product(found: Arrays, number: int) -> None:
    one, other = given()[f"a{number}"], given()[f"b{number}"]
    assert found[f"s{number}"].shape == (len(one), len(other))
    assert np.abs(found[f"s{number}"] - one @ other.T).max(initial=0.0) < 1e-5


@pytest.mark.parametrize("number", range(len(SHAPES)), ids=[str(shape) for shape in SHAPES])
def test_of_halves_the_sums_are_of_singles(found: Arrays, number: int) -> None:
    one, other = (given()[f"{side}{number}"].astype(np.float16).astype(np.float32) for side in "ab")
    assert found[f"h{number}"].dtype == np.float32
    assert np.abs(found[f"h{number}"] - one @ other.T).max(initial=0.0) < 1e-5


def test_rows_that_are_views(found: Arrays) -> None:
    wide = np.arange(60, dtype=np.float32).reshape(6, 10)
    assert (found["view"] == wide[:, ::2] @ wide[::2, ::2].T).all()
