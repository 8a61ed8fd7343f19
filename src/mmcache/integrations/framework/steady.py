"""`Steady`: something made of a component's configuration, made anew when the component was reconfigured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Steady(Generic[T]):
    """What `make()` gives, for as long as no attribute of `component` was replaced, and no list or dict in it changed.

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
        held = dict(getattr(self._component, "__dict__", None) or {})
        held |= getattr(self._component, "__pydantic_private__", None) or {}
        return [(name, v, repr(v) if isinstance(v, list | dict | set) else "") for name, v in held.items()]


def _same(before: list[tuple[str, Any, str]], now: list[tuple[str, Any, str]]) -> bool:
    return len(before) == len(now) and all(
        a[0] == b[0] and a[1] is b[1] and a[2] == b[2] for a, b in zip(before, now, strict=True)
    )
