"""Plans in front of a cache's lookups, as they would be in the product: what table `plans` measures."""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.answer import Answers
from mmcache.lab.plans_recurring import Plans
from mmcache.lookup import Lookup
from mmcache.model.key import Key
from mmcache.observing import Strategy
from mmcache.visits import Again


def wire(answers: Answers, plans: Plans | None) -> None:
    """All that `answers` looks up goes to `plans` first; None = no more."""
    vars(answers).pop("look_up", None)
    if plans is None:
        return
    general, asked = answers.look_up, plans.look_up

    def look_up(
        keys: Sequence[Key], *, settled: bool = False, strategy: Strategy = "exact", again: Sequence[Again | None] = ()
    ) -> list[Lookup]:
        if answers.observer is None and answers.prefetcher is None and answers.mode != "off" and strategy == "exact":
            looks = asked(keys)
            if looks is not None:
                return looks
        return general(keys, settled=settled, strategy=strategy, again=again)

    vars(answers)["look_up"] = look_up
