"""Keys and frames for tests, well formed and small."""

from __future__ import annotations

import msgspec

from mmcache.model.frame import Frame, FrameHeader, LeafHeader
from mmcache.model.key import WHOLE, Key

ONE_LEAF = msgspec.Raw(msgspec.msgpack.encode([0]))
"""The skeleton of a value that is one leaf."""


def make_key(content: int, scope: int = 1, region: int | None = None) -> Key:
    """A key from small numbers: equal numbers, equal key."""
    part = WHOLE if region is None else b"region" + region.to_bytes(10, "big")
    return Key(b"scope" + scope.to_bytes(11, "big"), b"digest" + content.to_bytes(10, "big"), part)


def make_frame(
    key: Key,
    payload: bytes = b"payload",
    *,
    signature: bytes = b"signature-digest",
    modality: str = "tensor",
    tenant: str = "default",
    namespace: str = "default",
    model: str = "model-1",
    created: float = 1_800_000_000.0,
    cost: float = 0.5,
) -> Frame:
    """A sealed frame whose value is `payload` as bytes, stored as it is."""
    leaf = LeafHeader("bytes", "|u1", (len(payload),), (), 0, len(payload))
    header = FrameHeader(
        bytes(key), signature, modality, tenant, namespace, model, created, cost, ONE_LEAF, (leaf,)
    )  # fmt: skip
    return Frame.seal(header, payload)


class WholeThaw:
    """What a `MemoryTier` needs of a codec pipeline, for tests of tiers: the value is the payload."""

    constant = True
    held = 720
    """As the pipeline counts one small leaf."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def value(self) -> bytes:
        """The payload."""
        return bytes(self._frame.payload)
