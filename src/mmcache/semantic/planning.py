"""`Planner`: what is known about a request before anything is computed, and whether a near answer may be served."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mmcache import forks
from mmcache.calibration.base import Decision, Verdict
from mmcache.forks import Lock
from mmcache.lookup import Lookup, Make
from mmcache.model.errors import TierError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.semantic.pending import Pending, may_wait
from mmcache.semantic.populations import Learner, Populations
from mmcache.semantic.prompt import Identified, Identifier, answer_key
from mmcache.semantic.questions import Questions
from mmcache.semantic.shelves import Asked, Candidate, Entry

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
    pending: Pending | None = None
    """The candidate's computation, where it is under way."""
    follows: Pending | None = None
    """The same, where its answer is to be served."""
    leads: Pending | None = None
    """This request's own computation, which others may wait for."""
    keeps: Asked | None = None
    """`asked`, to be kept at rest once it is answered."""
    ran: bool = False
    """The model was asked, by this very request."""

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

    fork_order = 0

    def __init__(
        self, cache: Cache, identifier: Identifier, questions: Questions, populations: Populations, rng: random.Random
    ) -> None:
        self._cache, self._rng = cache, rng
        self.questions, self.populations = questions, populations
        self._identifier = identifier
        self.lock = Lock()
        self.pending: dict[Key, Pending] = {}
        forks.join(self)

    def before_fork(self) -> None:
        """See `forks`."""

    def after_fork(self, child: bool) -> None:
        """A child has none of its parent's threads, so nothing under way."""
        if child:
            self.pending = {}

    def plan(self, plan: Plan, *, thread: int, blocking: bool) -> None:
        """Go on with a prompt that is not stored exactly. `thread` computes it; `blocking`: who waits stops it."""
        try:
            plan.asked = self.questions.asked(plan.found)
        except Exception as error:  # noqa: BLE001 - the user's embedding may raise anything; the prompt is computed
            self._cache.events.emit(Failed("semantic", f"no near lookup: {error!r}", plan.found.key))
            return
        for _ in range(MOST_TRIED):
            with self.lock:
                plan.learner = self._learner(plan)
                if plan.learner is None or not self._chosen(plan):
                    self._lead(plan, thread)
                    return
                assert plan.candidate is not None
                plan.pending = self.pending.get(plan.candidate.entry.key)
                if plan.pending is not None:
                    self._decide_pending(plan, plan.pending, thread, blocking)
                    return
            plan.near = self._cache.answers.read(plan.candidate.entry.key)
            if plan.near.make is not None:
                with self.lock:
                    self._decide(plan, self._rng.random())
                    if not plan.served:
                        self._lead(plan, thread)
                return
            self.forget(plan.candidate.entry.key)
        plan.candidate = plan.near = None
        with self.lock:
            self._lead(plan, thread)

    def _learner(self, plan: Plan) -> Learner | None:
        try:
            return self.populations.of(plan.found.scope, plan.found.kind)
        except TierError as error:
            self._cache.events.emit(Failed("semantic", str(error), plan.found.key))
            return None

    def _chosen(self, plan: Plan) -> bool:
        """Whether there is a stored question to decide about: the nearest. (The one that calibration is surest of is no
        better: that favours wordings that nothing is known of yet, and a quarter of the hits is left.)"""
        assert plan.asked is not None
        plan.candidate = None
        for candidate in self.questions.find(plan.found.scope, plan.asked):
            if self._believed(plan.found, candidate.entry):
                plan.candidate = candidate
                break
            self.questions.forget_here([candidate.entry.key])
        return plan.candidate is not None

    def _believed(self, found: Identified, entry: Entry) -> bool:
        """Whether an entry's parts give its key, now: no other's record, and none of its pictures has changed."""
        salt, media = found.scope.salt, (*entry.pictures, *entry.sounds)
        editions = self._identifier.media_editions(salt, entry.pictures, entry.sounds)
        return entry.key == answer_key(found.scope.digest, salt, entry.exact, entry.words, media, editions)

    def _decide(self, plan: Plan, draw: float) -> None:
        assert plan.candidate is not None
        assert plan.learner is not None
        shadow = self._cache.mode == "shadow"  # then all is compared: each is drawn for a check, with certainty
        plan.decision = plan.learner.calibration.decide(plan.candidate.likeness, 0.0 if shadow else draw)
        if shadow:
            plan.decision = replace(plan.decision, share=1.0)

    def _decide_pending(self, plan: Plan, pending: Pending, thread: int, blocking: bool) -> None:
        """The same, where the candidate's answer is under way: who trusts it waits for it, who does not compares."""
        if may_wait(pending, blocking=blocking):
            self._decide(plan, self._rng.random())
            if plan.served:
                plan.follows = pending
                return
        else:
            plan.candidate = plan.pending = None
        self._lead(plan, thread)

    def _lead(self, plan: Plan, thread: int) -> None:
        key = plan.found.key
        if key in self.pending:  # the same prompt, under way: single flight joins them
            return
        assert plan.asked is not None
        plan.keeps = self.questions.add(plan.found.scope, plan.asked)
        plan.leads = self.pending[key] = Pending(key, thread)

    def take_over(self, plan: Plan) -> None:
        """Who led this very prompt gave up, and `plan` computed it: it is to be kept all the same."""
        with self.lock:
            key = plan.found.key
            if plan.asked is not None and key not in self.pending and self.questions.entry(key) is None:
                plan.keeps = self.questions.add(plan.found.scope, plan.asked)

    def withdraw(self, plan: Plan) -> None:
        """The answer that `plan` waited for, and was to be served, did not come."""
        with self.lock:
            if plan.served and plan.decision is not None and plan.learner is not None:
                plan.learner.calibration.withdraw(plan.decision)
                plan.decision = replace(plan.decision, verdict=Verdict.ABSTAIN)

    def landed(self, plan: Plan, make: Make | None) -> None:
        """The answer that `plan` leads is there: who waits for it calls `make`, or computes where that is None."""
        if plan.leads is not None:
            self._end(plan.leads, make)

    def failed(self, plan: Plan) -> None:
        """There will be no answer: who waits for it computes."""
        if plan.leads is not None and self._end(plan.leads, None):
            with self.lock:
                self.questions.forget_here([plan.leads.key])

    def _end(self, pending: Pending, make: Make | None) -> bool:
        """Whether it was under way until now."""
        with self.lock:
            if self.pending.get(pending.key) is not pending:
                return False
            del self.pending[pending.key]
        pending.future.set_result(make)
        return True

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
