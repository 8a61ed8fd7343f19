"""torch tensors as leaves. The only file of this room that imports torch, and only once a tensor is met."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import CorruptFrameError, UnsupportedValueError

_REINTERPRETED = {
    "bfloat16": np.uint16,
    "float8_e4m3fn": np.uint8,
    "float8_e5m2": np.uint8,
    "float8_e4m3fnuz": np.uint8,
    "float8_e5m2fnuz": np.uint8,
}
"""dtypes that numpy lacks, and the bits they are kept as."""

PREFIX = "torch"


def is_tensor(value: object) -> bool:
    """Whether `value` is a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return tensor is not None and isinstance(value, tensor)


def take(tensor: Any, path: str) -> tuple[npt.NDArray[np.generic], str]:
    """A C-contiguous array of a tensor's values (copied only from a device or from strides), and its leaf kind.

    Gradients are dropped. Raises `UnsupportedValueError` for sparse, quantised, nested or meta tensors.
    """
    import torch

    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise UnsupportedValueError(f"{path}: a {type(tensor).__qualname__} is no plain tensor; return a torch.Tensor")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested:
        raise UnsupportedValueError(f"{path}: only dense tensors that hold data can be stored")
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    name = str(plain.dtype).removeprefix("torch.")
    if (bits := _REINTERPRETED.get(name)) is not None:
        width = torch.int16 if bits is np.uint16 else torch.uint8
        return plain.view(width).numpy().view(bits), f"{PREFIX}.{name}"
    try:
        return plain.numpy(), PREFIX
    except TypeError as error:
        raise UnsupportedValueError(f"{path}: tensors of {plain.dtype} cannot be stored; convert first") from error


def give(array: npt.NDArray[np.generic], kind: str, *, share: bool = False) -> Any:
    """The CPU tensor of a leaf: a copy, or with `share` a view that the caller promises never to write to."""
    import torch

    if share and array.size and array.dtype.isnative:
        memory = _Kept.from_address(array.ctypes.data)
        memory.array = array
        flat = torch.frombuffer(memory, dtype=torch.uint8, count=array.nbytes)
        tensor = flat.view(torch.from_numpy(np.empty(0, array.dtype)).dtype).reshape(array.shape)
    else:
        tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C", copy=True))
    if kind == PREFIX:
        return tensor
    return tensor.view(getattr(torch, kind.removeprefix(f"{PREFIX}.")))


def check(kind: str, dtype: np.dtype[Any]) -> None:
    """Raise `CorruptFrameError` when no tensor of this kind has this dtype."""
    bits = _REINTERPRETED.get(kind.removeprefix(f"{PREFIX}."))
    if (kind != PREFIX or dtype.char not in "?bhilqBHILQefdFD") and (bits is None or dtype != bits):
        raise CorruptFrameError(f"a leaf of kind {kind!r} cannot have dtype {dtype}")


class _Kept(ctypes.c_ubyte * (1 << 62)):  # type: ignore[misc]
    """Memory at an address, keeping the array alive that owns it; torch checks the count, numpy the bounds."""

    array: npt.NDArray[np.generic]
