"""Routes whose request is many small ones: each item has a block of its own, and only those that miss go upstream.

What is promised: an answer is what the upstream gives for the whole batch, but for `usage`, which tells what the
upstream counted for this request: tokens of hits are in `saved_tokens`, never billed twice. Nothing is stored of an
answer that is not exactly what the protocol says. Where stored and new parts do not fit each other (a model was
exchanged under its name), all of it is asked for anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from mmcache.lookup import Lookup
from mmcache.model.errors import ProxyError
from mmcache.model.event import MissReason
from mmcache.model.key import Key
from mmcache.scopes import Scope
from mmcache.server.answers import throw_away
from mmcache.server.answers_stored import forbids
from mmcache.server.batch_sending import LARGE, Body, Odd, Read, Received, TooLargeError, apart, passed_on, received
from mmcache.server.exchange import Answered, Asked, BypassedError, Headers, Proxy, Verdict
from mmcache.server.memoised import Memo

Outcome = Literal["hit", "miss", "partial"]
Value = tuple[Any, ...]
"""What is stored of an item; immutable all through, so that hits share one object. Ends with tokens (-1 = unknown:
only the sum of a batch is told) and the model, as the answer named it."""
JSON = [(b"content-type", b"application/json")]
END_SECONDS = 5.0
_FAULTS = frozenset({400, 413, 422})
EMPTY = {"prompt_tokens": 0, "total_tokens": 0}


@dataclass(slots=True)
class Item:
    """One key of a batch; see `answer.Wanted`."""

    key: Key
    scope: Scope
    place: int
    """Where it stands first."""


@dataclass
class Batch:
    """A request, taken apart."""

    model: str
    scope: Scope
    keys: list[Key]
    """One an item, in order; equal ones are equal items."""
    original: Body

    def body(self, places: Sequence[int]) -> Body:
        """The request for the items at `places` alone; `original` where those are all."""
        raise NotImplementedError

    def read(self, body: bytes, places: Sequence[int]) -> Read:
        """The values in the answer to `body(places)`. Raises `Odd`."""
        raise NotImplementedError

    def assemble(self, values: Sequence[Value], envelope: Mapping[str, Any], usage: Any) -> bytes:
        """The answer with `values`, one a place. envelope: of the answer to a part of it; empty = all was stored."""
        raise NotImplementedError

    def fit(self, values: Sequence[Value]) -> bool:
        """Whether these may stand in one answer: of one model."""
        return len({value[-1] for value in values}) <= 1

    def same(self, stored: Value, computed: Value) -> tuple[bool, float]:
        """Whether they are equal, and how alike they are (1 = equal)."""
        raise NotImplementedError

    def items(self) -> dict[Key, Item]:
        """Each key once, in the order of the request."""
        found: dict[Key, Item] = {}
        for place, key in enumerate(self.keys):
            if key not in found:
                found[key] = Item(key, self.scope, place)
        return found


@dataclass
class State:
    """What is kept between requests."""

    memo: Memo = field(default_factory=Memo)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @staticmethod
    def of(proxy: Proxy) -> State:
        """The proxy's."""
        found: State | None = proxy.kept.get("batches")
        if found is None:
            found = proxy.kept["batches"] = State()
            proxy.closers.append(partial(_ended, found.tasks))  # not the memo, which must go when other settings hold
        return found

    async def finish(self, work: Coroutine[Any, Any, Answered], early: asyncio.Future[Answered]) -> Answered:
        """Do it to its end, also when the client that wanted it first has gone: others may wait for it. early: done as
        soon as the answer is known, while it is still being stored."""
        task = asyncio.ensure_future(_told(work, early))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        try:
            return await early
        except asyncio.CancelledError:
            if early.done() and not early.cancelled() and early.exception() is None:
                await throw_away(early.result())
            raise

    async def end(self) -> None:
        """Store what has come; give up what the upstream still computes for nobody."""
        await _ended(self.tasks)


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    if tasks:
        _, left = await asyncio.wait(tasks, timeout=END_SECONDS)
        for task in left:
            task.cancel()


async def _told(work: Coroutine[Any, Any, Answered], early: asyncio.Future[Answered]) -> None:
    try:
        answered = await work
    except BaseException as error:
        if not early.done():  # its client waits
            early.set_exception(error)
        if not isinstance(error, Exception):
            raise
    else:
        if early.done():
            await throw_away(answered)
        else:
            early.set_result(answered)


async def answer(asked: Asked, proxy: Proxy, batch: Batch) -> Answered:
    """Answer `batch` from the cache and, for what is missing, from the upstream. Raises `ProxyError`."""
    if asked.directives.no_store:
        raise BypassedError("no-store")
    if proxy.cache.mode == "off":
        raise BypassedError("off")
    if len(batch.keys) > asked.rules.most_inputs:
        raise BypassedError("too-many-inputs")
    work = _Work(asked, proxy, batch)
    await work.look_up()
    shadow = asked.rules.mode == "shadow" or proxy.cache.mode == "shadow"
    if asked.directives.only_if_cached:
        if work.missing or shadow:
            raise ProxyError("only-if-cached: not all of it may be served from here", status=504, code="only_if_cached")
    elif shadow or (work.held and proxy.cache.answers.check_due()):
        return await State.of(proxy).finish(work.compare(), work.early)
    if not work.missing:
        return await work.hit()
    return await State.of(proxy).finish(work.fill(), work.early)


