"""Signatures of torch modules, transformers models included. torch is never imported: the object brought it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from blake3 import blake3

from mmcache.keys.framing import framed
from mmcache.model.errors import UnversionedModelError
from mmcache.model.signature import Signature

VOLATILE = frozenset(
    {"_name_or_path", "name_or_path", "transformers_version", "_commit_hash", "_attn_implementation_autoset"}
)
"""Configuration entries that say where a model came from, not what it does."""

_KEPT_PRIVATE = ("_active_adapter", "_disable_adapters", "_scaling")
_DIGITS = 32


def is_module(model: Any) -> bool:
    """Whether it is a `torch.nn.Module`."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def describe_module(model: Any) -> Signature:
    """Reads every weight once (about 0.2 s a GB on one core, and the copy from an accelerator). Not remembered:
    no cheap sign tells reliably whether weights were written in place.
    """
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    tensors = dict(_tensors(model))
    version = f"{kind} weights-{_digest(tensors)} structure-{_structure(model)}"
    config = getattr(model, "config", None)
    quantisation = ""
    if hasattr(config, "to_dict"):
        facts = _plain_config(config)
        version += f" config-{blake3(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:_DIGITS]}"
        version += f" transformers-{getattr(sys.modules.get('transformers'), '__version__', '')}"
        if commit := getattr(config, "_commit_hash", None):
            version = f"{commit} {version}"
        if quantised := facts.get("quantization_config"):
            quantisation = json.dumps(quantised, sort_keys=True, default=str)
    adapters = {name: tensor for name, tensor in tensors.items() if "lora_" in name or "adapter" in name}
    dtypes = sorted({str(t.dtype).removeprefix("torch.") for t in tensors.values() if t.is_floating_point()})
    return Signature(
        model_version=version,
        dtype="+".join(dtypes),
        lora=_digest(adapters) if adapters else "",
        quantisation=quantisation,
    )


def _plain_config(config: Any) -> dict[str, Any]:
    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(k): strip(v) for k, v in value.items() if k not in VOLATILE}
        return [strip(v) for v in value] if isinstance(value, list | tuple) else value

    stripped: dict[str, Any] = strip(config.to_dict())
    return stripped


def _tensors(model: Any) -> Iterator[tuple[str, Any]]:
    """All parameters and buffers by name: also shared ones, and buffers that `state_dict` leaves out."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _digest(tensors: dict[str, Any]) -> str:
    torch = sys.modules["torch"]
    hasher = blake3(max_threads=blake3.AUTO)
    for name, tensor in sorted(tensors.items()):
        if tensor.is_meta or str(tensor.layout) != "torch.strided":
            raise UnversionedModelError(f"{name} is a meta or sparse tensor, whose content is unknown; pass a version")
        hasher.update(framed("tensor", name.encode(), str(tensor.dtype).encode(), repr(tuple(tensor.shape)).encode()))
        raw = tensor.detach().dequantize() if tensor.is_quantized else tensor.detach()
        flat = raw.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        if flat.numel():
            hasher.update(flat.view(torch.uint8).numpy())
    return hasher.hexdigest()[:_DIGITS]


def _structure(model: Any) -> str:
    """Digest of every submodule's class and plain attributes: the number of heads, eps, dropout, train or eval…"""
    hasher = blake3()
    for name, module in model.named_modules(remove_duplicate=False):
        facts = {
            key: _plain(value)
            for key, value in vars(module).items()
            if key not in VOLATILE and (not key.startswith("_") or key in _KEPT_PRIVATE)
        }
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        hasher.update(framed("module", name.encode(), kind.encode(), json.dumps(facts, sort_keys=True).encode()))
        extra = _extra_state(module)
        hasher.update(framed("extra", extra))
    return hasher.hexdigest()[:_DIGITS]


def _extra_state(module: Any) -> bytes:
    """What `get_extra_state` adds to a state dict, where it is plain."""
    torch = sys.modules["torch"]
    if type(module).get_extra_state is torch.nn.Module.get_extra_state:
        return b""
    return json.dumps(_plain(module.get_extra_state()), sort_keys=True).encode()


def _plain(value: Any, depth: int = 0) -> Any:
    """Scalars, and lists and dicts of them, as JSON; functions by name; anything else by its class."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value.hex()
    if depth < 8:
        if isinstance(value, list | tuple):
            return [_plain(item, depth + 1) for item in value]
        if isinstance(value, set | frozenset):
            return sorted(json.dumps(_plain(item, depth + 1)) for item in value)
        if isinstance(value, dict):
            return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device", "Size"):
        return str(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"<{getattr(named, '__module__', '')}.{named.__qualname__}>"
