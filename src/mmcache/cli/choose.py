"""Which blocks a command means: by tenant, namespace, model, modality and age."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

from cyclopts import Parameter

from mmcache.model.clock import SystemClock
from mmcache.model.errors import SettingsError
from mmcache.tiers.base import Held

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_age(text: str) -> float:
    """`"90s"`, `"30m"`, `"12h"`, `"7d"` or `"2w"` in seconds. Raises `SettingsError`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip())
    if match is None:
        raise SettingsError(f'not an age: {text!r}; write "90s", "30m", "12h", "7d" or "2w"')
    return float(match[1]) * _SECONDS[match[2]]


@Parameter(name="*")
@dataclass(frozen=True)
class Choice:
    """Blocks that fit everything given."""

    tenant: Annotated[str | None, Parameter(help="Only this tenant's blocks.")] = None
    namespace: Annotated[str | None, Parameter(help="Only blocks of this namespace.")] = None
    model: Annotated[str | None, Parameter(help="Only blocks of this model version; `*` matches anything.")] = None
    modality: Annotated[str | None, Parameter(help="Only image, text, audio, video or tensor blocks.")] = None
    older_than: Annotated[str | None, Parameter(help="Only blocks stored longer ago than this: 90s, 30m, 12h, 7d.")] = (
        None
    )

    @property
    def everything(self) -> bool:
        """Whether nothing narrows the choice."""
        return self == Choice()

    def matcher(self, wall: float | None = None) -> Matcher:
        """The choice as a predicate, ages counted back from `wall` (Unix seconds; default: now)."""
        born_before = None
        if self.older_than is not None:
            born_before = (SystemClock().wall() if wall is None else wall) - parse_age(self.older_than)
        return Matcher(self, born_before)


@dataclass(frozen=True)
class Matcher:
    """A predicate over stored blocks."""

    choice: Choice
    born_before: float | None

    def __call__(self, held: Held) -> bool:
        choice = self.choice
        return (
            choice.tenant in (None, held.tenant)
            and choice.namespace in (None, held.namespace)
            and choice.modality in (None, held.modality)
            and (choice.model is None or fnmatchcase(held.model, choice.model))
            and (self.born_before is None or held.created < self.born_before)
        )


EVERYTHING = Choice()