@dataclass(slots=True)
class _Call:
    """A part of the batch that was asked for, and what came back."""

    places: list[int]
    whole: bool
    """It was the caller's own request, so the reply is the caller's, too."""
    reply: Received
    read: Read


class _Work:
    """One request under way."""

    def __init__(self, asked: Asked, proxy: Proxy, batch: Batch) -> None:
        self.asked, self.proxy, self.batch = asked, proxy, batch
        self.items = batch.items()
        self.looks: dict[Key, Lookup] = {}
        self.held: dict[Key, Value] = {}
        self.reason: MissReason | str = ""
        self.calls: list[_Call] = []
        self.usages: list[Any] = []
        """What the upstream counted, also for calls whose values were of no use."""
        self.since: float | None = None
        self.early: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        directives, now = asked.directives, proxy.cache.clock.wall()
        if directives.no_cache:
            self.since = now
        elif directives.max_age is not None:
            self.since = now - directives.max_age

    @property
    def missing(self) -> dict[Key, Item]:
        """What is not held."""
        return {key: item for key, item in self.items.items() if key not in self.held}

    async def look_up(self) -> None:
        """Find what is stored."""
        keys = list(self.items)
        looks = await self.proxy.cache.answers.look_up_many_async(keys, since=self.since)
        self.looks = dict(zip(keys, looks, strict=True))
        self.held = {key: look.make() for key, look in self.looks.items() if look.make is not None}  # type: ignore[misc]
        self.reason = next((look.reason for look in looks if look.make is None), "")
        if not self.batch.fit(list(self.held.values())):
            self._forget()

    def _forget(self) -> None:
        """Nothing that was stored before now is taken: the model was exchanged under its name."""
        self.held, self.reason = {}, MissReason.SIGNATURE
        self.since = self.proxy.cache.clock.wall()

    async def hit(self) -> Answered:
        """All of it is stored."""
        body = await self._assembled(self.held, {}, EMPTY)
        verdict = self._verdict("hit")
        if not any(one.rewritten for one in self.batch.original.media.values()):  # what was fetched is asked for anew
            State.of(self.proxy).memo.remember(self.asked, self.proxy, self.held, body, verdict, self.batch.model)
        return Answered(200, JSON, body, verdict, self.batch.model)

    async def fill(self) -> Answered:
        """Ask for what is missing."""
        try:
            made = await self._settle()
            if self.early.done():  # it is sent, or its client has gone
                return _SENT
            if not self.batch.fit([*self.held.values(), *made.values()]):
                self._forget()
                self.calls.clear()  # but not what they cost
                made = await self._settle()
                if not self.batch.fit(list(made.values())):
                    raise BypassedError("odd-reply")
        except _RefusedReply as refused:
            return self._pass_on(refused)
        return await self._answered(made)

    async def _answered(self, made: Mapping[Key, Value]) -> Answered:
        values = {**self.held, **made}
        joined = len(made) - len({self.batch.keys[place] for call in self.calls for place in call.places})
        # Who only waited for another caller's request was not let in by the upstream itself, so must be as for a hit.
        outcome: Outcome = "hit" if not self.calls else "partial" if self.held or joined else "miss"
        verdict = self._verdict(outcome, joined=joined)
        body, headers = await self._body(values)
        return Answered(200, headers, body, verdict, self.batch.model)

    async def _settle(self) -> dict[Key, Value]:
        return await self.proxy.cache.answers.settle_many_async(
            self.missing, self._compute, ttl=self.asked.rules.ttl_seconds, since=self.since
        )

    async def _body(self, values: Mapping[Key, Value]) -> tuple[bytes, list[tuple[bytes, bytes]]]:
        if not self.calls:
            return await self._assembled(values, {}, _sum(self.usages) if self.usages else EMPTY), JSON
        call = self.calls[-1]
        if len(self.usages) == 1 and call.whole:
            return call.reply.body, passed_on(call.reply.headers)
        body = await self._assembled(values, call.read.envelope, _sum(self.usages))
        return body, passed_on(call.reply.headers, rewritten=True)

    async def _assembled(self, values: Mapping[Key, Value], envelope: Mapping[str, Any], usage: Any) -> bytes:
        chosen = [values[key] for key in self.batch.keys]
        large = len(chosen) * sum(len(part) for part in chosen[0] if isinstance(part, bytes)) > LARGE
        return await apart(large, self.batch.assemble, chosen, envelope, usage)

    async def _compute(self, items: Sequence[Item]) -> list[Value]:
        places = [item.place for item in items]
        call = await self._ask(places)
        self.calls.append(call)
        values = list(call.read.values)
        whole = len(items) == len(self.missing) and self.batch.fit([*self.held.values(), *values])
        if whole and not self.early.done():
            answered = await self._answered({i.key: value for i, value in zip(items, values, strict=True)})
            if not self.early.done():
                self.early.set_result(answered)
                await asyncio.sleep(0)  # it is sent now, and stored then
        return values

    async def _ask(self, places: list[int]) -> _Call:
        """Raises `_RefusedReply`, and `BypassedError` where only a part was asked for and the reply makes no sense."""
        body = self.batch.body(places)
        whole = body is self.batch.original
        try:
            reply = await received(self.asked, self.proxy, body)
        except TooLargeError as error:
            if not whole:
                await error.rest.aclose()
                raise BypassedError("too-large") from error
            raise _RefusedReply(error.reply.status, error.reply.headers, error.rest, "too-large") from error
        if reply.status in _FAULTS and not whole:  # it may speak of places in a request that is not the caller's
            raise BypassedError("refused")
        if reply.status != 200:
            raise _RefusedReply(reply.status, reply.headers, reply.body)
        try:
            if reason := forbids(reply.headers):
                raise Odd(reason)
            read = await apart(len(reply.body) > LARGE, self.batch.read, reply.body, places)
            if len(read.values) != len(places) or not self.batch.fit(read.values):
                raise Odd("another number of values, or of several models")
        except Odd as error:
            if whole:
                raise _RefusedReply(reply.status, reply.headers, reply.body, "odd-reply") from error
            raise BypassedError("odd-reply") from error
        self.usages.append(read.usage)
        return _Call(places, whole, reply, read)

    def _pass_on(self, refused: _RefusedReply) -> Answered:
        verdict = Verdict("bypass", refused.reason) if refused.reason else self._verdict("miss")
        return Answered(refused.status, passed_on(refused.headers), refused.body, verdict, self.batch.model)

    async def compare(self) -> Answered:
        """Ask for all of it whatever is stored, say how alike they are, and answer with what was computed."""
        every = list(range(len(self.batch.keys)))
        distinct = [item.place for item in self.items.values()]

        async def ask() -> dict[Key, Value]:
            if not self.calls:
                self.calls.append(await self._ask(every if len(distinct) == len(every) else distinct))
            return dict(zip(self.items, self.calls[0].read.values, strict=True))

        async def compute(items: Sequence[Item]) -> list[Value]:
            values = await ask()
            return [values[item.key] for item in items]

        try:
            if missing := self.missing:
                await self.proxy.cache.answers.settle_many_async(
                    missing, compute, ttl=self.asked.rules.ttl_seconds, since=self.since
                )
            fresh = await ask()
        except _RefusedReply as refused:
            return self._pass_on(refused)
        differed, alike = [], 1.0
        for key, stored in self.held.items():
            equal, how = self.batch.same(stored, fresh[key])
            self.proxy.compared(self.asked.path, equal)
            alike = min(alike, how)
            if not equal:
                differed.append(key)
        if differed:
            await self.proxy.cache.a.invalidate(differed)
        verdict = self._verdict("miss", compared=len(self.held), differed=len(differed))
        if self.held:
            verdict.details = {**verdict.details, "alike": f"{alike:.6f}"}
        verdict.saved_seconds, verdict.saved_tokens = 0.0, 0
        body, headers = await self._body(fresh)
        return Answered(200, headers, body, verdict, self.batch.model)

    def _verdict(self, outcome: Outcome, **more: int) -> Verdict:
        joined = more.get("joined", 0)
        hits = len(self.held) + joined
        details = {"hits": str(hits), "misses": str(len(self.items) - hits)}
        details |= {name: str(count) for name, count in more.items() if count}
        looks = [self.looks[key] for key in self.held]
        ages = [self.proxy.cache.clock.wall() - look.created for look in looks if look.created is not None]
        return Verdict(
            outcome,
            self.reason if outcome != "hit" else "joined" if joined else "",
            sum(look.saved for look in looks),
            details if len(self.items) > 1 or more else {},
            max(ages, default=None),
            sum(max(0, value[-2]) for value in self.held.values()),
        )


_SENT = Answered(200, [], b"", Verdict("miss"))
"""What is left to say after that."""


class _RefusedReply(Exception):
    """The upstream said something else than values; its caller is told exactly that."""

    def __init__(self, status: int, headers: Headers, body: bytes | AsyncIterator[bytes], reason: str = "") -> None:
        super().__init__(status)
        self.status, self.headers, self.body, self.reason = status, headers, body, reason


def _sum(usages: Sequence[Any]) -> Any:
    """Numbers of the same names added up; None where none are told."""
    told = [usage for usage in usages if usage is not None]
    if not told:
        return None
    if all(isinstance(usage, Mapping) for usage in told):
        return {name: _sum([usage[name] for usage in told if name in usage]) for usage in told for name in usage}
    if all(isinstance(usage, int | float) and not isinstance(usage, bool) for usage in told):
        return sum(told)
    return told[-1]
