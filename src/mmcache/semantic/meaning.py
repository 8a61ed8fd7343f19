"""`Meaning`: the flow of `Cache.ask`. Exactly stored, or stored for a prompt that means the same, or computed.

    identify   every part of the prompt by itself → the exact key                     (prompt.py)
    exact      stored under it? Served like any block
    near       the nearest stored question: all that is exact equal, every picture and sound near enough
    decide     calibration: serve, serve but check, or abstain                        (planning.py)
    compute    single flight; then compare with the near answer, learn, keep, link    (learning.py)

A failure of anything but the model costs a near hit, never the request; where it is unknown what has changed since,
nothing stored is served.
"""

from __future__ import annotations

import inspect
import random
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mmcache.keys.content import identify
from mmcache.model.errors import MMCacheError, TierError
from mmcache.model.event import Failed, MissReason
from mmcache.model.signature import Signature
from mmcache.semantic.alias import Alias
from mmcache.semantic.learning import Learning
from mmcache.semantic.ledger import Ledger
from mmcache.semantic.options import AskOptions, SourceKind, check_options
from mmcache.semantic.pending import Pending, answering
from mmcache.semantic.planning import Plan, Planner
from mmcache.semantic.populations import Populations
from mmcache.semantic.prompt import Identified, Identifier, Prompt, source_id
from mmcache.semantic.questions import Questions
from mmcache.semantic.report import PopulationReport, report
from mmcache.semantic.settings import Reply, Semantic
from mmcache.semantic.sources import Sources
from mmcache.semantic.stream import Broadcast, Stream
from mmcache.semantic.streaming import Streaming

if TYPE_CHECKING:
    import asyncio

    from mmcache.cache import Cache

PATIENCE_SECONDS = 300.0
"""A follower that has waited this long for a near-equal prompt's answer computes its own."""


