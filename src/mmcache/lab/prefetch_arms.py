"""The arms of the table `prefetch`: who prefetches, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from mmcache.lab.prefetch_rivals import Held, MakeGraph, Markov, Misled, NextPage, Popularity, Wrong
from mmcache.lab.prefetch_world import LEARNS, LabPrefetch, Outcome, World
from mmcache.lab.traces.sessions import Views
from mmcache.model.key import Key
from mmcache.prefetch.graph import BehaviourGraph, GraphSettings, Order

WRONG_SHARE = 0.2
"""Of the edges that are learned."""


@dataclass(frozen=True)
class Arm:
    """One way to run a stream of views."""

    name: str
    words: str
    graph: Callable[[Views, int], MakeGraph] | None = None
    """From the stream and a seed; None: the product's own."""
    prefetches: bool = True
    stops: bool = True
    """Whether the encoder can stop in the middle of a block."""

    def run(self, views: Views, percent: float, seed: int, learns: float = LEARNS) -> Outcome:
        """With memory for `percent` of all blocks."""
        graph = None if self.graph is None else self.graph(views, seed)
        prefetch = LabPrefetch(graph=graph) if self.prefetches else None
        return World(views, int(views.footprint * percent / 100), prefetch, stops=self.stops, learns=learns).run()


def _ordered(order: Order, views: Views, seed: int) -> MakeGraph:
    def make(settings: GraphSettings, held: Held) -> BehaviourGraph[Key]:
        return BehaviourGraph(replace(settings, order=order))

    return make


def _wrong(views: Views, seed: int) -> MakeGraph:
    learned = sum(len(view.blocks) for view in views.views[: int(LEARNS * len(views.views))])
    return lambda settings, held: Wrong(settings, WRONG_SHARE, learned, seed)


def _misled(views: Views, seed: int) -> MakeGraph:
    return lambda settings, held: Misled(settings, WRONG_SHARE, seed)


def _foreseen(views: Views, seed: int) -> MakeGraph:
    return lambda settings, held: NextPage(settings, views)


NONE = Arm("none", "no prefetching", prefetches=False)
OURS = Arm("behaviour", "behaviour graph")
WRONG = Arm("wrong", f"behaviour graph, {WRONG_SHARE:.0%} of its edges led elsewhere when it had learned", _wrong)
MISLED = Arm("misled", f"behaviour graph that learns {WRONG_SHARE:.0%} of its edges wrong for ever", _misled)
BY_PROBABILITY = Arm("by-probability", "behaviour graph, most probable first", partial(_ordered, "probability"))
MARKOV = Arm("markov", "Markov chain of order 1", lambda views, seed: Markov)
POPULARITY = Arm("popularity", "the most popular blocks", lambda views, seed: Popularity)
UNSTOPPABLE = Arm("unstoppable", "behaviour graph, and an encoder that cannot stop within a block", stops=False)
FORESEEN = Arm("foreseen", "each visitor's next page known beforehand (a bound)", _foreseen)

ARMS = (NONE, OURS, BY_PROBABILITY, MARKOV, POPULARITY, WRONG, MISLED, UNSTOPPABLE, FORESEEN)
