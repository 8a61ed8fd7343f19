"""`Bringing`: one block into memory: from a lower tier, else by computing it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mmcache.model.key import Key
from mmcache.prefetch.work import Cancelled, Work
from mmcache.visits import Again

if TYPE_CHECKING:
    from mmcache.answer import Answers

Kind = Literal["brought", "there", "nowhere", "strayed", "failed", "stopped", "later"]

HEAD = 1024
"""Bytes of a block besides its arrays, about: what has none is not free."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went. `there`: somebody else brought it. `nowhere`: no tier has it, and nobody knows how to compute it.
    `strayed`: what was computed has another key now."""

    kind: Kind
    size: int = 0
    """Bytes."""
    computed: bool = False
    """Whether the computation began."""
    error: BaseException = field(default_factory=Cancelled)


class Bringing:
    """Acts through the cache only."""

    def __init__(self, answers: Answers, lower: bool) -> None:
        """lower: whether there are tiers below memory."""
        self._answers, self.lower = answers, lower

    def there(self, key: Key) -> int:
        """Bytes of `key` in memory, its header guessed; 0: it is not there."""
        found = self._answers.resident(key).frame
        return 0 if found is None else HEAD + found.size

    def bring(self, work: Work, again: Again | None, may_compute: Callable[[], bool]) -> Outcome:
        """may_compute: asked, and the budget charged, before a computation begins."""
        key, computed = work.task.key, False
        try:
            if self.there(key):
                return Outcome("there")
            if work.asked(work):
                return Outcome("stopped")
            if self.lower:
                self._answers.heat([key])
                if size := self.there(key):
                    return Outcome("brought", size)
            if again is None:
                return Outcome("nowhere")
            if work.asked(work):
                return Outcome("stopped")
            if not may_compute():
                return Outcome("later")
            computed = True
            size = again(work.ttl)
            held = self.there(key)
            if held:  # which it was not before
                return Outcome("brought", held, True)
            return Outcome("strayed", size, True) if size else Outcome("later", computed=True)
        except Cancelled:
            return Outcome("stopped", computed=computed)
        except Exception as error:  # noqa: BLE001 - a model may raise anything
            return Outcome("failed", computed=computed, error=error)
