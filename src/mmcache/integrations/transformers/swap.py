"""The exchange of a tower's class for one of the same name that asks the cache first."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch import nn

DOORS: weakref.WeakKeyDictionary[nn.Module, Any] = weakref.WeakKeyDictionary()
"""Tower → its `CachedTower`. Not an attribute of the tower, or copies of it would have it too."""


def install_hooks(tower: nn.Module) -> None:
    """transformers installs hooks when hidden states are first asked for; done now, one tower has one signature."""
    try:
        from transformers.utils.output_capturing import maybe_install_capturing_hooks
    except ImportError:
        return
    if hasattr(tower, "config"):
        maybe_install_capturing_hooks(tower)


@functools.cache
def swapped(cls: Any) -> Any:
    """The subclass of `cls` whose `forward` goes through the door of its instance, if it has one."""
    plain = cls.forward

    @functools.wraps(plain)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        # First: inside of a tracer nothing else may be looked at.
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return plain(self, *args, **kwargs)
        door = DOORS.get(self)
        if door is None:
            return plain(self, *args, **kwargs)
        call = door._own if door._own is not None else functools.partial(plain, self)
        return door.forward(self, call, args, kwargs)

    def reduce(self: nn.Module, protocol: Any) -> Any:
        """Copies, and what torch.save writes, are of the plain class."""
        function, arguments, *rest = super(cached, self).__reduce_ex__(protocol)
        return (function, tuple(cls if each is cached else each for each in arguments), *rest)

    cached: Any = type(
        cls.__name__,
        (cls,),
        {
            "forward": forward,
            "__reduce_ex__": reduce,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
        },
    )
    return cached
