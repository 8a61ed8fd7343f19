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
_PLAIN = frozenset((bool, int, float, str))
_OURS = "transformers.utils.output_capturing"
"""Hooks that transformers itself installs, to note hidden states."""
_HIDDEN = ("torch.ao.", "torch.nn.quantized", "torch.nn.intrinsic.quantized")
"""Modules whose weights are neither parameters nor buffers."""


class Watch:
    """What a tower was when it was signed. Holds no reference that keeps the tower alive."""

    def __init__(self, tower: nn.Module) -> None:
        things, self._seen = _survey(tower)
        self._gone = False  # else another object could have taken the place, and the id, of one of them
        self._refs = [weakref.ref(thing, self._lost) for thing in things]
        self._config = copy.deepcopy(_config(tower))
        self._views = _views(things)
        self._values = _values(self._views)

    def _lost(self, _: object) -> None:
        self._gone = True

    def same(self, tower: nn.Module) -> bool:
        """Whether nothing of it has changed, as far as can be seen."""
        return (
            not self._gone
            and _survey(tower)[1] == self._seen
            and _config(tower) == self._config
            and _values(self._views) == self._values
        )


def usable(tower: nn.Module, pixels: torch.Tensor) -> None:
    """Raises `Aside` where a stored output may not stand for what the tower would give now."""
    modules = torch.nn.modules.module
    if modules._global_forward_hooks or modules._global_forward_pre_hooks:
        raise Aside("hooks")
    if pixels.is_cuda and torch.cuda.is_current_stream_capturing():
        raise Aside("compiled")
    wanted = torch.is_grad_enabled()
    if wanted and pixels.requires_grad:
        raise Aside("grad")
    for module in _modules(tower):
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


def _modules(tower: nn.Module) -> list[nn.Module]:
    """All modules, each once. A quarter of what `tower.modules()` takes."""
    found: list[nn.Module] = []
    seen: set[int] = set()
    stack: list[nn.Module | None] = [tower]
    while stack:
        module = stack.pop()
        if module is not None and id(module) not in seen:
            seen.add(id(module))
            found.append(module)
            stack += module._modules.values()
    return found


def _survey(tower: nn.Module) -> tuple[list[Any], list[Any]]:
    """All modules and their tensors; and who they are, version counters and addresses of tensors, and of modules what
    may be swapped or switched. Tensors without data (weights that are elsewhere between calls) are left out."""
    things: list[Any] = []
    seen: list[Any] = []
    for module in _modules(tower):
        own = module.__dict__
        things.append(module)
        seen += (id(module), id(own.get("forward")))
        seen += [repr(own[name]) for name in _ADAPTERS if name in own]
        seen += [value for name, value in own.items() if type(value) in _PLAIN and name[0] != "_"]  # eps, scales…
        for held in (own["_parameters"], own["_buffers"]):
            for name, tensor in held.items():
                if tensor is not None and not tensor.is_meta:
                    things.append(tensor)
                    seen += (name, id(tensor), _version(tensor), _address(tensor))
    return things, seen


def _version(tensor: torch.Tensor) -> int:
    try:
        return int(tensor._version)
    except RuntimeError:  # made in inference mode
        return -1


def _address(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.data_ptr())
    except RuntimeError:  # subclasses without storage
        return id(tensor)


def _config(tower: nn.Module) -> dict[str, Any]:
    config = getattr(tower, "config", None)
    return {} if config is None else dict(vars(config))


def _views(things: list[Any]) -> list[list[torch.Tensor]]:
    """A few numbers of each tensor, as views of its own memory, by device and dtype."""
    groups: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
    for thing in things:
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
