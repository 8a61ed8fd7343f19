"""`Reuse`: the flow of every route that gives whole answers: look it up, join who is asking already, or ask and keep.

    parse → canonical (or bypass) → media identified → key
    hit     the stored answer, as it was given
    joined  the call under way, from its first byte
    miss    a call in a task of its own (`calls`), kept only if it is whole (`flaw`)

What the cache cannot do costs a hit, never the answer.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES
from mmcache.lookup import Lookup
from mmcache.model.errors import CorruptFrameError, ProxyError
from mmcache.model.event import Differed, MissReason
from mmcache.model.key import Key
from mmcache.server import meant
from mmcache.server.answers import refusal
from mmcache.server.answers_stored import Stored, events_of, kept_headers, media_type, read_object
from mmcache.server.asking import Dialect, NotKeptError, Told, Wanted, fetched, recorder_of, streamed
from mmcache.server.calls import Call, calls_of, others_first
from mmcache.server.canonical.request import Bypass
from mmcache.server.exchange import Answered, Asked, BypassedError, Proxy, Verdict
from mmcache.server.limits import parse
from mmcache.server.media.parts import Unknown, all_identified
from mmcache.server.recording import Events, Recorder
from mmcache.server.shelf import Found, age, check_due, keep, look_up, signed

_SAID_WHEN_REFUSED = frozenset((b"content-type", b"retry-after"))
_OF_THE_KEY = frozenset((401, 402, 403, 404, 429))
"""Statuses that the upstream may have meant for one caller alone: 402 = no credit, 404 = no access to this model."""


class Reuse:
    """The route of one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    async def __call__(self, asked: Asked, proxy: Proxy) -> Answered:
        """See `exchange.Route`. Raises `BypassedError` for what may not be cached."""
        wants = asked.directives
        wanted = await self._wanted(asked, proxy)
        if meant.allowed(asked.rules, proxy.cache) and (answered := await self._meant(wanted)) is not None:
            return answered
        found = Found(None, MissReason.BYPASSED) if wants.no_cache else await look_up(proxy.cache, wanted.key)
        checked = check_due(wanted.asked, wanted.proxy)
        if found.stored is not None and not checked:
            old = age(proxy.cache, found.stored)
            if wants.max_age is None or old <= wants.max_age:
                return _hit(wanted, found.stored, old)
            found = Found(found.stored, MissReason.EXPIRED)
        if wants.only_if_cached:
            return refusal(_uncached(), Verdict("miss", found.reason))
        held = found.stored if checked else None
        # Who wants nothing old joins nobody; nor does who wants to compare.
        alone = wants.no_cache or checked
        key = None if alone else (wanted.key, found.stored is not None)
        if wanted.found.form == "sse":
            run = partial(_stream, wanted, held)
        elif alone or found.stored is not None:
            run = partial(_renew, wanted, held)
        else:
            run = partial(_fill, wanted)
        return await _asked(wanted, key, run, "shadow" if checked else found.reason)

    # Reading --------------------------------------------------------------------------------------------------------

    async def _wanted(self, asked: Asked, proxy: Proxy) -> Wanted:
        """What is asked for. Raises `BypassedError`."""
        rules, cache = asked.rules, proxy.cache
        if asked.directives.no_store:
            raise BypassedError("no-store")
        if cache.mode == "off":
            raise BypassedError("off")
        if media_type(asked.headers) != b"application/json":
            raise BypassedError("content-type")
        request = parse(asked.body)
        found = self._dialect.canonical(request, sampled=rules.sampled, tools=rules.tools)
        if isinstance(found, Bypass):
            raise BypassedError(found.reason)
        parts: Any = await all_identified([one.part for one in found.media], asked, proxy) if found.media else []
        if isinstance(parts, Unknown):
            raise BypassedError(parts.reason)
        signature = signed(proxy.settings, self._dialect.path, found.form)
        scope = cache.scopes.of(signature, *asked.realm)
        try:
            told = found.key_bytes([one.identity for one in parts])
        except (ValueError, RecursionError) as error:  # half a surrogate pair, a number that is none
            raise BypassedError("malformed") from error
        key = Key(scope.digest, blake3(told, key=scope.salt).digest(length=DIGEST_BYTES))
        media = {one.place: part for one, part in zip(found.media, parts, strict=True)}
        return Wanted(self._dialect, asked, proxy, request, found, media, key)

    # Asking ---------------------------------------------------------------------------------------------------------

    async def _meant(self, wanted: Wanted) -> Answered | None:
        """The very answer, or one by meaning; None where only the very same request may be answered alike."""
        wants, cache, ttl = wanted.asked.directives, wanted.proxy.cache, wanted.asked.rules.ttl_seconds
        prompt = None if check_due(wanted.asked, wanted.proxy) else await meant.prompt(wanted)
        if prompt is None:
            return None
        if not wants.no_cache and (held := (await look_up(cache, wanted.key, misses=False)).stored) is not None:
            old = age(cache, held)
            if wants.max_age is None or old <= wants.max_age:
                return _hit(wanted, held, old)
        signature = signed(wanted.proxy.settings, self._dialect.path, "meant", wanted.found.model)

        async def run(call: Call) -> None:
            since = cache.answers.moment

            async def compute() -> Told:
                if wants.only_if_cached:
                    raise _uncached()
                computed = await fetched(wanted, call)
                await _tell(call, computed)  # learning from it may wait
                return computed

            told = await meant.meant(wanted, prompt, compute, signature, fresh=wants.no_cache)
            if told is None:
                if wants.only_if_cached:
                    raise _uncached()
                await (_renew(wanted, None, call) if alone else _fill(wanted, call))
            elif (
                told.stored is not None
                and wants.max_age is not None
                and age(wanted.proxy.cache, told.stored) > wants.max_age
            ):
                await compute()
            else:
                call.tell(told)
                if told.computed and told.stored is not None:
                    await keep(cache, wanted.key, told.stored, ttl, since)

        alone = wants.no_cache or wants.only_if_cached or wants.max_age is not None
        return await _asked(wanted, None if alone else (wanted.key, "meant"), run, "")


