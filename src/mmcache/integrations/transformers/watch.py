"""Whether a tower is still the one that was signed, told in well under a millisecond: at every call.

Weights written in place raise torch's version counters; replaced ones lie elsewhere. Writes through `.data` and
through numpy do neither, so a few numbers of every tensor are compared as well. A write through `.data` that spares
all of these goes unseen: `CachedTower.refresh` is for who does that.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from mmcache.integrations.transformers.aside import Aside
from mmcache.integrations.transformers.code import attention
from mmcache.integrations.transformers.swap import plain_class
from mmcache.model.errors import UnversionedModelError

SAMPLES = 8
"""Numbers of each tensor that are compared at every call, evenly spread."""
_ADAPTERS = frozenset(("_active_adapter", "_disable_adapters"))
"""What an adapter's layer changes under a private name without touching a tensor."""
_PLAIN = frozenset((bool, int, float, str, bytes, type(None)))
_OURS = "transformers.utils.output_capturing"
"""Hooks that transformers itself installs, to note hidden states."""
_BASE = frozenset(vars(nn.Module()))
"""Attributes that every module has; what counts of them is looked at by name."""
_LOOKED_INTO = (list, tuple, set, frozenset, dict, torch.Tensor, nn.Module)
_NESTED = 3
"""Lists and dicts in attributes are compared so deep; what lies deeper is told by its identity."""
_HIDDEN = ("torch.ao.", "torch.nn.quantized", "torch.nn.intrinsic.quantized")
"""Modules whose weights are neither parameters nor buffers."""


class Watch:
    """What a tower was when it was signed. Holds no reference that keeps the tower alive."""

    def __init__(self, tower: nn.Module) -> None:
        things, self._seen = _survey(tower)
        self._gone = False  # else another object could have taken the place, and the id, of one of them
        self._refs = [_reference(thing, self._lost) for thing in things]
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
        "attention": attention(tower),
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
    may be swapped or switched: class, code and attributes. Tensors without data (weights that are elsewhere between
    calls) are left out."""
    modules = _modules(tower)
    things: list[Any] = []
    seen: list[Any] = []
    foreign: dict[type, bool] = {}  # of transformers, private names only say how a module was made
    for module in modules:  # grows by what is held in plain lists
        own, kind = module.__dict__, plain_class(module)
        things.append(module)
        seen.append(id(module))
        if kind not in foreign:
            foreign[kind] = not kind.__module__.startswith("transformers.")
            seen.append(kind.forward)
        seen.append(kind)
        private = foreign[kind]
        for name, value in own.items():
            if name not in _BASE and (private or name[0] != "_" or name in _ADAPTERS):
                seen.append(value if type(value) in _PLAIN else _told(value, things, modules, 0))  # eps, scales…
        for held in (own["_parameters"], own["_buffers"]):
            for name, tensor in held.items():
                if tensor is not None and not tensor.is_meta:
                    things.append(tensor)
                    seen += (name, id(tensor), _version(tensor), _address(tensor))
    return things, seen


def _told(value: Any, things: list[Any], modules: list[nn.Module], depth: int) -> Any:
    """Who an attribute's value is. What must stay alive for that joins `things`; modules that torch does not see join
    `modules`."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, _LOOKED_INTO):
        if isinstance(value, torch.Tensor):
            things.append(value)
            return id(value), _version(value), _address(value)
        if isinstance(value, nn.Module):
            if all(value is not known for known in modules):
                modules += _modules(value)
            return id(value)
        if depth < _NESTED:
            parts = [*value, *value.values()] if isinstance(value, dict) else value
            return [_told(each, things, modules, depth + 1) for each in parts]
    things.append(value)
    return id(value)


def _reference(thing: Any, lost: Callable[[Any], None]) -> Any:
    """Weak where that can be."""
    try:
        return weakref.ref(thing, lost)
    except TypeError:
        return thing


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
