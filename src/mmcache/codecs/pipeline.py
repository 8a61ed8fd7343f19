"""Value → frame and back: `freeze` and `thaw`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from mmcache import plugins
from mmcache.codecs import torch_leaf
from mmcache.codecs.chain import Chain, CodecSetting, Encoded, Recipe, choose
from mmcache.codecs.raw import Raw
from mmcache.codecs.structure import Built, Structures, flatten, own_bytes, unflatten
from mmcache.model.block import ArraySpec
from mmcache.model.errors import CorruptFrameError, UnknownPluginError, UnsupportedValueError
from mmcache.model.frame import ALIGNMENT, MAX_HEADER_BYTES, MAX_PAYLOAD_BYTES, Frame, FrameHeader, LeafHeader, aligned
from mmcache.model.key import Key
from mmcache.model.signature import Signature

__all__ = ["Chain", "CodecSetting", "Thawed", "choose", "freeze", "sealed", "thaw"]

Array = npt.NDArray[np.generic]
Realm = tuple[bytes, bytes, str, str]
"""Key, signature digest, tenant, namespace."""

MAX_LEAVES = 1 << 14
MAX_AXES = 32
MAX_DECODED_BYTES = 1 << 32
"""Bytes that the encoded leaves of one frame may decode to. Raw leaves are views and need no bound."""

_HEADER_BYTES, _VIEW_BYTES, _TENSOR_BYTES, _ENCODED_BYTES = 440, 280, 530, 1000
"""What a leaf takes, measured (CPython 3.11): header and its maker; array and buffer; a tensor's too; its recipe."""

_SEALED_TREE = b"\x91\x05"
"""Stands for the skeleton when it is itself the last, encoded leaf."""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


class Thawed(NamedTuple):
    """A frame made ready. `value()` gives a fresh value each call; nothing is decoded before it.

    `constant`: the value is immutable, so one object may be handed to every caller; it is decoded already. `held`:
    bytes that the ready form takes besides the frame's payload and skeleton, about (a leaf's header is counted here).
    """

    value: Callable[[], object]
    constant: bool
    held: int


def freeze(
    value: object,
    *,
    key: Key,
    signature: Signature,
    modality: str,
    tenant: str,
    namespace: str,
    cost: float,
    created: float,
    chain: Chain | None = None,
    structures: Structures | None = None,
) -> Frame:
    """The frame of a model's output.

    Leaves start at multiples of 64 in one allocation that is itself aligned to 64 bytes. `cost` in seconds of compute,
    `created` in Unix seconds. Raises `UnsupportedValueError`.
    """
    flat = flatten(value, structures)
    tree = _pack(flat.tree)
    arrays, kinds = list(flat.leaves), list(flat.kinds)
    if chain is not None and chain.seals:
        arrays.append(np.frombuffer(tree, np.uint8))
        kinds.append("tree")
        tree = _SEALED_TREE
    if len(arrays) > MAX_LEAVES or len(tree) + 256 * len(arrays) > MAX_HEADER_BYTES:
        raise UnsupportedValueError(
            f"a value of {len(arrays)} arrays and {len(tree)} other bytes has too many parts; return fewer, larger ones"
        )
    realm = (bytes(key), signature.digest, tenant, namespace)
    encoded = [
        Encoded(Raw().encode(array, ArraySpec.of(array)), ())
        if chain is None
        else chain.encode(
            array, lossy=_may_lose(array, kind), context=_context(realm, i, kind, array.dtype.str, array.shape)
        )
        for i, (array, kind) in enumerate(zip(arrays, kinds, strict=True))
    ]
    payload, offsets = _laid_out(encoded)
    leaves = tuple(
        LeafHeader(kind, array.dtype.str, array.shape, part.steps, offset, memoryview(part.data).nbytes)
        for kind, array, part, offset in zip(kinds, arrays, encoded, offsets, strict=True)
    )
    header = FrameHeader(
        key=bytes(key), signature=signature.digest, modality=modality, tenant=tenant, namespace=namespace,
        model=signature.model_version, created=created, cost=cost, tree=msgspec.Raw(tree), leaves=leaves,
    )  # fmt: skip
    return Frame.seal(header, payload)


