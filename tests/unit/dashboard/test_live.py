"""Server-sent events: one a tick when something came, comments while nothing does, an end when the server ends."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.dashboard.store_world import HOUR_AGO, a_store, lookup, put

from mmcache.dashboard.live import HEARTBEAT, Live


async def test_a_tick_says_what_came_since_the_last_one() -> None:
    with a_store() as store:
        live = Live(store, every=0.001)
        stream = live._ticks()
        assert await anext(stream) == b": mmcache\n\n"
        put(store, lookup(HOUR_AGO, weight=10.0), lookup(HOUR_AGO + 5, "absent", weight=30.0))
        assert said(await tick(stream)) == {
            "to": HOUR_AGO + 5, "spans": 2, "lookups": 40.0, "hits": 10.0, "ratio": 0.25,
        }  # fmt: skip
        put(store, lookup(HOUR_AGO + 6))
        assert said(await tick(stream))["spans"] == 1
        assert await anext(stream) == b": still here\n\n"
        live.end()
        assert [piece async for piece in stream] == []


async def test_quiet_streams_say_that_they_are_there() -> None:
    with a_store() as store:
        live = Live(store, every=0.0001)
        stream = live._ticks()
        await anext(stream)
        assert [await anext(stream) for _ in range(3)] == [b": still here\n\n"] * 3
        assert HEARTBEAT > 1
        await stream.aclose()  # type: ignore[attr-defined]


async def tick(stream: Any) -> bytes:
    """The next event; comments are passed over."""
    while not (piece := await anext(stream)).startswith(b"event"):
        pass
    return bytes(piece)


def said(piece: bytes) -> dict[str, Any]:
    name, data, *rest = piece.decode().split("\n")
    assert (name, rest) == ("event: tick", ["", ""])
    found: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return found
