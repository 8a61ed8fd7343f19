"""INT4 per channel as one writes it in numpy and torch: what the C kernels are measured against."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

Halves = npt.NDArray[np.float16]


def calls(array: Halves) -> dict[str, Callable[[], object]]:
    """Encode and decode of `array` by each peer that is installed here."""
    peers = {"numpy": _numpy(array)}
    if find_spec("torch") is not None:
        peers["torch"] = _torch(array)
    return {f"{peer}/{way}": call for peer, ways in peers.items() for way, call in ways.items()}


def _numpy(array: Halves) -> dict[str, Callable[[], object]]:
    def encode() -> tuple[Any, Any]:
        scale = np.abs(array).max(axis=0).astype(np.float32) / 7
        q = np.clip(np.rint(array / scale), -7, 7).astype(np.int8) + 8
        return scale, (q[:, ::2] | q[:, 1::2] << 4).astype(np.uint8)

    def decode() -> Halves:
        out = np.empty(array.shape, np.float16)
        out[:, ::2] = ((packed & 15).astype(np.int8) - 8) * scale[::2]
        out[:, 1::2] = ((packed >> 4).astype(np.int8) - 8) * scale[1::2]
        return out

    scale, packed = encode()
    return {"encode": encode, "decode": decode}


def _torch(array: Halves) -> dict[str, Callable[[], object]]:
    import torch

    torch.set_num_threads(1)  # as the others: on a shared machine its threads wait for each other
    tensor = torch.from_numpy(array)

    def encode() -> tuple[Any, Any]:
        scale = tensor.abs().amax(dim=0).float() / 7
        q = (tensor / scale).round().clamp(-7, 7).to(torch.int8) + 8
        return scale, (q[:, ::2] | q[:, 1::2] << 4).to(torch.uint8)

    def decode() -> Any:
        out = torch.empty(tensor.shape, dtype=torch.float16)
        out[:, ::2] = ((packed & 15).to(torch.int8) - 8) * scale[::2]
        out[:, 1::2] = ((packed >> 4).to(torch.int8) - 8) * scale[1::2]
        return out

    scale, packed = encode()
    return {"encode": encode, "decode": decode}
