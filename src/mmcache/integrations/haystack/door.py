"""`Door`: what every component of ours has: a cache that is opened late, a tenant, and a flow that fails nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from copy import deepcopy
from functools import partial
from typing import Any, TypeVar

from blake3 import blake3
from haystack import component, default_to_dict, logging
from haystack.core.errors import SerializationError

from mmcache.cache import Cache
from mmcache.fill import in_thread
from mmcache.forks import Lock
from mmcache.integrations.framework.ways import by
from mmcache.integrations.haystack.config import CacheConfig, Lease
from mmcache.integrations.haystack.signing import Signed
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.keys.signing import Signature
from mmcache.model.errors import InvalidInputError, MMCacheError, SettingsError
from mmcache.model.event import Failed
from mmcache.model.key import Key
from mmcache.scopes import Scope
from mmcache.settings import parse_ttl

logger = logging.getLogger(__name__)
T = TypeVar("T")

TENANT = "cache_tenant"
"""The input that says whose run it is."""


class NotStored:
    """Carries a result past the cache: no codec takes it, so it is handed out and not kept."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Door:
    """Base of the components. `cache` is a `CacheConfig`, or a `Cache` that is the caller's own (not serialisable)."""

    def _set_up(
        self,
        wrapped: Any,
        cache: CacheConfig | Cache,
        tenant: str | None,
        per_tenant: bool,
        ttl: float | None = None,
    ) -> None:
        if not isinstance(cache, CacheConfig | Cache):
            raise SettingsError(f"cache is a CacheConfig(root=…) or a Cache, not a {type(cache).__name__}")
        if tenant is not None and (not isinstance(tenant, str) or not tenant):
            raise SettingsError(f"tenant is a string that is not empty, or None, not {tenant!r}")
        parse_ttl(ttl)
        self.cache, self.tenant, self.per_tenant, self.ttl = cache, tenant, per_tenant, ttl
        self._wrapped: list[Any] = [one for one in wrapped if one is not None]
        self._lock = Lock()
        self._lease: Lease | None = None
        self._told = False

    def _to_dict(self, **own: Any) -> dict[str, Any]:
        if isinstance(self.cache, Cache):
            raise SerializationError("a Cache has no place in a pipeline file: describe it, cache=CacheConfig(root=…)")
        realm = {"tenant": self.tenant, "per_tenant": self.per_tenant}
        data: dict[str, Any] = default_to_dict(self, cache=self.cache, **realm, **own)
        return data

    def _take_sockets(self, wrapped: Any, leave_out: tuple[str, ...] = ()) -> None:
        """The inputs and outputs of the wrapped component become ours, and `cache_tenant` beside them."""
        inputs = wrapped.__haystack_input__._sockets_dict
        if taken := {TENANT, *leave_out} & inputs.keys():
            raise SettingsError(f"{type(wrapped).__name__} has an input {', '.join(taken)} of its own")
        for name, socket in inputs.items():
            component.set_input_type(self, name, socket.type, socket.default_value)
        outputs = wrapped.__haystack_output__._sockets_dict
        component.set_output_types(self, **{name: socket.type for name, socket in outputs.items()})
        self._take_tenant()

    def _take_tenant(self) -> None:
        if self.per_tenant:
            component.set_input_type(self, TENANT, str)
        else:
            component.set_input_type(self, TENANT, str | None, None)

    # Life -----------------------------------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Open the cache, and warm up what is wrapped. Raises `UnversionedModelError`."""
        self._open()
        for wrapped in self._wrapped:
            if hasattr(wrapped, "warm_up"):
                wrapped.warm_up()

    async def warm_up_async(self) -> None:
        """The async twin."""
        if self._lease is None:
            await in_thread(self._open)
        for wrapped in self._wrapped:
            if hasattr(wrapped, "warm_up_async"):
                await wrapped.warm_up_async()
            elif hasattr(wrapped, "warm_up"):
                wrapped.warm_up()

    def close(self) -> None:
        """Give the cache back (the last component of the process that does closes it), and close what is wrapped."""
        self._release()
        for wrapped in self._wrapped:
            if hasattr(wrapped, "close"):
                wrapped.close()

    async def close_async(self) -> None:
        """The async twin."""
        await in_thread(self._release)
        for wrapped in self._wrapped:
            if hasattr(wrapped, "close_async"):
                await wrapped.close_async()
            elif hasattr(wrapped, "close"):
                wrapped.close()

    def _release(self) -> None:
        with self._lock:
            lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def _open(self) -> Cache | None:
        """None where it cannot be opened: then everything is computed, and each run tries again."""
        if isinstance(self.cache, Cache):
            return self.cache
        with self._lock:
            if self._lease is None:
                try:
                    self._lease = self.cache.open()
                except (MMCacheError, OSError) as error:
                    if not self._told:
                        logger.warning("Running without the cache: {error}", error=str(error))
                    self._told = True
                    return None
            return self._lease.cache

    # A run ----------------------------------------------------------------------------------------------------------

    def _scope(self, cache: Cache, signature: Signature, tenant: Any) -> Scope:
        """Raises `InvalidInputError` where nobody says whose run it is."""
        if tenant is None and not self.per_tenant:
            tenant = self.tenant or self.cache.tenant
        if not isinstance(tenant, str) or not tenant:
            raise InvalidInputError(f"{TENANT} is a string that is not empty, not {tenant!r:.40}")
        return cache.scopes.of(signature, tenant, self.cache.namespace)

    def _signed_scope(self, cache: Cache, signed: Signed, tenant: Any) -> Scope:
        """The same for a component's signature, and what its secrets say."""
        salt = self._scope(cache, signed.now(), tenant).salt
        return self._scope(cache, signed.sealed(salt), tenant)

    def _given(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Inputs of a run without those that are None, where that is the same as not given."""
        sockets = self.__haystack_input__._sockets_dict  # type: ignore[attr-defined]
        optional = {name for name, socket in sockets.items() if socket.default_value is None}
        return {name: value for name, value in inputs.items() if value is not None or name not in optional}

    def _answer(self, make_key: Callable[[Cache], Key], compute: Callable[[], Any]) -> tuple[Any, bool]:
        """What is stored, or `compute()`'s value; and whether it was a hit. Only what `compute` raises is raised."""
        cache = self._open()
        if cache is None:
            return compute(), False
        try:
            key = make_key(cache)
        except MMCacheError as error:
            return aside(cache, error, compute), False
        outcome = Outcome(compute)
        try:
            with by("haystack"):
                value = cache.get_or_compute(key, outcome, ttl=self.ttl)
        except MMCacheError as error:
            if outcome.ran:
                return outcome.result(), False
            return aside(cache, error, compute), False
        if isinstance(value, NotStored) and not outcome.ran:  # another caller's: to each his own
            value = deepcopy(value)
        return value, not outcome.ran


class Outcome:
    """A computation that remembers how it ended, so that it is never run twice because the cache failed after it."""

    def __init__(self, compute: Callable[[], Any]) -> None:
        self._compute = compute
        self.ran = False
        self._value: Any = None
        self._error: BaseException | None = None

    def __call__(self) -> Any:
        self.ran = True
        try:
            self._value = self._compute()
        except BaseException as error:
            self._error = error
            raise
        return self._value

    def result(self) -> Any:
        """What it returned, or raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._value


def aside(cache: Cache, error: MMCacheError, compute: Callable[[], T]) -> T:
    """Compute, and say why nothing was looked up."""
    cache.events.emit(Failed("haystack", f"stepping aside: {error}"))
    return compute()


def digest_key(scope: Scope, domain: str, *parts: bytes) -> Key:
    """The key of an input that is given as bytes."""
    return Key(scope.digest, blake3(framed(domain, *parts), key=scope.salt).digest(length=DIGEST_BYTES))


async def off_loop(flow: Callable[[Callable[..., Any]], T], wrapped: Any) -> T:
    """Run `flow(run)` in a thread of its own, `run` being the wrapped component's: its coroutine runs on this loop."""
    loop = asyncio.get_running_loop()
    run_async = getattr(wrapped, "run_async", None)

    def run(**inputs: Any) -> Any:
        if run_async is None:
            return wrapped.run(**inputs)
        started: Coroutine[Any, Any, Any] = run_async(**inputs)
        return asyncio.run_coroutine_threadsafe(started, loop).result()

    return await in_thread(partial(flow, run))
