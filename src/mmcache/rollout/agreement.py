"""How far two versions' outputs agree: 1 = the same, 0 = cannot be compared or nothing alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from mmcache.codecs.structure import Structures, flatten
from mmcache.compare import difference
from mmcache.model.errors import SettingsError, UnsupportedValueError

Agreement = Callable[[Any, Any], float | None]
"""`agreement(stable, candidate)`; None = they cannot be compared: other structure or shapes, NaN."""
Compare = Literal["cosine", "exact"] | Callable[[Any, Any], float]


def agreement(compare: Compare, structures: Structures) -> Agreement:
    """The measure that `compare` names. Raises `SettingsError`."""
    if compare == "cosine":
        return lambda one, other: cosine(one, other, structures)
    if compare == "exact":
        return lambda one, other: 1.0 if difference(one, other, structures).equal else None
    if callable(compare):
        return lambda one, other: _finite(float(compare(one, other)))
    raise SettingsError(f'compare is "cosine", "exact" or a function of two outputs, not {compare!r}')


def cosine(one: Any, other: Any, structures: Structures) -> float | None:
    """Of all numbers of the outputs in order, as one vector, -1…1; 1 for two zero vectors or two outputs without
    numbers. What is no number, names and shapes must be equal; dtypes need not be.
    """
    try:
        first, second = flatten(one, structures), flatten(other, structures)
    except UnsupportedValueError:
        return None
    inline: list[float] = []
    inline_other: list[float] = []
    alike = _bare(first.tree, inline) == _bare(second.tree, inline_other)
    if not alike or len(first.leaves) != len(second.leaves):
        return None
    pairs = [(np.array(inline), np.array(inline_other))]
    for a, kind, b, kind_other in zip(first.leaves, first.kinds, second.leaves, second.kinds, strict=True):
        if a.shape != b.shape:
            return None
        if kind in _WORDS or kind_other in _WORDS or a.dtype.kind not in "biuf" or b.dtype.kind not in "biuf":
            if kind != kind_other or a.dtype != b.dtype or a.tobytes() != b.tobytes():
                return None
        else:
            pairs.append((a.astype(np.float64).ravel(), b.astype(np.float64).ravel()))
    with np.errstate(over="ignore", invalid="ignore"):
        dot = float(sum(a @ b for a, b in pairs))
        size, size_other = (math.sqrt(float(sum(pair[side] @ pair[side] for pair in pairs))) for side in (0, 1))
    if size == 0.0 or size_other == 0.0:
        return 1.0 if size == size_other else 0.0
    return _finite(dot / size / size_other)


_WORDS = ("str", "bytes")
"""Leaves that hold no numbers."""


def _bare(tree: Any, numbers: list[float]) -> Any:
    """A skeleton (see `codecs.structure`) without its numbers, which are added to `numbers`."""
    if isinstance(tree, int | float) and not isinstance(tree, bool):
        numbers.append(float(tree))
        return ()
    if not isinstance(tree, list) or len(tree) == 1:
        return tree
    code, *rest = tree
    nodes = 0 if code in (1, 2) else 1 if code == 3 else 2
    return [code, *rest[:nodes], [_bare(node, numbers) for node in rest[nodes]], *rest[nodes + 1 :]]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
