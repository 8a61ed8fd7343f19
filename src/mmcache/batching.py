"""A batch model's output, taken apart per input and put together again. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmcache.model.errors import UnsupportedValueError


def split(output: Any, count: int) -> list[Any]:
    """One output per input.

    A list is taken item by item. An array or tensor is cut along its first axis; a dict, tuple, namedtuple or
    dataclass of such is cut leaf by leaf. Raises `UnsupportedValueError` when the first axis is not `count`.
    """
    if isinstance(output, list):
        if len(output) != count:
            raise UnsupportedValueError(f"the batch function returned {len(output)} outputs for {count} inputs")
        return output
    return [_row(output, index, count) for index in range(count)]


def _row(node: Any, index: int, count: int) -> Any:
    if dataclasses.is_dataclass(node) and not isinstance(node, type):  # before Mapping: ModelOutput is both
        fields = {f.name: _row(getattr(node, f.name), index, count) for f in dataclasses.fields(node)}
        return type(node)(**fields)
    if isinstance(node, Mapping):
        return {name: _row(child, index, count) for name, child in node.items()}
    if isinstance(node, tuple):
        rows = [_row(child, index, count) for child in node]
        return type(node)(*rows) if hasattr(node, "_fields") else tuple(rows)
    if node is None or isinstance(node, (str, int, float, bool)):
        return node
    if isinstance(node, list):
        return split(node, count)[index]
    shape = getattr(node, "shape", None)
    if shape is None or len(shape) == 0 or shape[0] != count:
        raise UnsupportedValueError(
            f"the batch function returned {type(node).__name__} of shape {shape} for {count} inputs; "
            "return a list with one output per input, or arrays whose first axis counts the inputs"
        )
    return node[index]


def stack(outputs: Sequence[Any]) -> Any:
    """One array (or tensor) with a new first axis. Raises `UnsupportedValueError` for ragged or structured outputs."""
    if not outputs:
        raise UnsupportedValueError("nothing to stack: the batch is empty")
    first = outputs[0]
    if isinstance(first, np.ndarray):
        if any(not isinstance(o, np.ndarray) or o.shape != first.shape or o.dtype != first.dtype for o in outputs):
            raise UnsupportedValueError("outputs differ in shape or dtype; use stack=False")
        return np.stack(outputs)
    new_tensor = getattr(first, "new_empty", None)
    if new_tensor is None:
        raise UnsupportedValueError(f"cannot stack {type(first).__name__}; use stack=False")
    if any(o.shape != first.shape or o.dtype != first.dtype for o in outputs):
        raise UnsupportedValueError("outputs differ in shape or dtype; use stack=False")
    whole = new_tensor((len(outputs), *first.shape))
    for place, output in zip(whole, outputs, strict=True):
        place.copy_(output)
    return whole
