"""`Learning`: what follows from a computed answer. Was the near one right? What must be found, and dropped, later?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmcache.calibration.base import Verdict
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
        if planner is None or plan.asked is None or plan.leads is None:
            return
        self._features.offer("text", plan.asked.entry.vector, self._embedder)
        for sketch in plan.asked.pictures:
            if sketch is not None:
                self._features.offer("image", sketch.vector, "sketch")
        try:
            self._compare(planner, plan, value)
            with planner.lock:
                if self._cache.answers.read(plan.found.key).make is None:  # refused, or invalidated meanwhile
                    planner.questions.forget([plan.found.key], at_rest=False)
                else:
                    planner.questions.keep(plan.found.scope, plan.asked)
        except MMCacheError as error:
            self._failed(plan, str(error))

    def _compare(self, planner: Planner, plan: Plan, value: Any) -> None:
        if plan.candidate is None or plan.decision is None or plan.learner is None or self._semantic is None:
            return
        stored = plan.near or self._cache.answers.read(plan.candidate.entry.key)
        if stored.make is None:  # it was under way, and is not there yet
            return
        try:
            right = self._semantic.judge(stored.make(), value)
        except Exception as error:  # noqa: BLE001 - a user's judge may raise anything; then nothing is learned
            self._failed(plan, f"the judge raised {error!r}")
            return
        if right is None:
            return
        with planner.lock:
            planner.populations.learn(plan.learner, plan.candidate.likeness, plan.decision, bool(right))
            checked = plan.decision.verdict is Verdict.CHECK
            names = [f"compared_{'right' if right else 'wrong'}"]
            if checked:
                names.append(f"checked_{'right' if right else 'wrong'}")
            planner.populations.count(plan.learner, *names)

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
