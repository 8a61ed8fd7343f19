"""Why a call goes past the cache."""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    "training": "a module of the tower is in training mode; call model.eval()",
    "grad": "gradients are wanted; call it under torch.inference_mode() or torch.no_grad(), or freeze the tower",
    "compiled": "torch.compile or a tracer is looking at the call; compile before cache_vision_tower, not after",
    "hooks": "a module inside of the tower has hooks, which a hit would not run",
    "pixels": "the pictures do not come as the dense tensors that this kind of tower takes",
    "argument": "the call has an argument of which it is not known how the output depends on it",
    "output": "the tower gave an output that cannot be cut apart by picture",
    "weights": "the weights have changed since signature= named them; see CachedTower.refresh",
    "unsigned": "the weights have changed and nothing identifies them now",
    "racing": "the weights changed while the tower was computing",
    "tenant": "the function that names the tenant failed, or gave no name",
    "guard": "looking up takes longer than computing",
    "cache": "the cache failed",
    "off": "the handle was removed, or the cache is off",
}
"""Reason → what it means, and what to do."""


class Aside(Exception):
    """This call is none for the cache. Never reaches the caller."""

    def __init__(self, reason: str) -> None:
        super().__init__(REASONS[reason])
        self.reason = reason
