"""`ManyFill`: the async twin of `Fill.run_many`, for batches whose callers must not fail with each other."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mmcache.fill import ALONE, Fill, same
from mmcache.flight import Flight, Released, leading
from mmcache.lookup import Lookup, Make
from mmcache.model.key import Key
from mmcache.scopes import Scope
from mmcache.slots import lent

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")
_FEW = 8
"""Values that are stored in memory where they stand; more are stored in a thread."""
Compute = Callable[[Sequence[T]], Awaitable[Sequence[object]]]


class ManyFill:
    """Computes what is missing of a batch: each key once, whoever else asks for it meanwhile."""

    def __init__(self, fill: Fill) -> None:
        self._fill, self._store, self._flights, self._claims = fill, fill.store, fill.flights, fill.claims

    async def run(
        self, wanted: Mapping[Key, tuple[Scope, T]], compute: Compute[T], ttl: float | None, since: float | None = None
    ) -> dict[Key, Make]:
        """Makers of all `wanted`. What nobody is at yet is computed in one call; what others compute is waited for
        only afterwards, for as long as patience lasts for all of it together. `since` (Unix seconds): what was stored
        before is not taken.

        A call that fails fails its own caller only: the fault may lie in what else was in that batch, so who waited
        for it computes (all that others failed at in one more call, of which nothing is stored).
        """
        made: dict[Key, Make] = {}
        failed: list[Key] = []
        until: float | None = None
        while remaining := [key for key in wanted if key not in made and key not in failed]:
            joined = {key: self._flights.join(key) for key in remaining}
            if led := {key: flight for key, (flight, leads) in joined.items() if leads}:
                made |= await self._lead(led, wanted, compute, ttl, since)
            until = until or time.monotonic() + self._fill.settings.patience_seconds
            for key, (flight, leads) in joined.items():
                if leads:
                    continue
                try:
                    left = None if flight.future.done() else max(0.0, until - time.monotonic())
                    followed = await self._fill.follow_async(flight, left)
                except Exception:  # noqa: BLE001 - its own caller is told
                    followed = ALONE
                if followed is ALONE:
                    failed.append(key)
                elif followed is not None:
                    made[key] = followed
        if failed:
            values, _ = await self._timed(compute, failed, wanted, None)
            made |= {key: partial(same, value) for key, value in zip(failed, values, strict=True)}
        return made

    async def _timed(
        self, compute: Compute[T], keys: Sequence[Key], wanted: Mapping[Key, tuple[Scope, T]], tenant: str | None
    ) -> tuple[Sequence[object], float]:
        async def computed() -> object:
            return await compute([wanted[key][1] for key in keys])

        return await self._fill.timed_async(computed, keys, tenant)  # type: ignore[return-value]

    async def _lead(
        self,
        led: Mapping[Key, Flight],
        wanted: Mapping[Key, tuple[Scope, T]],
        compute: Compute[T],
        ttl: float | None,
        since: float | None,
    ) -> dict[Key, Make]:
        """Compute what no other process is at, then watch for the rest, and compute what those give up, or what takes
        them too long."""
        import asyncio

        settings = self._fill.settings
        made: dict[Key, Make] = {}
        left = dict(led)

        def land(found: Mapping[Key, Make]) -> None:
            made.update(found)
            for key, make in found.items():
                self._flights.land(left.pop(key), make)

        waited, pause = 0.0, settings.poll_seconds
        try:
            while True:
                land(await self._step(left, wanted, compute, ttl, since, land, waited >= settings.patience_seconds))
                if not left:
                    return made
                with lent():
                    await asyncio.sleep(pause)
                waited += pause
                pause = min(pause * 1.5, 20 * settings.poll_seconds)
        except Exception as error:
            self._fill.end(left, {}, partial(self._flights.fail, error=error))
            raise
        except BaseException:  # cancelled
            self._fill.end(left, {}, self._flights.abandon)
            raise

    async def _step(
        self,
        left: Mapping[Key, Flight],
        wanted: Mapping[Key, tuple[Scope, T]],
        compute: Compute[T],
        ttl: float | None,
        since: float | None,
        land: Callable[[Mapping[Key, Make]], None],
        impatient: bool,
    ) -> dict[Key, Make]:
        """Claim, look once more, and compute what is ours now; or all of it, claimed or not."""
        flights = dict(left)
        with ExitStack() as ends:
            for flight in flights.values():
                ends.enter_context(leading(flight))
            won, looks = await self._claiming(list(flights))
            claims = {
                key: ends.enter_context(Released(self._claims if mine else None, flight))
                for (key, flight), mine in zip(flights.items(), won, strict=True)
                if mine or impatient
            }
            found = {
                key: look.make
                for key, look in zip(flights, looks, strict=True)
                if look.make is not None and look.since(since)  # landed since our miss
            }
            land(found)
            mine = [key for key in claims if key not in found]
            if not mine:
                return {}
            values, seconds = await self._timed(compute, mine, wanted, wanted[mine[0]][0].tenant)
            keep = partial(self._keep, flights, mine, values, claims, wanted, seconds / len(mine), ttl)
            return await self._fill.in_pool(keep) if self._store.lower or len(mine) > _FEW else keep()

    def _keep(
        self, led: Mapping[Key, Flight], mine: Sequence[Key], values: Sequence[object], claims: Mapping[Key, Released],
        wanted: Mapping[Key, tuple[Scope, T]], seconds: float, ttl: float | None,
    ) -> dict[Key, Make]:  # fmt: skip
        return {
            key: self._fill.keep(led[key], wanted[key][0], value, seconds, ttl, claims[key].hand_over())
            for key, value in zip(mine, values, strict=True)
        }

    async def _claiming(self, keys: list[Key]) -> tuple[list[bool], list[Lookup]]:
        """Claim what can be claimed, and look once more: in a thread, where anything may be slow. Who is cancelled
        meanwhile gives back what was claimed."""
        import asyncio

        claims = self._claims

        def claim() -> tuple[list[bool], list[Lookup]]:
            won = [True] * len(keys) if claims is None else claims.acquire_all(keys)
            return won, self._store.find(keys, counted=False)

        if claims is None and not self._store.lower:
            return claim()
        claimed = asyncio.get_running_loop().run_in_executor(self._fill.pool(), copy_context().run, claim)

        def give_back(done: asyncio.Future[tuple[list[bool], list[Lookup]]]) -> None:
            if claims is not None and not done.cancelled() and done.exception() is None:
                for key, won in zip(keys, done.result()[0], strict=True):
                    if won:
                        claims.release(key)

        try:
            return await asyncio.shield(claimed)
        except asyncio.CancelledError:
            claimed.add_done_callback(give_back)
            raise
