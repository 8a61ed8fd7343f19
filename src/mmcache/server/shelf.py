"""Where answers stand in the cache: who signs them, looking them up, putting them in. What it cannot do costs a hit."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from mmcache.lookup import Lookup
from mmcache.model.errors import CorruptFrameError, MMCacheError
from mmcache.model.event import Failed, MissReason
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.server.answers_stored import Stored
from mmcache.server.exchange import Asked, Proxy
from mmcache.server.tracing import current

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.server.config import ServerSettings


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup found: a stored answer, or why there is none."""

    stored: Stored | None
    reason: MissReason | str = ""


async def look_up(cache: Cache, key: Key, *, misses: bool = True) -> Found:
    """What is stored. What cannot be read is not there. misses: whether one counts; else it is looked for elsewhere."""
    try:
        peeking = None if (traced := current()) is None else traced.peeking()
        raw = cache.peek(key)
        if peeking is not None:
            peeking.done(cache.answers, [] if raw is None else [key])
        reason = MissReason.ABSENT
        if raw is None:
            find = partial(_find, cache, key, misses)
            look = await asyncio.to_thread(find) if cache.below.tiers else find()
            raw, reason = look.make() if look.make is not None else None, look.reason
        return Found(None, reason) if raw is None else Found(Stored.from_bytes(raw))
    except CorruptFrameError as error:
        cache.events.emit(Failed("server", str(error), key))
        return Found(None, MissReason.CORRUPT)
    except MMCacheError as error:
        cache.events.emit(Failed("server", f"not looked up: {error}", key))
        return Found(None, MissReason.TIER_DOWN)


def _find(cache: Cache, key: Key, misses: bool) -> Lookup:
    if misses:
        return cache.answers.look_up([key])[0]
    look = cache.answers.find(key)
    return look if look.make is None else cache.answers.count(key, look)


async def keep(cache: Cache, key: Key, stored: Stored, ttl: float | None, since: int) -> None:
    """Put it into the cache, in place of what is there. ttl: in seconds. since: `Answers.moment` when it was asked for.

    Not, where it was invalidated meanwhile, or an answer is there that was asked for later. Never raises.
    """
    put = partial(_put, cache, key, stored, ttl, since)
    try:
        await (asyncio.to_thread(put) if cache.below.tiers else _now(put))
    except MMCacheError as error:
        cache.events.emit(Failed("server", f"not stored: {error}", key))


async def _now(put: Callable[[], None]) -> None:
    put()


def _put(cache: Cache, key: Key, stored: Stored, ttl: float | None, since: int) -> None:
    if cache.answers.changed(key, since):
        make = cache.answers.read(key).make
        if make is None:
            return
        try:
            newer = Stored.from_bytes(make())
        except CorruptFrameError:
            newer = None
        if newer is not None and newer.at - newer.took > stored.at - stored.took:
            return
    cache.put(key, stored.to_bytes(), cost=stored.took, ttl=ttl)


def check_due(asked: Asked, proxy: Proxy) -> bool:
    """Whether a hit is to be computed all the same, and compared."""
    if proxy.cache.mode == "shadow" or asked.rules.mode == "shadow":
        return True
    share = proxy.cache.answers.verify_share
    return share > 0.0 and random.random() < share


def age(cache: Cache, stored: Stored) -> float:
    """Seconds since it was stored."""
    return max(0.0, cache.clock.wall() - stored.at)


def signed(settings: ServerSettings, path: str, form: str, model: str = "") -> Signature:
    """Who answers. model: where it is not in the key's digest already, for callers may name many."""
    scheme, _, address = settings.upstream.rpartition("://")
    upstream = f"{settings.kind} {scheme}://{address.rpartition('@')[2]}"  # without a password
    return _signature(path, form, model, settings.version, upstream)


@lru_cache(1024)
def _signature(path: str, form: str, model: str, version: str, upstream: str) -> Signature:
    return Signature(
        model_version=json.dumps([model, version]), function=f"{path} {form}", device=upstream, modality="answer"
    )
