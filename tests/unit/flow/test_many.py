"""Batches of coroutines: each key computed once, nobody waits for ever, nobody fails with another's batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from mmcache import Cache, Key
from mmcache.scopes import Scope


@dataclass(frozen=True)
class Item:
    key: Key
    scope: Scope
    name: str


def item(cache: Cache, name: str) -> Item:
    key = cache.key(name, modality="text", signature="v1")
    return Item(key, cache.scopes.require(key), name)


async def settle(cache: Cache, items: Sequence[Item], compute: object, **options: object) -> list[object]:
    made = await cache.answers.settle_many_async({i.key: i for i in items}, compute, **options)  # type: ignore[arg-type]
    return [made[i.key] for i in items]


@pytest.mark.parametrize("disk", [False, True])
def test_crossing_batches_compute_each_key_once(tmp_path: Path, disk: bool) -> None:
    async def main() -> None:
        with Cache(tmp_path if disk else None) as cache:
            computed: list[str] = []

            async def compute(items: Sequence[Item]) -> list[object]:
                computed.extend(i.name for i in items)
                await asyncio.sleep(0)
                return [i.name.upper() for i in items]

            a, b, c = (item(cache, name) for name in "abc")
            made: object = await asyncio.gather(
                settle(cache, [a, b], compute), settle(cache, [b, c], compute), settle(cache, [c, a], compute)
            )
            assert made == [["A", "B"], ["B", "C"], ["C", "A"]]
            assert sorted(computed) == ["a", "b", "c"]
            looks = await cache.answers.look_up_many_async([a.key, b.key, c.key])
            assert [look.make() for look in looks if look.make] == ["A", "B", "C"]
            assert cache.stats().hits == 3

    asyncio.run(main())


def test_who_waited_for_a_batch_that_failed_computes_and_does_not_fail_with_it() -> None:
    async def main() -> None:
        with Cache() as cache:
            entered, release = asyncio.Event(), asyncio.Event()

            async def fails(items: Sequence[Item]) -> list[object]:
                entered.set()
                await release.wait()
                raise LookupError("one of the two is too long")

            async def works(items: Sequence[Item]) -> list[object]:
                return [i.name for i in items]

            a, b, c = (item(cache, name) for name in "abc")
            leader = asyncio.create_task(settle(cache, [a, b], fails))
            await entered.wait()
            follower = asyncio.create_task(settle(cache, [c, a, b], works))
            await asyncio.sleep(0)
            release.set()
            with pytest.raises(LookupError):
                await leader
            assert await follower == ["c", "a", "b"]

    asyncio.run(main())


def test_who_waited_for_a_cancelled_batch_takes_over() -> None:
    async def main() -> None:
        with Cache() as cache:
            entered = asyncio.Event()

            async def never(items: Sequence[Item]) -> list[object]:
                entered.set()
                await asyncio.Event().wait()
                raise AssertionError

            async def works(items: Sequence[Item]) -> list[object]:
                return [i.name for i in items]

            a, b = item(cache, "a"), item(cache, "b")
            leader = asyncio.create_task(settle(cache, [a, b], never))
            await entered.wait()
            follower = asyncio.create_task(settle(cache, [a], works))
            await asyncio.sleep(0)
            leader.cancel()
            assert await follower == ["a"]
            assert cache.get(a.key) == "a"
            with pytest.raises(asyncio.CancelledError):
                await leader

    asyncio.run(main())


def test_what_was_stored_earlier_than_wanted_is_computed_anew() -> None:
    async def main() -> None:
        with Cache() as cache:
            one = item(cache, "a")
            cache.put(one.key, "old")

            async def compute(items: Sequence[Item]) -> list[object]:
                return ["new"]

            now = cache.clock.wall() + 1
            (look,) = await cache.answers.look_up_many_async([one.key], since=now)
            assert (look.make, look.reason) == (None, "expired")
            assert await settle(cache, [one], compute, since=now) == ["new"]
            assert cache.get(one.key) == "new"

    asyncio.run(main())


def test_invalidated_while_it_is_computed_it_is_returned_and_not_stored() -> None:
    async def main() -> None:
        with Cache() as cache:
            one = item(cache, "a")

            async def compute(items: Sequence[Item]) -> list[object]:
                cache.invalidate(one.key)
                return ["value"]

            assert await settle(cache, [one], compute) == ["value"]
            assert cache.get(one.key) is None

    asyncio.run(main())
