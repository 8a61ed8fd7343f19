"""Who is it: the identity of one picture, clip or sound as vLLM hands it to its encoder.

vLLM's own name for an item may be the user's text (`uuid`), and two users may give the same one to two pictures. Here
an item is named by all that the encoder will see: every processed tensor with its dtype and shape, every grid and size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.keys.tensor import flat_bytes
from mmcache.model.errors import InvalidInputError
from mmcache.model.key import Key

PREFIX = "mmcache-"
"""Of every name that we give; a user's uuid never gets as far as a name."""
PRIVATE = "mmcache-private-"
"""Of the name of an item that has no identity: one request's, never stored."""
SIZE_ELEMENTS = 64
"""An integer array of at most so many elements is a size (a grid, a number of patches), and kept beside the output."""

Sizes = dict[str, list[int]]


@dataclass(frozen=True)
class Item:
    """What identifies an item."""

    digest: bytes
    """16 bytes, keyed by the realm's salt."""
    sizes: Sizes
    """Its grids and sizes by name, flat."""


def identify(modality: str, data: Mapping[str, Any] | None, salt: bytes) -> Item:
    """The identity of `data`: field name → tensor, number, text, or lists of those.

    Raises `InvalidInputError` for an item without content: one that was replaced by its uuid, or of which only sizes
    are left, has the same bytes as others.
    """
    if not data:
        raise InvalidInputError("an item without its content cannot be told from another; send its body")
    hasher = blake3(framed("vllm item", modality.encode()), key=salt)
    sizes: Sizes = {}
    content = False
    for name in sorted(data):
        hasher.update(framed("field", name.encode()))
        for tensor in _fold(data[name], hasher, name, 0):
            flat = _size(tensor)
            if flat is None:
                content = True
            else:
                sizes[name] = sizes.get(name, []) + flat
    if not content:
        raise InvalidInputError(f"an item of which only {', '.join(sorted(data))} are there cannot be identified")
    return Item(hasher.digest(length=DIGEST_BYTES), sizes)


def _fold(value: Any, hasher: blake3, path: str, depth: int) -> Iterator[Any]:
    """Hash a nested value; yields its arrays and tensors."""
    if depth > 8:
        raise InvalidInputError(f"{path} is nested too deeply to be identified")
    if value is None or isinstance(value, bool | int | float | str | bytes):
        raw = value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogatepass")
        hasher.update(framed("plain", type(value).__name__.encode(), raw))
    elif isinstance(value, list | tuple):
        hasher.update(framed("list", str(len(value)).encode()))
        for place, each in enumerate(value):
            yield from _fold(each, hasher, f"{path}[{place}]", depth + 1)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject and value.dtype.names is None:
        hasher.update(framed("numpy", value.dtype.str.encode(), repr(value.shape).encode()))
        hasher.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        yield value
    elif hasattr(value, "detach") and str(getattr(value, "layout", "")) == "torch.strided" and not value.is_meta:
        hasher.update(framed("torch", str(value.dtype).encode(), repr(tuple(value.shape)).encode()))
        hasher.update(flat_bytes(value).data)
        yield value
    else:
        raise InvalidInputError(f"{path} is a {type(value).__qualname__}, which has no canonical bytes")


def _size(array: Any) -> list[int] | None:
    """The elements of a small integer array; None for what is content."""
    count = int(array.size if isinstance(array, np.ndarray) else array.numel())
    plain = not (str(array.dtype).startswith("torch.float") or str(array.dtype) in ("torch.bfloat16", "torch.uint8"))
    if isinstance(array, np.ndarray):
        plain = array.dtype.kind in "iu" and array.dtype.itemsize > 1
    if not plain or count > SIZE_ELEMENTS or "complex" in str(array.dtype):
        return None
    flat = array.reshape(-1).tolist()
    return [int(each) for each in flat]


def tenant_of(base: str, cache_salt: str | None, salt: bytes) -> str:
    """The tenant of a request. Its `cache_salt` may be a secret, so only a keyed digest of it is ever written."""
    if not cache_salt:
        return base
    digest = blake3(framed("cache_salt", cache_salt.encode("utf-8", "surrogatepass")), key=salt).hexdigest(16)
    return f"{base}+{digest}"


def name_of(key: Key) -> str:
    """How vLLM calls an item of ours, in all its caches."""
    return PREFIX + bytes(key).hex()


def key_of(name: str) -> Key | None:
    """The key behind a name of ours; None for any other text, whatever it looks like."""
    digits = name.removeprefix(PREFIX)
    if digits == name or len(digits) != 96 or not set(digits) <= set("0123456789abcdef"):
        return None
    return Key.from_bytes(bytes.fromhex(digits))


def encodable(data: Mapping[str, Any] | None) -> bool:
    """Whether there is anything to encode: not only sizes, not only a uuid."""
    return data is not None and any(map(_content, data.values()))


def _content(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_content, value))
    return hasattr(value, "dtype") and _size(value) is None