async def _asked(
    wanted: Wanted, key: Any, run: Callable[[Call], Awaitable[None]], reason: MissReason | str
) -> Answered:
    """Ask, or join who is asking. key: of the calls that may be joined; None = ask. reason: of the miss."""
    calls = calls_of(wanted.proxy)
    call = None if key is None else calls.find(key)
    joined = call is not None
    if call is None:
        call = calls.begin(key, run)
    else:
        call.join()
    told: Told = await call.head()
    if joined and told.status in _OF_THE_KEY:  # another caller's key may be a better one
        call.left()
        call, joined = calls.begin(None, run), False
        told = await call.head()
    body: Any = told.body
    if body is None:
        body = call.feed.reader(call.left)
    else:
        call.left()
    model, stored = wanted.found.model, told.stored
    if told.status == 200 and (joined or not told.computed):  # computed for somebody else: authorised like a hit
        verdict = Verdict("hit", "joined" if joined else "", details=told.details)
        if stored is not None:
            verdict.saved_seconds, verdict.saved_tokens = stored.took, stored.tokens
            verdict.age_seconds = age(wanted.proxy.cache, stored)
        return Answered(200, kept_headers(told.headers), body, verdict, model)
    details = dict(told.details)
    if told.flaw:
        details["kept"] = told.flaw
    if told.compared is not None:
        details["same"] = "yes" if told.compared else "no"
    headers = told.headers
    if joined:
        headers = [(name, value) for name, value in headers if name in _SAID_WHEN_REFUSED]
    return Answered(told.status, headers, body, Verdict("miss", reason, details=details), model)


async def _tell(call: Call, told: Told) -> None:
    """Tell who waits, and let them go on before it is stored. What is not to be stored is told to nobody else."""
    call.tell(told)
    if told.stored is None:
        call.forget()
    else:
        await others_first()


async def _fill(wanted: Wanted, call: Call) -> None:
    """A whole answer that was missing: computed by one process of all, and stored."""
    computed: Told | None = None

    async def compute() -> bytes:
        nonlocal computed
        computed = await fetched(wanted, call)
        await _tell(call, computed)  # storing it may wait
        if computed.stored is None:
            raise NotKeptError(computed)
        return computed.stored.to_bytes()

    answers, ttl = wanted.proxy.cache.answers, wanted.asked.rules.ttl_seconds
    try:
        raw = await answers.settle_async(wanted.key, Lookup(None), compute, ttl=ttl)
    except NotKeptError as error:
        call.tell(error.told)
        return
    if computed is None:  # another process was faster
        try:
            stored = Stored.from_bytes(raw)
        except CorruptFrameError:  # or it is what could not be read when it was looked up
            return await _renew(wanted, None, call)
        call.tell(Told(200, stored.headers, stored.body, "", stored, computed=False))


async def _renew(wanted: Wanted, held: Stored | None, call: Call) -> None:
    """A whole answer that is computed whatever is stored, and then stored. held: what it is compared with."""
    since = wanted.proxy.cache.answers.moment
    told = await fetched(wanted, call)
    if (stored := told.stored) is not None:
        gist = wanted.dialect.gist
        if held is not None:
            same = _compared(wanted, gist(read_object(held.body)), gist(read_object(stored.body)))
            told = replace(told, compared=same)
    await _tell(call, told)
    if stored is not None and not told.compared:
        await keep(wanted.proxy.cache, wanted.key, stored, wanted.asked.rules.ttl_seconds, since)


async def _stream(wanted: Wanted, held: Stored | None, call: Call) -> None:
    """A stream, stored when it has ended. held: what it is compared with."""
    since = wanted.proxy.cache.answers.moment

    async def ended(recorder: Recorder, stored: Stored | None) -> None:
        if stored is None:
            return
        if held is None or not _compared(wanted, _said(wanted, held), recorder.gist()):
            await keep(wanted.proxy.cache, wanted.key, stored, wanted.asked.rules.ttl_seconds, since)

    await streamed(wanted, call, ended)


def _said(wanted: Wanted, stored: Stored) -> list[Any]:
    """What a stored stream says."""
    recorder = recorder_of(wanted)
    for event in Events().feed(stored.body):
        recorder.see(event)
    return recorder.gist()


def _compared(wanted: Wanted, held: list[Any], computed: list[Any]) -> bool:
    same = held == computed
    wanted.proxy.compared(wanted.asked.path, same)
    if not same:
        wanted.proxy.cache.events.emit(Differed(wanted.key, math.inf))
    return same


def _hit(wanted: Wanted, stored: Stored, seconds: float) -> Answered:
    body: Any = Replay(stored.body) if wanted.found.form == "sse" else stored.body
    verdict = Verdict("hit", "", stored.took, age_seconds=seconds, saved_tokens=stored.tokens)
    return Answered(200, [*stored.headers], body, verdict, wanted.found.model)


class Replay:
    """A stored stream, event by event, as it came."""

    def __init__(self, body: bytes) -> None:
        self._events = events_of(body)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        for event in self._events:
            return event
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Nothing is held."""


def _uncached() -> ProxyError:
    """RFC 9111, section 5.2.1.7."""
    return ProxyError(
        "it is not stored, and cache-control: only-if-cached forbids to ask", status=504, code="not-cached"
    )
