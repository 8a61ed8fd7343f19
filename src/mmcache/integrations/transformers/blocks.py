"""A tower's output, taken apart into one block a picture, and back into what the tower would have given."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from transformers.utils import ModelOutput

from mmcache.integrations.transformers.aside import Aside
from mmcache.integrations.transformers.layouts import Layout, Picture

Block = dict[str, Any]
"""`{"class", "tree", "leaves"}`: nothing but strings, numbers, lists and tensors."""

_OUTPUTS = "transformers.modeling_outputs"
_DEEPEST = 4


def take_apart(output: Any, layout: Layout, pictures: Sequence[Picture]) -> list[Block]:
    """One block a picture. A tensor that stands in two places (a tied hidden state) is kept once.

    Raises `Aside` for what is no `ModelOutput`, tuple or tensor, or cannot be cut.
    """
    slots: dict[int, int] = {}
    leaves: list[list[torch.Tensor]] = []

    def node(value: Any, depth: int) -> Any:
        if value is None:
            return None
        if type(value) is torch.Tensor:
            if id(value) not in slots:
                slots[id(value)] = len(leaves)
                leaves.append(layout.cut(value, pictures))
            return slots[id(value)]
        if type(value) in (tuple, list) and depth < _DEEPEST:
            return [type(value).__name__, [node(item, depth + 1) for item in value]]
        raise Aside("output")

    if isinstance(output, ModelOutput):
        name = f"{type(output).__module__}.{type(output).__qualname__}"
        tree = [[key, node(value, 0)] for key, value in output.items()]
        if any(field not in output and value is not None for field, value in vars(output).items()):
            raise Aside("output")  # more than its items, which would be lost
    else:
        name, tree = "", node(output, 0)
    return [{"class": name, "tree": tree, "leaves": [parts[i] for parts in leaves]} for i in range(len(pictures))]


def put_together(blocks: Sequence[Block], layout: Layout, device: torch.device, module: str) -> Any:
    """The output for all these pictures, in memory of its own, on `device`.

    `module`: where the tower's class is defined; output classes are looked up there, and among those of transformers.
    Raises `Aside` where blocks do not fit each other.
    """
    first = blocks[0]
    if any(block["class"] != first["class"] or block["tree"] != first["tree"] for block in blocks):
        raise Aside("cache")
    leaves = [layout.glue(parts).to(device) for parts in zip(*(block["leaves"] for block in blocks), strict=True)]

    def made(tree: Any) -> Any:
        if tree is None:
            return None
        if type(tree) is int:
            return leaves[tree]
        kind, items = tree
        values = [made(item) for item in items]
        return tuple(values) if kind == "tuple" else values

    if not first["class"]:
        return made(first["tree"])
    output = _output_class(first["class"], module)()
    for key, tree in first["tree"]:
        output[key] = made(tree)
    return output


def _output_class(name: str, module: str) -> Any:
    where, _, simple = name.rpartition(".")
    cls = getattr(sys.modules.get(where), simple, None) if where in (_OUTPUTS, module) else None
    if not (isinstance(cls, type) and issubclass(cls, ModelOutput)):
        raise Aside("cache")
    return cls
