"""An encoder output as a value that the cache can store, and back. No pickle, nothing executed, no path from a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcache.integrations.vllm.identity import Sizes
from mmcache.model.errors import UnsupportedValueError

if TYPE_CHECKING:
    import torch

DTYPES = ("bfloat16", "float16", "float32")
"""What encoders put out."""


@dataclass(frozen=True)
class Expected:
    """What the output of an item must be, or it is not this item's."""

    modality: str
    rows: int
    """Embeddings that its placeholder takes."""
    dtype: str
    """`bfloat16`, `float16` or `float32`."""
    sizes: Sizes


@dataclass(frozen=True)
class Output:
    """Rows × width, as stored: of bfloat16 the bits as uint16, or FP32 where a lossy codec had it."""

    array: np.ndarray[Any, Any]
    dtype: str


def pack(tensor: torch.Tensor, expected: Expected, *, widen: bool) -> dict[str, Any]:
    """The value to store for `tensor`, on the CPU. `widen`: bfloat16 becomes FP32, for a codec that needs numbers.

    Raises `UnsupportedValueError` for what is not the output that is expected.
    """
    import torch

    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.ndim != 2 or dtype not in DTYPES or (tensor.shape[0], dtype) != (expected.rows, expected.dtype):
        raise UnsupportedValueError(
            f"an output of {dtype} {tuple(tensor.shape)} where {expected.rows} rows of {expected.dtype} are expected"
        )
    plain = tensor.detach().contiguous()
    if dtype != "bfloat16":
        array = plain.numpy()
    elif widen:
        array = plain.to(torch.float32).numpy()
    else:
        array = plain.view(torch.int16).numpy().view(np.uint16)
    return {"output": array, "dtype": dtype, "modality": expected.modality, "sizes": expected.sizes}


def unpack(value: object, expected: Expected, *, width: int | None = None) -> Output | None:
    """The stored output; None where it is not what is expected, in whatever way (then it is a miss)."""
    if not isinstance(value, dict) or set(value) != {"output", "dtype", "modality", "sizes"}:
        return None
    array = value["output"]
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.shape[0] != expected.rows:
        return None
    if width is not None and array.shape[1] != width:
        return None
    kept = ("uint16", "float32") if expected.dtype == "bfloat16" else (expected.dtype,)
    told = (value["dtype"], value["modality"], value["sizes"])
    if array.dtype.name not in kept or told != (expected.dtype, expected.modality, expected.sizes):
        return None
    return Output(array, expected.dtype)


def tensor(output: Output, device: Any = "cpu") -> torch.Tensor:
    """A tensor of its own on `device`: the stored array may be a view of a mapped file."""
    import torch

    if output.dtype == "bfloat16" and output.array.dtype == np.uint16:
        own = torch.from_numpy(output.array.view(np.int16).copy()).view(torch.bfloat16)
    else:
        own = torch.from_numpy(output.array.copy()).to(getattr(torch, output.dtype))
    return own.to(device)
