"""`Planner`: what is known about a request before anything is computed, and whether a near answer may be served."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mmcache.calibration.base import Decision, Verdict
from mmcache.forks import Lock
from mmcache.lookup import Lookup, Make
from mmcache.model.errors import TierError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.semantic.pending import Pending, may_wait
from mmcache.semantic.populations import Learner, Populations
from mmcache.semantic.prompt import Identified
from mmcache.semantic.questions import Questions
from mmcache.semantic.settings import Semantic
from mmcache.semantic.shelves import Asked, Candidate

if TYPE_CHECKING:
    from mmcache.cache import Cache

MOST_TRIED = 4
"""Near answers that turn out to be gone, before the request is computed."""


@dataclass
class Plan:
    """A request on its way."""

    found: Identified
    look: Lookup
    """Of the exact key."""
    asked: Asked | None = None
    """None: hit exactly, or near answers are off or out of order."""
    learner: Learner | None = None
    candidate: Candidate | None = None
    decision: Decision | None = None
    """About the candidate."""
    near: Lookup | None = None
    """What is stored for the candidate: to be served, or compared."""
    follows: Pending | None = None
    """The candidate's computation, where it is under way, and its answer is to be served."""
    leads: Pending | None = None
    """This request's own computation, which others may wait for."""
    keeps: Asked | None = None
    """`asked`, to be kept at rest once it is answered."""

    @property
    def served(self) -> bool:
        """Whether the candidate's answer is to be served."""
        return self.decision is not None and self.decision.verdict is Verdict.SERVE

    @property
    def stored(self) -> Make | None:
        """Makes the near answer that is to be served; None where there is none, or it is under way."""
        return self.near.make if self.served and self.near is not None else None


class Planner:
    """Finds and decides. `lock` guards questions, populations and what is pending; it is never held while anything is
    embedded, computed or read."""

    def __init__(
        self, cache: Cache, semantic: Semantic, questions: Questions, populations: Populations, rng: random.Random
    ) -> None:
        self._cache, self._semantic, self._rng = cache, semantic, rng
        self.questions, self.populations = questions, populations
        self.lock = Lock()
        self.pending: dict[Key, Pending] = {}

    def plan(self, plan: Plan, *, blocking: bool) -> None:
        """Go on with a prompt that is not stored exactly. `blocking`: who waits stops a whole thread."""
        try:
            plan.asked = self.questions.asked(plan.found)
        except Exception as error:  # noqa: BLE001 - the user's embedding may raise anything; the prompt is computed
            self._cache.events.emit(Failed("semantic", f"no near lookup: {error!r}", plan.found.key))
            return
        for _ in range(MOST_TRIED):
            with self.lock:
                plan.learner = self._learner(plan)
                if plan.learner is None or not self._chosen(plan):
                    self._lead(plan)
                    return
                plan.follows = self.pending.get(plan.candidate.entry.key)  # type: ignore[union-attr]
                if plan.follows is not None:
                    self._decide_pending(plan, plan.follows, blocking)
                    return
            assert plan.candidate is not None
            plan.near = self._cache.answers.read(plan.candidate.entry.key)
            if plan.near.make is not None:
                with self.lock:
                    self._decide(plan, self._rng.random())
                    if not plan.served:
                        self._lead(plan)
                return
            self.forget(plan.candidate.entry.key)
        with self.lock:
            self._lead(plan)

    def _learner(self, plan: Plan) -> Learner | None:
        try:
            return self.populations.of(plan.found.scope, plan.found.kind)
        except TierError as error:
            self._cache.events.emit(Failed("semantic", str(error), plan.found.key))
            return None

    def _chosen(self, plan: Plan) -> bool:
        """Whether there is a stored question to decide about: the one that is likeliest answered alike."""
        assert plan.asked is not None
        candidates = self.questions.find(plan.found.scope, plan.asked)
        plan.candidate = candidates[0] if candidates else None
        return plan.candidate is not None

    def _decide(self, plan: Plan, draw: float) -> None:
        assert plan.candidate is not None
        assert plan.learner is not None
        shadow = self._cache.mode == "shadow"  # then all is compared: each is drawn for a check, with certainty
        plan.decision = plan.learner.calibration.decide(plan.candidate.likeness, 0.0 if shadow else draw)
        if shadow:
            plan.decision = replace(plan.decision, share=1.0)

    def _decide_pending(self, plan: Plan, pending: Pending, blocking: bool) -> None:
        """The same, where the candidate's answer is under way: who trusts it waits for it."""
        if not may_wait(pending, blocking=blocking):
            plan.candidate = plan.follows = None
            self._lead(plan)
            return
        self._decide(plan, pending.draw)
        assert plan.decision is not None
        if plan.decision.verdict is Verdict.CHECK:
            if pending.checked:  # one follower checks for all, or each would compute
                plan.decision = replace(plan.decision, verdict=Verdict.SERVE)
            pending.checked = True
        if not plan.served:
            plan.follows = None
            self._lead(plan)

    def _lead(self, plan: Plan) -> None:
        key = plan.found.key
        if key in self.pending:  # the same prompt, under way: single flight joins them
            return
        assert plan.asked is not None
        plan.keeps = self.questions.add(plan.found.scope, plan.asked)
        plan.leads = self.pending[key] = Pending(key, self._rng.random())

    def landed(self, plan: Plan, make: Callable[[], object]) -> None:
        """The answer that `plan` leads is there: who waits for it calls `make`."""
        if plan.leads is not None:
            self._end(plan.leads, make)

    def failed(self, plan: Plan) -> None:
        """There will be no answer: who waits for it computes."""
        if plan.leads is not None and not plan.leads.future.done():
            with self.lock:
                self.questions.forget_here([plan.leads.key])
            self._end(plan.leads, None)

    def joined(self, plan: Plan) -> None:
        """Another caller computes this very prompt's answer after all: who waits for it asks again."""
        if plan.leads is not None:
            self._end(plan.leads, None)

    def _end(self, pending: Pending, make: Make | None) -> None:
        with self.lock:
            if self.pending.get(pending.key) is pending:
                del self.pending[pending.key]
        if not pending.future.done():
            pending.future.set_result(make)

    def forget(self, key: Key) -> None:
        """The answer to a stored question is gone."""
        with self.lock:
            if key in self.pending:
                return
            self.questions.forget_here([key])
        try:
            self.questions.forget_at_rest([key])
        except TierError as error:
            self._cache.events.emit(Failed("semantic", str(error), key))
