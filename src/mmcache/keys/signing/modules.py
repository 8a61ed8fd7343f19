"""Signatures of torch modules, transformers models included. torch is never imported: the object brought it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Set
from typing import Any

from blake3 import blake3

from mmcache.keys.framing import framed
from mmcache.keys.signing.facts import VOLATILE, Facts, forward_digest
from mmcache.keys.tensor import flat_bytes
from mmcache.model.errors import UnversionedModelError
from mmcache.model.signature import Signature

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
"""Functions that change what goes in or comes out."""
_KEPT_PRIVATE = ("_active_adapter", "_disable_adapters", "_scaling")
_LOADING = ("_is_hf_initialized", "_use_kernels", "_weight_conversions")
"""What transformers notes while it loads a model."""
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
    devices = sorted({tensor.device.type for tensor in tensors.values()} - {"cpu"})
    dtypes = sorted({str(t.dtype).removeprefix("torch.") for t in tensors.values() if t.is_floating_point()})
    return Signature(
        model_version=version,
        dtype="+".join(dtypes),
        lora=_digest(adapters) if adapters else "",
        quantisation=quantisation,
        device="+".join(devices),
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
    hasher = blake3(max_threads=blake3.AUTO)
    for name, tensor in sorted(tensors.items()):
        if tensor.is_meta or str(tensor.layout) != "torch.strided":
            raise UnversionedModelError(f"{name} is a meta or sparse tensor, whose content is unknown; pass a version")
        hasher.update(framed("tensor", name.encode(), str(tensor.dtype).encode(), repr(tuple(tensor.shape)).encode()))
        raw = tensor.detach().dequantize() if tensor.is_quantized else tensor.detach()
        hasher.update(flat_bytes(raw).data)
    return hasher.hexdigest()[:_DIGITS]


def _structure(model: Any, above: tuple[int, ...] = ()) -> str:
    """Digest of every submodule's class, code, hooks and plain attributes: heads, eps, dropout, train or eval…"""
    torch = sys.modules["torch"]
    modules = list(model.named_modules(remove_duplicate=False))
    # The model itself last: held by something that it holds, it is what it is, not an endless tree.
    names = {id(part): f"{name}." for name, part in (*_tensors(model), *reversed(modules))}
    inside = (*above, id(model))
    facts = Facts(names, lambda module: _unregistered(module, inside), lambda tensor: _digest({"": tensor}))
    base = vars(torch.nn.Module()).keys() - {"training"}
    hasher = blake3()
    for name, module in modules:
        if isinstance(module, torch.jit.ScriptModule):
            raise UnversionedModelError("a TorchScript module hides its code; sign the Path of its file, or a version")
        plain = {key: facts.plain(value) for key, value in vars(module).items() if _counts(module, key, base)}
        hooks = [facts.plain(list(getattr(module, kind, {}).values())) for kind in _HOOKS]
        kind = f"{type(module).__module__}.{type(module).__qualname__} {forward_digest(type(module))}"
        told = json.dumps([plain, hooks], sort_keys=True)
        hasher.update(framed("module", name.encode(), kind.encode(), told.encode("utf-8", "surrogatepass")))
        hasher.update(framed("extra", _extra_state(module, facts)))
    return hasher.hexdigest()[:_DIGITS]


def _counts(module: Any, name: str, base: Set[str]) -> bool:
    if name in base or name in VOLATILE or name in _LOADING:
        return False
    # Those of transformers say how it was loaded; what they mean for the output is in the configuration.
    ours = not type(module).__module__.startswith("transformers.")
    return ours or not name.startswith("_") or name in _KEPT_PRIVATE


def _unregistered(module: Any, above: tuple[int, ...]) -> str:
    """A module that another one holds in a plain list, where torch does not see it; `above`: those that hold it."""
    if id(module) in above:
        return f"held by {len(above) - above.index(id(module))}"
    return f"{_digest(dict(_tensors(module)))} {_structure(module, above)}"


def _extra_state(module: Any, facts: Facts) -> bytes:
    """What `get_extra_state` adds to a state dict."""
    torch = sys.modules["torch"]
    if type(module).get_extra_state is torch.nn.Module.get_extra_state:
        return b""
    return json.dumps(facts.plain(module.get_extra_state()), sort_keys=True).encode("utf-8", "surrogatepass")
