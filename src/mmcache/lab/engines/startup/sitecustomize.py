"""Lets a torchvision that was built for CUDA be imported beside a torch for CPUs. On `PYTHONPATH` of engines only.

Its extension cannot be loaded there, so its operators are unknown and its import fails; declared, they are merely not
implemented, and nothing here calls them. Runs in every process of an engine, before anything else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
KEPT: list[object] = []
"""A library whose object is collected takes its operators with it."""


class Declares:
    """Finds nothing: declares the operators just before torchvision is imported."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "torchvision":
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not Declares]
            import torch

            library = torch.library.Library("torchvision", "FRAGMENT")
            for schema in SCHEMAS:
                library.define(schema)
            KEPT.append(library)
        return None


sys.meta_path.insert(0, Declares)
