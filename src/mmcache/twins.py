"""`cache.a`: the async twins. Memory hits are answered in place; anything that may block runs in a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from mmcache.model.key import Key
from mmcache.semantic.options import AskOptions
from mmcache.settings import parse_ttl

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.semantic.prompt import Prompt
    from mmcache.semantic.settings import Reply
    from mmcache.semantic.stream import Stream

_MISSING = object()
T = TypeVar("T")


async def _in_thread(function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    import asyncio  # here: who never awaits should not pay for its import

    return await asyncio.to_thread(function, *arguments, **keywords)


class AsyncCache:
    """The same cache for coroutines; shares tiers, flights and counters with the sync methods."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def peek(self, key: Key, default: object = None) -> object:
        """See `Cache.peek`; never blocks, so it needs no await."""
        return self._cache.peek(key, default)

    async def key(self, source: Any, **options: Any) -> Key:
        """See `Cache.key`: reading media, and asking for the state of `rows`, may take a while."""
        return await _in_thread(self._cache.key, source, **options)

    async def get(self, key: Key, default: object = None) -> object:
        """See `Cache.get`."""
        value = self._cache.peek(key, _MISSING)
        if value is _MISSING:
            return await _in_thread(self._cache.get, key, default)
        if self._cache.prefetcher is not None:
            self._cache.prefetcher.visited(key)
        return value

    async def put(self, key: Key, value: object, *, cost: float = 0.0, ttl: float | None = None) -> bool:
        """See `Cache.put`."""
        return await _in_thread(self._cache.put, key, value, cost=cost, ttl=ttl)

    async def get_or_compute(
        self,
        key: Key,
        compute: Callable[[], object | Awaitable[object]],
        *,
        ttl: float | None = None,
        bypass: bool = False,
    ) -> object:
        """See `Cache.get_or_compute`; `compute` may be a coroutine function or a plain one (run in a thread)."""
        parse_ttl(ttl)
        return await self._cache.answers.answer_async(key, compute, ttl=ttl, bypass=bypass)

    async def ask(
        self, prompt: Prompt, answer: Callable[[Prompt], Any | Awaitable[Any]], **options: Unpack[AskOptions]
    ) -> Reply:
        """See `Cache.ask`; `answer` may be a coroutine function or a plain one (run in a thread)."""
        return await self._cache.meaning.ask_async(prompt, answer, options)

    async def ask_stream(
        self, prompt: Prompt, answer: Callable[[Prompt], AsyncIterator[Any] | Iterator[Any]],
        **options: Unpack[AskOptions],
    ) -> Stream:  # fmt: skip
        """See `Cache.ask_stream`; `answer` may be an async generator function or a plain one (run in a thread)."""
        return await self._cache.meaning.streaming.ask_async(prompt, answer, options)

    async def invalidate(self, keys: Key | Iterable[Key]) -> int:
        """See `Cache.invalidate`."""
        return await _in_thread(self._cache.invalidate, keys)

    async def flush(self) -> None:
        """See `Cache.flush`."""
        await _in_thread(self._cache.flush)

    async def close(self) -> None:
        """See `Cache.close`."""
        await _in_thread(self._cache.close)
