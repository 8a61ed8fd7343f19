"""The exchange of a tower's class for one of the same name that asks the cache first."""

from __future__ import annotations

import copyreg
import functools
import weakref
from typing import Any

import torch
from torch import nn

DOORS: weakref.WeakKeyDictionary[nn.Module, Any] = weakref.WeakKeyDictionary()
"""Tower → its `CachedTower`. Not an attribute of the tower, or copies of it would have it too."""


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
        _, _, *rest = super(cached, self).__reduce_ex__(protocol)
        return (copyreg._reconstructor, (cls, object, None), *rest)  # type: ignore[attr-defined]

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