class Meaning:
    """Asks on behalf of one cache. `semantic=None`: exact hits only."""

    def __init__(
        self, cache: Cache, semantic: Semantic | None, ledger: Ledger, rng: random.Random | None = None
    ) -> None:
        self._cache, self._semantic, self._ledger = cache, semantic, ledger
        self._version, self._editions = ledger.version(), 0
        content = (semantic or Semantic()).content
        self._identifier = Identifier(
            cache.scopes, cache.memo, content, ledger.editions(), ledger.epoch(),
            tell=lambda why: cache.events.emit(Failed("semantic", why)), rows=cache.below.mix,
        )  # fmt: skip
        self.planner = None
        if semantic is not None:
            questions, populations = Questions(semantic, ledger), Populations(semantic, ledger)
            self.planner = Planner(cache, self._identifier, questions, populations, rng or random.Random())
        self._learning = Learning(cache, semantic, self.planner)
        self.sources = Sources(cache, ledger, self._identifier, self.planner, self._learning)
        self.streaming = Streaming(self)
        self._waiting: list[Pending] = []

    @classmethod
    def open(cls, cache: Cache, semantic: Semantic | None) -> Meaning:
        """With the ledger in the cache's folder. Raises `TierError`, `FormatVersionError`, `UnversionedModelError`."""
        ledger = Ledger(cache.root)
        if cache.root is None and cache.below.shared is not None:  # what it knows ends with it, the answers do not
            ledger.renew()
        return cls(cache, semantic, ledger)

    # Asking ---------------------------------------------------------------------------------------------------------

    def ask(self, prompt: Prompt, answer: Callable[[Prompt], Any], options: AskOptions) -> Reply:
        """See `Cache.ask`."""
        plan = self.plan(prompt, options, "value", thread=threading.get_ident(), blocking=True)
        if plan is None:
            return self.aside(_computing(None, self.canonical(prompt), answer), options)
        if plan.follows is not None and (make := self.follow(plan)) is not None:
            return self._served(plan, make())
        if (make := plan.stored) is not None:
            return self._served(plan, make())
        with self.leading(plan):
            return self._reply(plan, self.settle(plan, _computing(plan, plan.found.canonical, answer), options))

    async def ask_async(
        self, prompt: Prompt, answer: Callable[[Prompt], Any | Awaitable[Any]], options: AskOptions
    ) -> Reply:
        """See `AsyncCache.ask`."""
        import asyncio

        plan = await self.plan_async(prompt, options, "value")
        if plan is None:
            canonical = await asyncio.to_thread(self.canonical, prompt)
            return await self.aside_async(_computing(None, canonical, answer), options)
        if plan.follows is not None and (make := await self.follow_async(plan)) is not None:
            return self._served(plan, make())
        if (make := plan.stored) is not None:
            return self._served(plan, make())
        with self.leading(plan):
            canonical = await asyncio.to_thread(lambda: plan.found.canonical)
            return self._reply(plan, await self.settle_async(plan, _computing(plan, canonical, answer), options))

    def plan(self, prompt: Prompt, options: AskOptions, form: str, *, thread: int, blocking: bool) -> Plan | None:
        """What is known about a request that is computed on `thread`; None where the cache must step aside."""
        cache = self._cache
        check_options(options)
        cache.answers.check_open()
        if options.get("bypass", False) or cache.mode == "off":
            return None
        try:
            cache.below.check_heard()
            self._refresh()
            found = self._identify(prompt, options, form)
        except TierError as error:
            cache.events.emit(Failed("semantic", f"stepping aside, for it is not known what has changed: {error}"))
            return None
        if found is None:
            return None
        plan = Plan(found, cache.answers.find(found.key, settled=True))
        if self.planner is not None and plan.look.make is None:
            with self._quietly():
                self.planner.plan(plan, thread=thread, blocking=blocking)
        if plan.stored is None:
            if plan.decision is not None and plan.look.make is None:
                plan.look = replace(plan.look, reason=MissReason.ABSTAINED, detail=plan.decision.reason)
            cache.answers.count(found.key, plan.look, "exact" if plan.decision is None else "near")
        return plan

    async def plan_async(self, prompt: Prompt, options: AskOptions, form: str) -> Plan | None:
        """The async twin of `plan`, in a thread. Who is cancelled meanwhile leaves nobody waiting."""
        import asyncio

        thread = threading.get_ident()
        in_thread = asyncio.to_thread(self.plan, prompt, options, form, thread=thread, blocking=False)
        planning = asyncio.ensure_future(in_thread)
        try:
            return await asyncio.shield(planning)
        except asyncio.CancelledError:
            planning.add_done_callback(self._give_up)
            raise

    def _give_up(self, planning: asyncio.Future[Plan | None]) -> None:
        if not planning.cancelled() and planning.exception() is None and (plan := planning.result()) is not None:
            self.failed(plan)

    def failed(self, plan: Plan) -> None:
        """Nothing will be computed for `plan`."""
        if self.planner is not None:
            self.planner.failed(plan)

    def landed(self, plan: Plan) -> None:
        """Another caller computes the very same: nobody need wait for this one."""
        if self.planner is not None:
            self.planner.landed(plan, None)

    def canonical(self, prompt: Prompt) -> Prompt:
        """What the model is given where nothing is looked up, too. Raises `InvalidInputError`."""
        options, salt = self._identifier.options, bytes(32)
        return replace(
            prompt,
            text=identify(prompt.text, "text", salt=salt).canonical(),
            pictures=[identify(part, "image", salt=salt, options=options).canonical() for part in prompt.pictures],
            sounds=[identify(part, "audio", salt=salt, options=options).canonical() for part in prompt.sounds],
        )

    def _refresh(self) -> None:
        """Learn what other processes have changed since the last request. Raises `TierError`."""
        version = self._ledger.version()
        if version == self._version:
            return
        identifier, epoch = self._identifier, self._ledger.epoch()
        if epoch != identifier.epoch:  # the ledger was lost or damaged, and begun anew
            identifier.epoch, self._editions = epoch, 0
            identifier.editions.clear()
        self._editions, changed = self._ledger.editions_since(self._editions)
        identifier.editions.update(changed)
        if self.planner is not None:
            with self.planner.lock:
                self.planner.questions.refresh()
                self.planner.populations.refresh()
        self._version = version

    def _identify(self, prompt: Prompt, options: AskOptions, form: str) -> Identified | None:
        model, cache = options["model"], self._cache
        if isinstance(model, Alias):
            try:
                signature, name = model.signature(cache.clock.monotonic()), model.name
            except Exception as error:
                raise TierError(f"cannot say what {model.name!r} stands for: {error!r}") from error
        else:
            signature = Signature.of(model)
            name = signature.model_version
        tenant, namespace = self._realm(options.get("tenant"), options.get("namespace"))
        signature = replace(signature, modality="answer")
        return self._identifier.identify(prompt, signature, tenant, namespace, alias=name, form=form)

    def _realm(self, tenant: str | None, namespace: str | None) -> tuple[str, str]:
        cache = self._cache
        return cache.tenant if tenant is None else tenant, cache.namespace if namespace is None else namespace

    # Waiting and computing ------------------------------------------------------------------------------------------

    def waiting(self) -> list[Pending]:
        """What near-equal prompts are waiting for, once for each that waits."""
        return list(self._waiting)

    def follow(self, plan: Plan) -> Callable[[], Any] | None:
        """Wait for a near-equal prompt's answer; None where there is none."""
        with self._following(plan) as pending:
            try:
                make: Callable[[], Any] | None = pending.future.result(PATIENCE_SECONDS)
            except TimeoutError:
                make = None
        return self._came(plan, make)

    async def follow_async(self, plan: Plan) -> Callable[[], Any] | None:
        """The async twin of `follow`."""
        import asyncio

        with self._following(plan) as pending:
            try:
                landed = asyncio.shield(asyncio.wrap_future(pending.future))
                make: Callable[[], Any] | None = await asyncio.wait_for(landed, PATIENCE_SECONDS)
            except TimeoutError:
                make = None
        return self._came(plan, make)

    @contextmanager
    def _following(self, plan: Plan) -> Iterator[Pending]:
        assert plan.follows is not None
        self._waiting.append(plan.follows)
        try:
            yield plan.follows
        except BaseException:
            self._came(plan, None)
            raise
        finally:
            self._waiting.remove(plan.follows)

    def _came(self, plan: Plan, make: Callable[[], Any] | None) -> Callable[[], Any] | None:
        if make is None and self.planner is not None:
            self.planner.withdraw(plan)
        return make

    @contextmanager
    def leading(self, plan: Plan) -> Iterator[None]:
        """Whoever waits for this request learns how it ends."""
        try:
            yield
        except BaseException:
            self.failed(plan)
            raise

    def settle(self, plan: Plan, compute: Callable[[], Any], options: AskOptions) -> Any:
        """The answer: an exact hit, or computed and learned from."""
        value = self._cache.answers.settle(plan.found.key, plan.look, compute, ttl=options.get("ttl"))
        self._computed(plan, value, options)
        return value

    async def settle_async(self, plan: Plan, compute: Callable[[], Any], options: AskOptions) -> Any:
        """The async twin of `settle`."""
        import asyncio

        value = await self._cache.answers.settle_async(plan.found.key, plan.look, compute, ttl=options.get("ttl"))
        await asyncio.to_thread(self._computed, plan, value, options)
        return value

    def served_stream(self, plan: Plan, chunks: Broadcast) -> Stream:
        """The chunks of a near prompt's answer."""
        reply = self._served(plan, None)
        return Stream(chunks, "near", reply.decision, reply.stored_text)

    def computed_stream(self, plan: Plan, chunks: Broadcast) -> Stream:
        """Chunks of an exact hit, or that are being computed."""
        reply = self._reply(plan, None)
        return Stream(chunks, reply.source, reply.decision, reply.stored_text)

    def _served(self, plan: Plan, value: Any) -> Reply:
        assert plan.candidate is not None
        assert plan.decision is not None
        assert self.planner is not None
        entry = plan.candidate.entry
        if plan.stored is not None and plan.near is not None:
            confidence, began = plan.decision.confidence, plan.look.began
            self._cache.answers.count_near(plan.found.key, entry.key, plan.near, confidence, began)
        with self.planner.lock:
            self.planner.questions.used(entry.key)
        self.count(plan, "near")
        return Reply(value, "near", entry.key, plan.decision, entry.text)

    def _computed(self, plan: Plan, value: Any, options: AskOptions) -> None:
        """An answer was computed: hand it to who waits, learn from it, link it; or drop it, if it is old already."""
        found, cache = plan.found, self._cache
        self.count(plan, "computed" if plan.ran or plan.look.make is None else "exact")
        if plan.look.make is not None and not plan.ran:
            return
        moved = isinstance(options["model"], Alias) and self.sources.moved(options["model"], found, value)
        if self.planner is not None:  # what is not stored, for it was refused or has changed, is not shared either
            self.planner.landed(plan, None if moved else cache.answers.read(found.key).make)
        self._learning.learn(plan, value)
        self._learning.link(found)
        if moved or self._identifier.changed(found.sources) != found.editions:
            cache.invalidate(found.key)

    def _reply(self, plan: Plan, value: Any) -> Reply:
        exact = plan.look.make is not None and not plan.ran
        stored = plan.candidate.entry.text if plan.candidate is not None else None
        return Reply(value, "exact" if exact else "computed", plan.found.key, plan.decision, stored)

    def aside(self, compute: Callable[[], Any], options: AskOptions) -> Reply:
        key = self._learning.source_key(bytes(16), *self._realm(options.get("tenant"), options.get("namespace")))
        return Reply(self._cache.answers.answer(key, compute, bypass=True), "computed", None)

    async def aside_async(self, compute: Callable[[], Any], options: AskOptions) -> Reply:
        key = self._learning.source_key(bytes(16), *self._realm(options.get("tenant"), options.get("namespace")))
        return Reply(await self._cache.answers.answer_async(key, compute, bypass=True), "computed", None)

    def count(self, plan: Plan, how: str) -> None:
        """For the report: `exact`, `near` or `computed`."""
        planner = self.planner
        if planner is None:
            return
        with self._quietly():
            with planner.lock:
                learner = plan.learner or planner.populations.of(plan.found.scope, plan.found.kind)
            planner.populations.count(learner, "asked", how)

    def changed(self, kind: SourceKind, name: Any, *, tenant: str | None = None, namespace: str | None = None) -> int:
        """See `Cache.changed`. Raises `TierError` where it cannot be made durable."""
        self._cache.answers.check_open()
        self._refresh()
        return self.sources.changed(kind, name, *self._realm(tenant, namespace))

    def editions(
        self, sources: Sequence[tuple[SourceKind, str]], *, tenant: str | None = None, namespace: str | None = None
    ) -> bytes:
        """Which of `sources` (`document`, `tool`, `prompt` or `model`, by name) have changed, and how often: what a key
        must contain, for what rests on them to be out of reach once `changed` says so. Raises `TierError` where that is
        not known: then nothing may be looked up."""
        self._cache.below.check_heard()
        self._refresh()
        salt = self._cache.scopes.require(self._learning.source_key(bytes(16), *self._realm(tenant, namespace))).salt
        return self._identifier.changed([source_id(salt, *one) for one in sources]) + self._identifier.epoch

    # Sight ----------------------------------------------------------------------------------------------------------

    def report(self) -> list[PopulationReport]:
        """Hits, and measured wrong hits, by tenant, model and kind of prompt."""
        self.flush()
        return report(self._ledger)

    def flush(self) -> None:
        """Write down what is counted and learned."""
        if self.planner is not None:
            with self._quietly():
                self.planner.populations.flush()

    def close(self) -> None:
        """Idempotent."""
        self.flush()
        self._learning.close()
        self._ledger.close()

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        try:
            yield
        except MMCacheError as error:
            self._cache.events.emit(Failed("semantic", str(error)))


def _computing(plan: Plan | None, canonical: Prompt, answer: Callable[[Prompt], Any]) -> Callable[[], Any]:
    """`answer` of the canonical prompt; it runs as an answer, also where it is awaited later."""

    async def awaited(found: Awaitable[Any]) -> Any:
        with answering():
            return await found

    def compute() -> Any:
        if plan is not None:
            plan.ran = True
        with answering():
            found = answer(canonical)
        return awaited(found) if inspect.isawaitable(found) else found

    async def compute_async() -> Any:
        return await compute()

    return compute_async if inspect.iscoroutinefunction(answer) else compute
