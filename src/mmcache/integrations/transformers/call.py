"""One call that the cache takes: what is stored, and the tower for what is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from mmcache.integrations.transformers.aside import Aside
from mmcache.integrations.transformers.blocks import Block, put_together, take_apart
from mmcache.integrations.transformers.layouts import Picture
from mmcache.integrations.transformers.watch import Watch
from mmcache.model.key import Key

if TYPE_CHECKING:
    from mmcache.integrations.transformers.door import CachedTower
    from mmcache.scopes import Scope

Forward = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One picture of a call, identified."""

    key: Key
    scope: Scope
    place: int


class Run:
    """One call that the cache takes."""

    def __init__(
        self,
        door: CachedTower,
        tower: nn.Module,
        call: Forward,
        arguments: dict[str, Any],
        pictures: list[Picture],
        wanted: list[Wanted],
        watch: Watch,
        looking: float,
    ) -> None:
        self.door, self.tower, self.call = door, tower, call
        self.arguments, self.pictures, self.wanted, self.watch, self.looking = (
            arguments, pictures, wanted, watch, looking
        )  # fmt: skip
        self.whole: Any = None
        """The tower's own output for the whole call, where it was asked for that."""
        self.raised: Exception | None = None
        self._computed = 0
        self._computing = 0.0

    def output(self) -> Any:
        """From the cache, or the tower. Raises what the tower raises, and whatever goes wrong with the cache."""
        door, started = self.door, time.perf_counter()
        blocks: list[Block] = door._cache.answers.answer_many(self.wanted, self._compute)
        if self.whole is not None and not self.wanted[0].scope.chain.lossy_label:
            output = self.whole
        else:
            assert door._device is not None
            output = put_together(blocks, door._layout, door._device, door._class.__module__)
        door._count(len(self.wanted), self._computed)
        self._weigh(self.looking + time.perf_counter() - started - self._computing)
        return output

    def _compute(self, missing: Sequence[Wanted]) -> list[Block]:
        places = [one.place for one in missing]
        alone = self.door._equal == "exact" and len(self.pictures) > 1
        blocks: list[Block] = []
        for some in [[place] for place in places] if alone else [places]:
            blocks += self._run(some)
        if not self.watch.same(self.tower):
            raise Aside("racing")
        return blocks

    def _run(self, places: list[int]) -> list[Block]:
        layout, everything = self.door._layout, places == list(range(len(self.pictures)))
        arguments = self.arguments if everything else layout.some(self.arguments, self.pictures, places)
        started = time.perf_counter()
        try:
            output = self.call(**arguments)
        except Exception as error:
            self.raised = error
            raise
        self._computing += time.perf_counter() - started
        self._computed += len(places)
        if everything:
            self.whole = output
        return take_apart(output, layout, [self.pictures[place] for place in places])

    def _weigh(self, looking: float) -> None:
        door = self.door
        if self._computed:
            door._seconds = self._computing / self._computed
        guard, count = door._guard, len(self.wanted)
        if guard is not None and door._seconds and guard.observe(looking / count, door._seconds):
            door._note("guard")
