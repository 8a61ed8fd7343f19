"""Answers by meaning behind the proxy, where a route allows it: `meant` asks the cache's own `ask`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from mmcache.model.errors import InvalidInputError, MMCacheError, ProxyError
from mmcache.model.event import Failed
from mmcache.model.signature import Signature
from mmcache.semantic.openai import prompt_of
from mmcache.semantic.prompt import Prompt, Unknown
from mmcache.semantic.settings import Semantic
from mmcache.server.answers_stored import Stored, judge
from mmcache.server.asking import NotKeptError, Told, Wanted

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.server.config import RouteRules, ServerSettings


LARGEST_ERROR = 0.2
"""That a promise may allow, see `Semantic`."""


def semantic_for(settings: ServerSettings) -> Semantic | None:
    """What the cache behind the proxy must be opened with; None where no route allows near answers.

    A cache makes one promise, so it is the smallest that any route asks for. The words of two prompts are compared
    without a model (`semantic.lexical`).
    """
    budgets = [rules.semantic_max_error for rules in settings.routes.values() if rules.semantic_max_error is not None]
    return Semantic(max_error=min(LARGEST_ERROR, *budgets), judge=judge) if budgets else None


def allowed(rules: RouteRules, cache: Cache) -> bool:
    """Whether near answers may be given: the route has a budget, and the cache promises no more errors than it."""
    if rules.semantic_max_error is None:
        return False
    planner = cache.meaning.planner
    return planner is not None and planner.populations.max_error <= rules.semantic_max_error


async def prompt(wanted: Wanted) -> Prompt | None:
    """The request as a prompt whose parts are all known, with media as its identity describes it; None = there is none,
    and only the very same request may be answered alike."""
    if wanted.found.form != "json" or not wanted.dialect.meant:
        return None
    if wanted.media and wanted.asked.rules.identity == "bytes":  # nothing is to be decoded
        return None
    request = dict(wanted.request)
    if wanted.media:
        request["messages"] = [dict(message) for message in request["messages"]]
        for (_, message, _, number), media in wanted.media.items():
            told = request["messages"][message]
            told["content"] = [*told["content"]]
            told["content"][number] = media.part
    try:
        found = await asyncio.to_thread(prompt_of, request) if wanted.media else prompt_of(request)
    except InvalidInputError:
        return None
    return None if any(isinstance(value, Unknown) for value in found.other.values()) else found


async def meant(
    wanted: Wanted, asked: Prompt, compute: Callable[[], Awaitable[Told]], signature: Signature, *, fresh: bool
) -> Told | None:
    """The answer: stored for this prompt, or for one that is trusted to be answered alike, or computed; None where the
    cache cannot tell, for it cannot decode a picture, say, and nothing was computed.

    `Cache.ask` takes for the same prompt what a server might tell apart: other forms of a text in Unicode, files of
    equal pixels, a text and a list of it. Nothing has been learned of these, so such an answer is None here, too.

    fresh: compute it, whatever is stored. Raises what `compute` raises.
    """
    told: Told | None = None

    async def answer(_: Prompt) -> bytes:
        nonlocal told
        told = await compute()
        if told.stored is None:
            raise NotKeptError(told)
        return told.stored.to_bytes()

    rules, cache = wanted.asked.rules, wanted.proxy.cache
    try:
        reply = await cache.a.ask(
            asked,
            answer,
            model=signature,
            tenant=wanted.asked.tenant,
            namespace=wanted.asked.namespace,
            ttl=rules.ttl_seconds,
            bypass=fresh,
        )
        stored = None if told is not None else Stored.from_bytes(reply.value)
    except NotKeptError as error:
        return error.told
    except ProxyError:
        raise
    except MMCacheError as error:
        cache.events.emit(Failed("server", f"not asked by meaning: {error}"))
        return told
    if stored is None:
        return told
    near = reply.source == "near" and reply.decision is not None
    if not near and stored.request != wanted.key.digest:
        return None
    details = {"near": f"{reply.decision.confidence:.4f}"} if near and reply.decision is not None else {}
    return Told(200, stored.headers, stored.body, "", stored, details, computed=False)
