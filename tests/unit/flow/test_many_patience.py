"""Patience is had once for a batch, not once for each of its keys; and claims of other processes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.flow.test_many import Item, item, settle

from mmcache import Cache
from mmcache.tiers.disk.claims import FileClaims


def impatient(cache: Cache, seconds: float) -> None:
    """The cache's patience."""
    fill = cache.answers._fill
    fill.settings = replace(fill.settings, poll_seconds=seconds / 4, patience_seconds=seconds)


def test_who_follows_a_batch_that_hangs_computes_all_of_it_in_one_call() -> None:
    async def main() -> None:
        with Cache() as cache:
            entered, calls = asyncio.Event(), list[list[str]]()

            async def hangs(items: Sequence[Item]) -> list[object]:
                entered.set()
                await asyncio.Event().wait()
                raise AssertionError

            async def works(items: Sequence[Item]) -> list[object]:
                calls.append([i.name for i in items])
                return [i.name for i in items]

            names = [f"t{number}" for number in range(200)]
            items = [item(cache, name) for name in names]
            leader = asyncio.create_task(settle(cache, items, hangs))
            await entered.wait()
            impatient(cache, 0.01)
            waits: list[float | None] = []
            follow = cache.answers._fill.follow_async

            async def followed(flight: object, patience: float | None = None) -> object:
                waits.append(patience)
                return await follow(flight, patience)  # type: ignore[arg-type]

            cache.answers._fill.follow_async = followed  # type: ignore[method-assign,assignment]
            assert await settle(cache, items, works) == names
            assert calls == [names]
            assert len(waits) == 200
            assert max(w for w in waits[1:] if w is not None) < 0.01
            leader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leader

    asyncio.run(main())


def test_what_another_process_holds_too_long_is_computed_in_one_call(tmp_path: Path) -> None:
    async def main() -> None:
        with Cache(tmp_path) as cache:
            calls: list[list[str]] = []

            async def compute(items: Sequence[Item]) -> list[object]:
                calls.append([i.name for i in items])
                return [i.name for i in items]

            items = [item(cache, name) for name in "abcd"]
            other = FileClaims(tmp_path / "claims")
            assert other.acquire_all([i.key for i in items[:3]]) == [True] * 3
            impatient(cache, 0.01)
            assert await settle(cache, items, compute) == ["a", "b", "c", "d"]
            assert calls == [["d"], ["a", "b", "c"]]
            other.close()

    asyncio.run(main())


def test_what_another_process_gives_up_is_computed_in_one_call_and_what_it_stored_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        with Cache(tmp_path) as cache:
            calls: list[list[str]] = []
            items = [item(cache, name) for name in "abcd"]
            other = FileClaims(tmp_path / "claims")
            other.acquire_all([i.key for i in items[:3]])

            async def compute(items: Sequence[Item]) -> list[object]:
                calls.append([i.name for i in items])
                if len(calls) == 1:  # the other process stores one, and fails with the others
                    cache.put(first.key, "stored")
                    other.close()
                return [i.name for i in items]

            first = items[0]
            assert await settle(cache, items, compute) == ["stored", "b", "c", "d"]
            assert calls == [["d"], ["b", "c"]]
            cache.flush()  # claims are given back when their values can be read
            mine = FileClaims(tmp_path / "claims")
            assert mine.acquire_all([i.key for i in items]) == [True] * 4  # nothing is held any more
            mine.close()

    asyncio.run(main())


def test_crossing_batches_of_two_processes_compute_each_key_once(tmp_path: Path) -> None:
    """Two caches of one folder: flights and claims of their own, as two processes have them."""

    async def main() -> None:
        with Cache(tmp_path) as one, Cache(tmp_path) as other:
            computed: list[str] = []

            async def compute(items: Sequence[Item]) -> list[object]:
                computed.extend(i.name for i in items)
                await asyncio.sleep(0)
                return [i.name.upper() for i in items]

            def items(cache: Cache, names: str) -> list[Item]:
                return [item(cache, name) for name in names]

            made: object = await asyncio.wait_for(
                asyncio.gather(
                    settle(one, items(one, "xy"), compute), settle(other, items(other, "yx"), compute),
                    settle(one, items(one, "yz"), compute), settle(other, items(other, "zxw"), compute),
                ),
                60,
            )  # fmt: skip
            assert made == [["X", "Y"], ["Y", "X"], ["Y", "Z"], ["Z", "X", "W"]]
            assert sorted(computed) == ["w", "x", "y", "z"]

    asyncio.run(main())
