"""The night of table `clock`: servers whose clocks are skewed, set at 02:15 and put right again, and who reads them.

Everything happens in real seconds. A key is asked for by batches all the time; what an answer proves is judged by when
the question went out and the answer came in, so a slow machine sees less and never sees wrongly.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from mmcache.lab.servers import Elsewhere, Server, server
from mmcache.model.errors import AssetError
from mmcache.model.event import MissReason
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.valkey import ValkeyTier

STEP = 120.0
"""Seconds by which a clock is set."""
RECOMPUTE = 0.5
"""Seconds that a recompute takes: keys that vanish within it are recomputed side by side."""
_ASKED_EVERY = 0.05
_SETTLE = 2.0
"""Seconds in which the servers start."""
_SET_AT, _SECOND_WRITES, _WRITER_GONE, _LATER_COMES = 3.0, 4.0, 4.5, 5.0
_SET_BACK = 0.7
"""Share of the night after which the clocks are put right."""
_SHORTEST = 2.0
"""Seconds that a key lives at least."""
_WATCHED_ON = 1.5
"""Seconds after the last deadline."""
_WRITER = 1
_APART = 1e5
"""Seconds by which the machines' own times differ."""
_NOBODYS = 1 << 40

NODES: dict[str, tuple[float, float]] = {
    "skew-1": (0.042, 0.0),
    "back": (-0.029, -STEP),
    "skew-2": (0.067, 0.0),
    "forward": (0.0, STEP),
}
"""Name → skew in seconds, and by how much the clock is set at 02:15. The last node is an addition of ours."""


@dataclass
class Life:
    """One key of one node, as its readers saw it; seconds since the night began."""

    deadline: float
    before: float = 0.0
    """The first answer that said that it was gone came in that long before the deadline."""
    past: float = 0.0
    """The last question that went out after the deadline and found it alive, that long after."""
    died: float | None = None
    """When the first answer came in that said that it was gone."""
    asked: int = 0
    unanswered: int = 0
    """Answers that said neither: nobody could vouch for the deadline."""


@dataclass
class Night:
    """What became of all keys: node → way → lives."""

    lives: dict[str, dict[str, list[Life]]] = field(default_factory=dict)


WAYS = ("px", "pxat", "ours")
"""`px`: expiry by the server, in milliseconds from now, as most caches do. `pxat`: at a time by the client's wall
clock, which is right. `ours`: the Valkey tier."""


def spend(folder: Path, seed: int, keys: int, seconds: float) -> Night:
    """One night. Every node gets `keys` keys a way, a third of them after the step; all end within `seconds`.

    Raises `AssetError` where servers or libfaketime are missing.
    """
    with ExitStack() as opened:
        return _Spending(folder, seed, keys, seconds, opened).run()


