"""How far a scaling is, from where it began. Pure: what was known is passed in, and what is known now comes back.

A look tells what is left, not where it began; so the controller keeps one `Way` from turn to turn. One that starts anew
in the middle begins at 0, with what is left then.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmcache.scale.status import Phase, Plan, Progress

_BEGINS = frozenset({Phase.SCALING_OUT, Phase.SCALING_IN})
_ENDS = frozenset({Phase.STEADY, Phase.BLOCKED, Phase.UPGRADING, Phase.DRAINING})


@dataclass(frozen=True)
class Way:
    """To so many shards."""

    shards: int
    progress: Progress


def further(way: Way | None, plan: Plan, shards: int) -> Way | None:
    """After one more look, of which `plan` was made for `shards`; None: no scaling is under way.

    As long as the aim is the same, `moved` never falls: where slots have to go back, `total` grows. What is repaired
    meanwhile belongs to it.
    """
    if way is not None and (way.shards != shards or plan.phase in _ENDS):
        way = None
    if plan.left is None:
        return way
    if way is None:
        return Way(shards, Progress(0, plan.left)) if plan.phase in _BEGINS and plan.left else None
    moved = max(way.progress.moved, way.progress.total - plan.left)
    return Way(shards, Progress(moved, moved + plan.left))