def _may_lose(array: Array, kind: str) -> bool:
    return array.dtype.kind == "f" and kind in ("numpy", torch_leaf.PREFIX)


def _context(realm: Realm, leaf: int, kind: str, dtype: str, shape: tuple[int, ...]) -> bytes:
    """What ciphers bind a leaf's bytes to."""
    return _pack((*realm, leaf, kind, dtype, shape))


def _laid_out(encoded: list[Encoded]) -> tuple[memoryview, list[int]]:
    offsets, end = [], 0
    for part in encoded:
        offsets.append(aligned(end))
        end = offsets[-1] + memoryview(part.data).nbytes
    raw = np.empty(end + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    payload = raw[start : start + end]
    end = 0
    for part, offset in zip(encoded, offsets, strict=True):
        payload[end:offset] = 0  # gaps must not carry old memory to disk
        end = offset + memoryview(part.data).nbytes
        payload[offset:end] = np.frombuffer(part.data, np.uint8)
    return payload.data.toreadonly(), offsets


def thaw(frame: Frame, structures: Structures | None = None, *, share: bool = False) -> Thawed:
    """Make a frame's value ready; sizes and skeleton are validated here, before anything is allocated.

    Raw arrays are read-only views of the payload. Tensors are copies, or with `share` views that must not be written
    to. Raises `CorruptFrameError` or `CodecError` for a frame that `freeze` cannot have written, and
    `UnsupportedValueError` for types that were not declared. `value()` may raise `CodecError` for encoded leaves.
    """
    header, payload = frame.header, memoryview(frame.payload).toreadonly()
    if len(header.leaves) > MAX_LEAVES:
        raise CorruptFrameError("a frame has more leaves than any frame may have")
    realm = (header.key, header.signature, header.tenant, header.namespace)
    budget = MAX_DECODED_BYTES
    built = []
    end = 0
    for i, leaf in enumerate(header.leaves):
        if leaf.offset < end:  # else many leaves of the same bytes would be copied many times
            raise CorruptFrameError("a frame's leaves overlap, or are not in order")
        end = leaf.offset + leaf.length
        part, held = _leaf(leaf, payload, realm, i, share)
        budget -= held
        built.append(part)
    if budget < 0:
        raise CorruptFrameError(f"a frame's leaves would decode to more than {MAX_DECODED_BYTES} bytes")
    tree = bytes(header.tree)
    if tree == _SEALED_TREE:
        if not built or header.leaves[-1].kind != "tree":
            raise CorruptFrameError("a frame's sealed skeleton is missing")
        tree = built.pop().make()  # type: ignore[assignment]
    try:
        skeleton = _unpack(tree)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptFrameError("a frame's skeleton is no msgpack") from error
    ready = unflatten(skeleton, built, structures or Structures())
    if ready.constant and skeleton == [0] and header.leaves[0].chain:
        value = ready.make()
        return Thawed(partial(_same, value), True, ready.held + own_bytes([value]))
    return Thawed(*ready)


def sealed(header: FrameHeader) -> bool:
    """Whether all of a value is encrypted, skeleton included. A cache that encrypts believes no other frame: whoever
    can write to its folder could have made it."""
    leaves = header.leaves
    whole = bytes(header.tree) == _SEALED_TREE and bool(leaves) and leaves[-1].kind == "tree"
    return whole and all(any(_seals(step.name) for step in leaf.chain) for leaf in leaves)


@lru_cache(maxsize=64)
def _seals(codec: str) -> bool:
    try:
        return bool(getattr(plugins.load("codecs", codec), "seals", False))
    except UnknownPluginError:
        return False


def _leaf(leaf: LeafHeader, payload: memoryview, realm: Realm, place: int, share: bool) -> tuple[Built, int]:
    """The maker of a leaf, and the bytes that decoding it holds."""
    dtype = _dtype(leaf.dtype)
    kind = leaf.kind
    if leaf.offset % ALIGNMENT:
        raise CorruptFrameError("a frame's leaf is not aligned")
    if (
        len(leaf.shape) > MAX_AXES
        or math.prod(max(side, 1) for side in leaf.shape) * dtype.itemsize > MAX_PAYLOAD_BYTES
    ):
        raise CorruptFrameError(f"a leaf cannot have the shape {leaf.shape[:MAX_AXES]}")
    if kind in _FLAT:
        if leaf.dtype not in _FLAT[kind] or len(leaf.shape) != 1:
            raise CorruptFrameError(f"a leaf of kind {kind!r} cannot be {leaf.dtype} of shape {leaf.shape}")
    elif kind.startswith(torch_leaf.PREFIX):
        torch_leaf.check(kind, dtype)
    elif kind != "numpy" and not (kind == "scalar" and leaf.shape == ()):
        raise CorruptFrameError(f"a leaf of unknown kind {kind!r}")
    data = payload[leaf.offset : leaf.offset + leaf.length]
    spec = ArraySpec(leaf.dtype, leaf.shape)
    if not leaf.chain:
        array = Raw().decode(data, spec)
        make, constant = _given(kind, array, share)
        held = own_bytes([make()]) if constant else _TENSOR_BYTES if kind.startswith(torch_leaf.PREFIX) else _VIEW_BYTES
        return Built(make, constant, _HEADER_BYTES + held), 0
    context = _context(realm, place, kind, leaf.dtype, leaf.shape)
    recipe = Recipe(spec, leaf.chain, leaf.length, context)
    make = partial(_decoded, kind, recipe, data, share)
    return Built(make, kind in _IMMUTABLE, _HEADER_BYTES + _ENCODED_BYTES), recipe.decoded_bytes


_FLAT = {"bytes": ("|u1",), "str": ("|u1",), "tree": ("|u1",), "list": ("<f8", "<i8")}
_IMMUTABLE = ("bytes", "str", "scalar", "tree")


def _given(kind: str, array: Array, share: bool) -> tuple[Callable[[], object], bool]:
    """(maker, whether its value is immutable) for a decoded leaf."""
    match kind:
        case "numpy":
            return array.view, False
        case "list":
            return array.tolist, False
        case "bytes" | "tree":
            return partial(_same, array.tobytes()), True
        case "str":
            return partial(_same, _text(array)), True
        case "scalar":
            return partial(_same, array[()]), True
    return partial(torch_leaf.give, array, kind, share=share), False


def _decoded(kind: str, recipe: Recipe, data: memoryview, share: bool) -> object:
    return _given(kind, recipe.decode(data), share)[0]()


def _same(value: object) -> object:
    return value


def _text(array: Array) -> str:
    try:
        return array.tobytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise CorruptFrameError("a frame's text is not UTF-8") from error


_DTYPE = re.compile(r"[<>|][biufcmMSUV]\d{1,9}(\[\d{0,6}[A-Za-z]{1,3}\])?")


@lru_cache(maxsize=256)
def _dtype(text: str) -> np.dtype[Any]:
    """A plain dtype, exactly as `flatten` writes it. Raises `CorruptFrameError`."""
    try:
        dtype = np.dtype(text) if _DTYPE.fullmatch(text) else None
    except (TypeError, ValueError) as error:
        raise CorruptFrameError(f"a leaf has no plain dtype: {text[:40]!r}") from error
    if dtype is None or dtype.str != text or dtype.hasobject or not dtype.itemsize:
        raise CorruptFrameError(f"a leaf has no plain dtype: {text[:40]!r}")
    return dtype
