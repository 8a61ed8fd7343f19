"""The GPU's side of `cosine`: products of all rows with all rows, tiled, in Triton. Imported where Triton is installed.

The tiling is that of the Triton tutorial on matrix multiplication: programs that run together share tiles of both
sides in the L2 cache. Sums are of float32, whatever the inputs are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

Floats = npt.NDArray[np.float32]

TILE, DEPTH, GROUP = 128, 32, 8
WARPS, STAGES = 8, 3


def device() -> str:
    """Where kernels can run: `cuda` or `cpu`."""
    return "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit  # type: ignore[untyped-decorator]
def _products(a, b, out, n, m, d, exact: tl.constexpr, tile: tl.constexpr, depth: tl.constexpr, group: tl.constexpr):  # type: ignore[no-untyped-def]
    """out[i, j] = a[i] · b[j] for one tile of i and one of j. All three are contiguous."""
    program = tl.program_id(0)
    down, across = tl.cdiv(n, tile), tl.cdiv(m, tile)
    band = program // (group * across)
    height = min(down - band * group, group)
    row = band * group + (program % (group * across)) % height
    column = (program % (group * across)) // height
    rows = row * tile + tl.arange(0, tile)
    columns = column * tile + tl.arange(0, tile)
    sums = tl.zeros((tile, tile), tl.float32)
    for start in range(0, d, depth):
        inner = start + tl.arange(0, depth)
        left = tl.load(
            a + rows[:, None].to(tl.int64) * d + inner[None, :], (rows[:, None] < n) & (inner[None, :] < d), 0.0
        )
        right = tl.load(
            b + columns[None, :].to(tl.int64) * d + inner[:, None], (columns[None, :] < m) & (inner[:, None] < d), 0.0
        )
        sums += tl.dot(left, right, input_precision="ieee" if exact else "tf32")
    tl.store(
        out + rows[:, None].to(tl.int64) * m + columns[None, :], sums, (rows[:, None] < n) & (columns[None, :] < m)
    )


def multiply(one: Any, other: Any, exact: bool = True) -> Any:
    """Tensors [n, d] and [m, d] of one dtype (float32, float16, bfloat16) on one device → float32 [n, m] there.

    exact: of float32, multiply in full precision; else in TF32, which is faster and rounds to 10 bits.
    """
    one, other = one.contiguous(), other.contiguous()
    (n, d), m = one.shape, other.shape[0]
    out = torch.empty((n, m), dtype=torch.float32, device=one.device)
    if n and m:
        tile = TILE if min(n, m) >= TILE else max(16, triton.next_power_of_2(min(n, m)))
        programs = triton.cdiv(n, tile) * triton.cdiv(m, tile)
        _products[(programs,)](
            one, other, out, n, m, d, exact, tile, DEPTH, GROUP, num_warps=WARPS, num_stages=STAGES
        )  # fmt: skip
    return out


def products(one: Floats, other: Floats) -> Floats:
    """float32 [n, m] of arrays on the host: there and back."""
    left, right = (torch.from_numpy(np.ascontiguousarray(side)).to(device()) for side in (one, other))
    found: Floats = multiply(left, right).cpu().numpy()
    return found
