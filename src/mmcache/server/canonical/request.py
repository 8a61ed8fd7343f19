"""`Canonical`: what a request asks for, whatever way it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mmcache.keys.framing import framed

Form = Literal["json", "sse"]
"""How the answer comes: whole, or as server-sent events. Each is recorded by itself."""

Place = tuple[str | int, ...]
"""Where a part stands in a body: `("messages", 0, "content", 1)`."""

MOST_CHARACTERS = 512
"""Of a model's name."""


@dataclass(frozen=True, slots=True)
class Bypass:
    """The request may not be cached."""

    reason: str
    """Kebab-case: `not-deterministic`, `unknown-field`…"""


@dataclass(frozen=True, slots=True)
class Media:
    """A picture, sound, video or file, which is to be identified by its content."""

    place: Place
    part: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Canonical:
    """A request that may be cached."""

    model: str
    form: Form
    choices: int
    """Answers that must be there."""
    usage: bool
    """A stream must tell its usage."""
    tree: Any = field(repr=False)
    """All that may change the answer, in one order; a list `["media", n]` stands for the nth of `media`, which no list
    of the request can look like: lists of parts hold objects only."""
    media: tuple[Media, ...] = field(repr=False)
    most_tokens: int = 0
    """That an answer may have; 0 = the request does not say."""

    def key_bytes(self, identities: Sequence[bytes] = ()) -> bytes:
        """Equal exactly for requests that must get the same answer. identities: of `media`, in order.

        Raises `UnicodeEncodeError` for lone surrogates and `ValueError` for numbers that are none.
        """
        text = json.dumps(self.tree, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return framed("request", self.form.encode(), text.encode(), *identities)


class RefusedError(Exception):
    """Ends the reading of a request; becomes a `Bypass`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
