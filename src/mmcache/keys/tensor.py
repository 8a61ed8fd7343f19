"""Arrays: numpy and torch. Identity = kind, dtype, shape and bytes.

NaN is bytes like any other value: arrays that differ in NaN payloads or in the sign of zero have different digests,
which can cost a miss, never a wrong hit. A view, a transposed or a strided array equals its contiguous copy.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mmcache.keys.content import Content, digest_of
from mmcache.keys.framing import framed
from mmcache.model.errors import InvalidInputError

_CHANGED = "the {} was changed after it was identified; do not write to an input while it is being cached"


def is_array(source: Any) -> bool:
    """Whether `source` is a numpy array or a torch tensor. Does not import torch."""
    return isinstance(source, np.ndarray) or _is_torch(source)


def _is_torch(source: Any) -> bool:
    torch = sys.modules.get("torch")  # an object of torch exists only where torch was imported
    return torch is not None and isinstance(source, getattr(torch, "Tensor", ()))


def identify_array(source: Any, modality: str, salt: bytes) -> Content:
    """Content of an array; `canonical()` is a private, contiguous copy of the same kind, on the same device.

    Raises `InvalidInputError` for object, structured, masked, sparse, quantised and meta arrays.
    """
    if isinstance(source, np.ndarray):
        return _identify_numpy(source, modality, salt)
    if _is_torch(source):
        return _identify_torch(source, modality, salt)
    raise InvalidInputError(f"{modality} cannot be a {type(source).__module__}.{type(source).__qualname__}")


def _head(kind: str, modality: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    return framed("array", kind.encode(), modality.encode(), dtype.encode(), repr(shape).encode())


def _identify_numpy(source: np.ndarray[Any, Any], modality: str, salt: bytes) -> Content:
    dtype = source.dtype
    if dtype.hasobject or dtype.names is not None or isinstance(source, np.ma.MaskedArray):
        raise InvalidInputError("an array of objects or fields, or a masked one, has no canonical bytes")
    # Both names: extension types (bfloat16, float8) all have a void `str`, and `name` lacks the byte order.
    head = _head("numpy", modality, f"{dtype.str} {dtype.name}", source.shape)

    def digest(array: np.ndarray[Any, Any]) -> bytes:
        flat = np.ascontiguousarray(array).reshape(-1)
        return digest_of(salt, head, [flat.view(np.uint8)] if flat.nbytes else [])

    found = digest(source)

    def canonical() -> np.ndarray[Any, Any]:
        copy = np.array(source, order="C", copy=True, subok=False)
        if copy.shape != source.shape or digest(copy) != found:
            raise InvalidInputError(_CHANGED.format("array"))
        return copy

    return Content(modality, found, canonical)


def flat_bytes(tensor: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(bytes,) uint8: the values of a dense torch tensor in C order, a view where its memory allows."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if not plain.numel():
        return np.empty(0, np.uint8)
    # Not reshape: of one element it keeps a stride, and such a tensor has no view as bytes.
    flat = plain.as_strided((plain.numel(),), (1,)).view(sys.modules["torch"].uint8).numpy()
    return flat  # type: ignore[no-any-return]


def _identify_torch(source: Any, modality: str, salt: bytes) -> Content:
    if str(source.layout) != "torch.strided" or source.is_quantized or source.is_meta or source.is_nested:
        raise InvalidInputError("a sparse, quantised, nested or meta tensor has no canonical bytes; make it dense")
    torch = sys.modules["torch"]
    head = _head("torch", modality, str(source.dtype), tuple(source.shape))

    def digest(tensor: Any) -> bytes:
        return digest_of(salt, head, [flat_bytes(tensor)])

    found = digest(source)

    def canonical() -> Any:
        copy = source.detach().clone(memory_format=torch.contiguous_format)
        if copy.shape != source.shape or digest(copy) != found:
            raise InvalidInputError(_CHANGED.format("tensor"))
        return copy

    return Content(modality, found, canonical)