class _Spending:
    """`base` is by how much everybody's wall clock is ahead of this machine's, so that the night is a night."""

    def __init__(self, folder: Path, seed: int, keys: int, seconds: float, opened: ExitStack) -> None:
        self.random, self.keys, self.seconds, self.opened = random.Random(seed), keys, seconds, opened
        started = datetime.now().astimezone()
        step = started.replace(hour=2, minute=15, second=0, microsecond=0)
        self.base = (step - started).total_seconds() - _SET_AT - _SETTLE
        self.began = time.monotonic() + _SETTLE
        self.servers: dict[str, Server] = {
            name: opened.enter_context(server(folder / name, self.base + skew)) for name, (skew, _) in NODES.items()
        }
        self.night = Night({name: {way: [] for way in WAYS} for name in NODES})
        self.plain = {
            name: opened.enter_context(redis_client(node.port)) for name, node in self.servers.items()
        }  # fmt: skip
        self.writer = self._tiers(_WRITER)
        self.readers = [self._tiers(2)]

    def now(self) -> float:
        return time.monotonic() - self.began

    def run(self) -> Night:
        for tiers in (self.writer, *self.readers) * 2:
            _look(tiers)
        time.sleep(max(0.0, -self.now()))
        plan: list[tuple[float, Callable[[], None]]] = [
            (0.0, lambda: self._write(self.keys - self.keys // 3)),
            (_SET_AT, lambda: self._set(1.0)),
            (_SECOND_WRITES, lambda: self._write(self.keys // 3)),
            (_WRITER_GONE, lambda: self.writer.clear()),
            (_LATER_COMES, lambda: self.readers.append(self._tiers(3))),
            (_SET_BACK * self.seconds, lambda: self._set(0.0)),
        ]
        while (now := self.now()) < self.seconds + _WATCHED_ON:
            while plan and plan[0][0] <= now:
                plan.pop(0)[1]()
            _look(self.writer)
            self._ask_all()
            time.sleep(max(0.0, _ASKED_EVERY - (self.now() - now)))
        return self.night

    def _tiers(self, number: int) -> dict[str, ValkeyTier]:
        """Those of one more machine."""
        clock = Elsewhere(_APART * number)
        found = {
            name: ValkeyTier.open(
                node.url, clock=clock, machine=b"machine%d" % number, asleep=lambda: 0.0, timeout_seconds=10
            )
            for name, node in self.servers.items()
        }
        for tier in found.values():
            self.opened.callback(tier.close)
        return found

    def _set(self, stepped: float) -> None:
        for name, (skew, by) in NODES.items():
            self.servers[name].set_clock(self.base + skew + by * stepped)

    def _write(self, count: int) -> None:
        for name, ways in self.night.lives.items():
            client, first = self.plain[name], len(ways["ours"])
            for number in range(first, first + count):
                # spread evenly over what is left of the night, so that keys that vanish together do so for a reason
                share = (number - first + self.random.random()) / count
                ttl = _SHORTEST + share * (self.seconds - self.now() - _SHORTEST)
                ways["px"].append(Life(self.now() + ttl))
                client.set(f"px:{number}", b"", px=round(ttl * 1000))
                ways["pxat"].append(Life(self.now() + ttl))
                client.set(f"pxat:{number}", b"", pxat=round((time.time() + self.base + ttl) * 1000))
                ways["ours"].append(Life(self.now() + ttl))
                deadline = time.monotonic() + _APART * _WRITER + ttl
                if self.writer[name].put([make_frame(make_key(number))], [deadline]) != [None]:
                    raise AssetError(f"the server {name} took no block; run the table again")

    def _ask_all(self) -> None:
        for name, ways in self.night.lives.items():
            for way in ("px", "pxat"):
                self._ask(ways[way], partial(_exist, self.plain[name], way))
            for tiers in self.readers:
                self._ask(ways["ours"], partial(_held, tiers[name]))

    def _ask(self, lives: list[Life], ask: Callable[[list[int]], list[bool | None]]) -> None:
        """Only for what is not long gone: another reader may still find it."""
        sent = self.now()
        numbers = [n for n, life in enumerate(lives) if life.died is None or sent < life.died + 2 * RECOMPUTE]
        if not numbers:
            return
        sent = self.now()
        answers = ask(numbers)
        received = self.now()
        for number, alive in zip(numbers, answers, strict=True):
            life = lives[number]
            life.asked += 1
            if alive is None:
                life.unanswered += 1
            elif alive:
                life.past = max(life.past, sent - life.deadline)
            else:
                life.before = max(life.before, life.deadline - received)
                life.died = received if life.died is None else life.died


def _look(tiers: dict[str, ValkeyTier]) -> None:
    for tier in tiers.values():
        tier.get([make_key(_NOBODYS)])


def redis_client(port: int) -> Any:
    """A plain client. Raises `AssetError` where the package is missing."""
    try:
        import redis
    except ImportError as error:
        raise AssetError("no redis client here: pip install 'mmcache[servers]'") from error
    return redis.Redis(port=port)


def _exist(client: Any, way: str, numbers: list[int]) -> list[bool | None]:
    pipeline = client.pipeline(transaction=False)
    for number in numbers:
        pipeline.exists(f"{way}:{number}")
    return [bool(there) for there in pipeline.execute()]


def _held(tier: ValkeyTier, numbers: list[int]) -> list[bool | None]:
    answers: list[bool | None] = []
    for found in tier.get([make_key(number) for number in numbers]):
        if isinstance(found, Found):
            answers.append(True)
        elif found in (MissReason.EXPIRED, MissReason.ABSENT):
            answers.append(False)
        else:
            answers.append(None)
    return answers
