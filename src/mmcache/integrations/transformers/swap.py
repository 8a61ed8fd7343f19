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
PLAIN = "_mmcache_plain"
"""Of a class made here: the class that it stands for."""


def plain_class(module: nn.Module) -> Any:
    """The class of `module`, whether it is cached or not."""
    kind = type(module)
    return kind.__dict__.get(PLAIN, kind)


@functools.cache
def swapped(cls: Any) -> Any:
    """The subclass of `cls` whose `forward` goes through the door of its instance, if it has one."""

    @functools.wraps(cls.forward)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        # First: inside of a tracer nothing else may be looked at.
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            return cls.forward(self, *args, **kwargs)  # as it is now: it may have been patched
        door = DOORS.get(self)
        if door is None:
            return cls.forward(self, *args, **kwargs)
        call = door._own if door._own is not None else functools.partial(cls.forward, self)
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
            PLAIN: cls,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
        },
    )
    return cached
