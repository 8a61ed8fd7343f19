"""Hypothesis strategies for what the cache is made of: keys, arrays, values, frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mmcache.model.block import Facts
from mmcache.model.frame import Frame
from mmcache.model.key import PART_BYTES, WHOLE, Key
from mmcache.testing.frames import make_frame

DTYPES = ("|b1", "|u1", "<i2", "<i4", "<i8", ">i4", "<u8", "<f2", "<f4", "<f8", ">f8", "<c8", "<M8[ns]", "|S4", "<U3")
"""Dtypes that values may have."""


def keys() -> st.SearchStrategy[Key]:
    """Any key; a few parts come up often, so that keys which share parts do too."""
    part = st.sampled_from([b"a" * PART_BYTES, b"b" * PART_BYTES]) | st.binary(min_size=PART_BYTES, max_size=PART_BYTES)
    return st.builds(Key, part, part, st.just(WHOLE) | part)


def facts() -> st.SearchStrategy[Facts]:
    """Any facts of a block."""
    return st.builds(
        Facts,
        size=st.integers(0, 1 << 40),
        cost=st.floats(0, 1e6),
        modality=st.sampled_from(["image", "text", "audio", "video", "tensor"]),
        tenant=st.sampled_from(["default", "acme"]),
        entropy=st.none() | st.floats(0, 20),
        references=st.integers(0, 10),
    )


def arrays(dtypes: tuple[str, ...] = DTYPES, max_side: int = 8) -> st.SearchStrategy[npt.NDArray[Any]]:
    """Arrays of 0 to 4 axes, empty ones included; NaN, infinities and NaT included."""
    return st.sampled_from(dtypes).flatmap(
        lambda dtype: hnp.arrays(
            np.dtype(dtype), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=max_side)
        )
    )


def values(max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """What a model may return: arrays, scalars, text, bytes, and nested lists, tuples and dicts of them."""
    leaf: st.SearchStrategy[Any] = st.one_of(
        st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 64) - 1), st.floats(), st.text(max_size=300),
        st.binary(max_size=100), arrays(max_side=4),
        hnp.from_dtype(np.dtype("<f4")),
    )  # fmt: skip
    names: st.SearchStrategy[str | int] = st.text("abcxyz_ é", max_size=8) | st.integers(-(1 << 63), (1 << 64) - 1)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.lists(inner, max_size=4).map(tuple),
            st.dictionaries(names, inner, max_size=4),
            st.lists(st.floats(), min_size=17, max_size=40),
            st.lists(st.integers(-1000, 1000), min_size=17, max_size=40),
        ),
        max_leaves=max_leaves,
    )


def frames(key: st.SearchStrategy[Key] | None = None) -> st.SearchStrategy[Frame]:
    """Sealed frames whose value is a byte string."""
    return st.builds(
        make_frame,
        keys() if key is None else key,
        st.binary(max_size=2000),
        signature=st.binary(min_size=PART_BYTES, max_size=PART_BYTES),
        modality=st.sampled_from(["image", "text", "audio", "tensor"]),
        tenant=st.text(max_size=12),
        namespace=st.text(max_size=12),
        model=st.text(max_size=12),
        created=st.floats(0, 4e9),
        cost=st.floats(0, 1e4),
    )
