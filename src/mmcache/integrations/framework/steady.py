"""`Steady`: something made of a component's configuration, made anew when the component was reconfigured."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Generic, TypeVar

from mmcache.integrations.framework.described import delivers

T = TypeVar("T")


class Steady(Generic[T]):
    """What `make()` gives, for as long as no attribute of `component`, nor of what it holds, was replaced, and no list
    or dict in it changed. Deeper changes are not noticed: make a new component then.

    Describing a component takes as long as many hits; noticing that it is as it was takes microseconds.
    """

    def __init__(self, component: Any, make: Callable[[], T]) -> None:
        self._component, self._make = component, make
        self._seen = self._look()
        self._value = make()

    def value(self) -> T:
        """Raises what `make` raises."""
        now = self._look()
        if not _same(self._seen, now):
            self._value, self._seen = self._make(), now
        return self._value

    def _look(self) -> list[tuple[str, Any, str]]:
        held = _held(self._component)
        inner = [part for name, part in held.items() if not delivers(name, part)]
        found = [held, *map(_held, inner)]
        return [(n, v, repr(v) if isinstance(v, list | dict | set) else "") for one in found for n, v in one.items()]


def _held(component: Any) -> dict[str, Any]:
    if isinstance(component, type | ModuleType) or callable(getattr(component, "modules", None)):  # `torch.nn.Module`
        return {}
    held = dict(getattr(component, "__dict__", None) or {})
    return held | (getattr(component, "__pydantic_private__", None) or {})


def _same(before: list[tuple[str, Any, str]], now: list[tuple[str, Any, str]]) -> bool:
    return len(before) == len(now) and all(
        a[0] == b[0] and a[1] is b[1] and a[2] == b[2] for a, b in zip(before, now, strict=True)
    )
