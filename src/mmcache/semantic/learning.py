"""`Learning`: what follows from a computed answer. Was the near one right? What must be found, and dropped, later?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmcache.calibration.base import Verdict
from mmcache.lookup import Make
from mmcache.model.errors import MMCacheError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.semantic.features import Features
from mmcache.semantic.planning import Plan, Planner
from mmcache.semantic.prompt import Identified
from mmcache.semantic.settings import Semantic

if TYPE_CHECKING:
    from mmcache.cache import Cache

_SOURCES = Signature(function="mmcache.source", modality="source")


class Learning:
    """For one cache. No method raises for what a plug-in, a judge or the ledger does."""

    def __init__(self, cache: Cache, semantic: Semantic | None, planner: Planner | None) -> None:
        self._cache, self._semantic, self._planner = cache, semantic, planner
        if semantic is not None:
            self._features = Features(cache)
            self._embedder = semantic.embedder_signature.digest.hex()

    def learn(self, plan: Plan, value: Any) -> None:
        """`value` was computed for `plan`: compare it with the near answer, if there was one, and remember both."""
        planner = self._planner
        if planner is None or plan.asked is None:
            return
        self._features.offer("text", plan.asked.entry.vector, self._embedder)
        for sketch in plan.asked.pictures:
            if sketch is not None:
                self._features.offer("image", sketch.vector, "sketch")
        if plan.near is not None:
            self._compare(planner, plan, plan.near.make, value)
        elif plan.pending is not None:  # under way: compared as soon as it is there
            plan.pending.future.add_done_callback(lambda done: self._compare(planner, plan, done.result(), value))
        if plan.leads is None:
            planner.take_over(plan)
        if plan.keeps is None:
            return
        try:
            if self._cache.answers.read(plan.found.key).make is None:  # refused, or invalidated meanwhile
                with planner.lock:
                    planner.questions.forget_here([plan.found.key])
            else:
                planner.questions.keep(plan.found.scope, plan.keeps)
        except MMCacheError as error:
            self._failed(plan, str(error))

    def _compare(self, planner: Planner, plan: Plan, make: Make | None, value: Any) -> None:
        if make is None or plan.candidate is None or plan.decision is None or plan.learner is None:
            return
        assert self._semantic is not None
        try:
            right = self._semantic.judge(_whole(plan, make()), _whole(plan, value))
        except Exception as error:  # noqa: BLE001 - a user's judge may raise anything; then nothing is learned
            self._failed(plan, f"the judge raised {error!r}")
            return
        if right is None:
            return
        came_out = "right" if right else "wrong"
        checked = (f"checked_{came_out}",) if plan.decision.verdict is Verdict.CHECK else ()
        try:
            planner.populations.judged(plan.learner, plan.candidate.likeness, plan.decision, bool(right))
            with planner.lock:
                planner.populations.catch_up(plan.learner)
            planner.populations.count(plan.learner, f"compared_{came_out}", *checked)
        except MMCacheError as error:
            self._failed(plan, str(error))

    def close(self) -> None:
        """Idempotent."""
        if self._semantic is not None:
            self._features.close()

    def link(self, found: Identified) -> None:
        """What the answer rests on, so that it goes when one of these changes."""
        scope = found.scope
        keys = [self.source_key(source, scope.tenant, scope.namespace) for source in found.sources]
        try:
            self._cache.link(found.key, keys)
        except MMCacheError as error:
            self._cache.events.emit(Failed("semantic", f"not linked: {error}", found.key))

    def source_key(self, source: bytes, tenant: str, namespace: str) -> Key:
        """The block key that stands for a source; nothing is stored under it."""
        return Key(self._cache.scopes.of(_SOURCES, tenant, namespace).digest, source)

    def _failed(self, plan: Plan, detail: str) -> None:
        self._cache.events.emit(Failed("semantic", detail, plan.found.key))


def _whole(plan: Plan, value: Any) -> Any:
    """A streamed text in one piece: where it was cut does not matter."""
    if plan.found.form != "stream" or not all(isinstance(chunk, str) for chunk in value):
        return value
    return "".join(value)
