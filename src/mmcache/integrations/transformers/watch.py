"""Whether a tower is still the one that was signed, told in well under a millisecond: at every call.

Weights written in place raise torch's version counters; replaced ones lie elsewhere. Writes through `.data` and
through numpy do neither, so a few numbers of every tensor are compared as well. A write through `.data` that spares
all of these goes unseen: `CachedTower.refresh` is for who does that.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch
from torch import nn

from mmcache.integrations.transformers.aside import Aside
from mmcache.model.errors import UnversionedModelError

SAMPLES = 8
"""Numbers of each tensor that are compared at every call, evenly spread."""
_ADAPTERS = ("merged_adapters", "_active_adapter", "_disable_adapters", "scaling")
"""What an adapter's layer changes without touching a tensor."""
_OURS = "transformers.utils.output_capturing"
"""Hooks that transformers itself installs, to note hidden states."""
_HIDDEN = ("torch.ao.", "torch.nn.quantized", "torch.nn.intrinsic.quantized")
"""Modules whose weights are neither parameters nor buffers."""


class Watch:
    """What a tower was when it was signed. Holds no reference that keeps the tower alive."""

    def __init__(self, tower: nn.Module) -> None:
        self._seen = _survey(tower)
        self._refs = [weakref.ref(thing) for thing in _things(tower)]
        self._config = copy.deepcopy(_config(tower))
        self._views = _views(tower)
        self._values = _values(self._views)

    def same(self, tower: nn.Module) -> bool:
        """Whether nothing of it has changed, as far as can be seen."""
        things = _things(tower)
        return (
            len(things) == len(self._refs)
            and all(ref() is thing for ref, thing in zip(self._refs, things, strict=True))
            and _survey(tower) == self._seen
            and _config(tower) == self._config
            and _values(self._views) == self._values
        )


def usable(tower: nn.Module, pixels: torch.Tensor) -> None:
    """Raises `Aside` where a stored output may not stand for what the tower would give now."""
    modules = torch.nn.modules.module
    if modules._global_forward_hooks or modules._global_forward_pre_hooks:
        raise Aside("hooks")
    wanted = torch.is_grad_enabled()
    if wanted and pixels.requires_grad:
        raise Aside("grad")
    for module in tower.modules():
        if module.training:
            raise Aside("training")
        if module is not tower and (module._forward_pre_hooks or any(map(_foreign, module._forward_hooks.values()))):
            raise Aside("hooks")
        if wanted and any(p is not None and p.requires_grad for p in module._parameters.values()):
            raise Aside("grad")


def check_signable(tower: nn.Module) -> None:
    """Raises `UnversionedModelError` for modules whose weights a signature would not see."""
    for name, module in tower.named_modules():
        if type(module).__module__.startswith(_HIDDEN):
            raise UnversionedModelError(
                f"{name} is a {type(module).__name__}, whose weights cannot be read; pass signature='name and version'"
            )


def numerics(tower: nn.Module, device: str) -> dict[str, Any]:
    """What changes numbers besides weights and arguments: precision switches, and how attention is computed."""
    found: dict[str, Any] = {
        "matmul": torch.get_float32_matmul_precision(),
        "attention": str(getattr(getattr(tower, "config", None), "_attn_implementation", "")),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }
    if torch.is_autocast_enabled(device):
        found["autocast"] = str(torch.get_autocast_dtype(device))
    if device == "cuda":
        backends = torch.backends
        found["tf32"] = [backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32]
        found["fp16"] = backends.cuda.matmul.allow_fp16_reduced_precision_reduction
        found["bf16"] = backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    return found


def _foreign(hook: Any) -> bool:
    return getattr(hook, "__module__", None) != _OURS


def _things(tower: nn.Module) -> list[Any]:
    """All modules and their tensors, in order."""
    found: list[Any] = []
    for module in tower.modules():
        found.append(module)
        found += [t for t in module._parameters.values() if t is not None and not t.is_meta]
        found += [t for t in module._buffers.values() if t is not None and not t.is_meta]
    return found


def _survey(tower: nn.Module) -> list[Any]:
    """Version counters and addresses of tensors; of modules what may be swapped or switched."""
    found: list[Any] = []
    for thing in _things(tower):
        if isinstance(thing, torch.Tensor):
            found.append((-1 if thing.is_inference() else thing._version, _address(thing)))
        else:
            own = vars(thing)
            found.append((id(own.get("forward")), *(repr(own[name]) for name in _ADAPTERS if name in own)))
    return found


def _address(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.data_ptr())
    except RuntimeError:  # subclasses without storage
        return id(tensor)


def _config(tower: nn.Module) -> dict[str, Any]:
    config = getattr(tower, "config", None)
    return {} if config is None else dict(vars(config))


def _views(tower: nn.Module) -> list[list[torch.Tensor]]:
    """A few numbers of each tensor, as views of its own memory, by device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for thing in _things(tower):
        if type(thing) in (torch.Tensor, nn.Parameter) and thing.layout is torch.strided and not thing.is_quantized:
            plain = thing.detach()
            count = plain.numel()
            if count and plain.is_contiguous():
                size = min(count, SAMPLES)
                step = (count - 1) // (size - 1) if size > 1 else 1
                groups.setdefault((plain.device, plain.dtype), []).append(
                    plain.as_strided((size,), (step,), plain.storage_offset())
                )
    return [views for views in groups.values() if _joined(views) is not None]


def _joined(views: list[torch.Tensor]) -> torch.Tensor | None:
    try:
        return torch.cat(views).view(torch.uint8)
    except RuntimeError:  # some narrow dtypes cannot be joined
        return None


def _values(groups: list[list[torch.Tensor]]) -> list[bytes]:
    return [b"" if (joined := _joined(views)) is None else joined.cpu().numpy().tobytes() for views in groups]
