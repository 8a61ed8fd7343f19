"""Finding the vision tower of a model, and what is known about its class."""

from __future__ import annotations

from typing import Any

from torch import nn

from mmcache.integrations.transformers.layouts import Grid, Layout, Sizes, Stacked
from mmcache.model.errors import SettingsError

_PLACES = ("vision_tower", "visual", "vision_model", "vision_encoder", "image_tower")
"""Where transformers' models keep their tower."""
_INSIDE = ("model", "base_model", "module", "_orig_mod")
"""Where wrappers keep the model."""
_DEEPEST = 4

_MASK, _SHAPES = ("patch_attention_mask",), ("pixel_attention_mask", "spatial_shapes")
_STACKED: dict[str, tuple[str, ...]] = {
    "Aimv2VisionModel": (),
    "CLIPVisionModel": (),
    "CLIPVisionModelWithProjection": (),
    "Dinov2Model": ("bool_masked_pos",),
    "Dinov2WithRegistersModel": ("bool_masked_pos",),
    "DINOv3ViTModel": ("bool_masked_pos",),
    "Idefics2VisionTransformer": _MASK,
    "Idefics3VisionTransformer": _MASK,
    "IJepaModel": ("bool_masked_pos",),
    "InternVLVisionModel": ("bool_masked_pos",),
    "Siglip2VisionModel": _SHAPES,
    "SiglipVisionModel": (),
    "SmolVLMVisionTransformer": _MASK,
    "ViTModel": ("bool_masked_pos",),
}
_GRID = {
    "Qwen2VisionTransformerPretrainedModel",
    "Qwen2_5_VisionTransformerPretrainedModel",
    "Qwen3VLVisionModel",
}
_SIZES = {"PixtralVisionModel"}

KNOWN = frozenset((*_STACKED, *_GRID, *_SIZES))
"""Classes of transformers that were looked at, and are tested: each picture's output depends on that picture alone."""


def known(tower: nn.Module) -> Layout | None:
    """The layout of a tower of transformers; None where nobody has looked."""
    cls = type(tower)
    if not cls.__module__.startswith("transformers.models."):
        return None
    name = cls.__name__
    config: Any = getattr(tower, "config", None)
    if name in _STACKED:
        return Stacked(beside=_STACKED[name])
    if name in _GRID:
        return Grid(merge=int(config.spatial_merge_size))
    if name in _SIZES:
        return Sizes(patch=int(config.patch_size))
    return None


def find(model: nn.Module, layout: Layout | None) -> tuple[nn.Module, Layout]:
    """The tower of `model`, which may be a tower itself, and its layout. Raises `SettingsError`."""
    inner = getattr(model, "_orig_mod", model)  # what torch.compile(model) gives
    if layout is None:
        own = known(inner)
        if own is not None:
            return inner, own
    tower = _search(inner, 0)
    if tower is None:
        if layout is None:
            raise SettingsError(
                f"no vision tower was found in a {type(inner).__name__}: pass the tower itself, and layout=… where its "
                "class is not one of " + ", ".join(sorted(KNOWN))
            )
        return inner, layout
    found = layout or known(tower)
    if found is None:
        raise SettingsError(
            f"nothing is known about the tower {type(tower).__name__}: if row i of its outputs depends on picture i "
            "alone, say so with layout=Stacked()"
        )
    return tower, found


def _search(model: nn.Module, depth: int) -> nn.Module | None:
    for name in _PLACES:
        tower = getattr(model, name, None)
        if isinstance(tower, nn.Module):
            return tower
    for name in _INSIDE if depth < _DEEPEST else ():
        inner = getattr(model, name, None)
        if isinstance(inner, nn.Module) and inner is not model and (found := _search(inner, depth + 1)) is not None:
            return found
    return None
