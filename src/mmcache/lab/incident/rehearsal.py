"""The night of the incident with real parts: three processes with a cache each, and a real `mmcache dashboard`.

At 02:15 the model of `encoder-2` becomes another version; at 02:20 the batch tenant begins to ask for what nobody asked
for before. Only the clock is the story's: see `relay`. What is measured of it is no result.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, cast

import msgspec

from mmcache.lab.incident.relay import MINUTE_SECONDS, Relay
from mmcache.model.errors import DashboardError

INSTANCES = ("encoder-1", "encoder-2", "encoder-3")
CHANGED = "encoder-2"
DAY = 86_400
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Plan:
    """The story, minute by minute."""

    before: int = 20
    """Minutes before 02:15."""
    after: int = 20
    """Minutes after it."""
    flood_after: int = 5
    """The flood begins so many minutes after it."""
    lookups: int = 60
    """Of users, a minute and process."""
    batch: int = 8
    flood: int = 90
    memory: str = "64MiB"
    midnight: float | None = None
    """Of the story, Unix seconds; None = of the last night that is over, UTC."""

    @property
    def swap(self) -> float:
        """02:15 of the story."""
        night = self.midnight if self.midnight is not None else (time.time() - 4 * 3600) // DAY * DAY
        return night + 2.25 * 3600

    @property
    def flood_at(self) -> float:
        """When the flood begins."""
        return self.swap + self.flood_after * MINUTE_SECONDS

    @property
    def window(self) -> tuple[float, float]:
        """The whole story, Unix seconds."""
        swap = self.swap
        return swap - self.before * MINUTE_SECONDS, swap + self.after * MINUTE_SECONDS


class Rehearsal:
    """All processes, in `folder`. `play()` once; the dashboard goes on until `close()`."""

    def __init__(self, folder: Path, plan: Plan | None = None) -> None:
        self.plan, self._folder = plan or Plan(), folder
        self._processes: list[subprocess.Popen[str]] = []
        self._relay: Relay | None = None
        try:
            store = str(folder / "traces.duckdb")
            words = ["-m", "mmcache.cli", "dashboard", "--otlp", "127.0.0.1:0", "--store", store, "--gpu-hour", "2.5"]
            self._dashboard = self._start([*words, "--json"])
            self.page: str = _heard(self._dashboard)["page"]
            """The dashboard's address."""
            self._relay = Relay(self.page)
            self._workers = {
                name: self._start(
                    ["-m", "mmcache.lab.incident.worker", str(folder / "cache"), name, self._relay.address,
                     self.plan.memory]
                )
                for name in INSTANCES
            }  # fmt: skip
            for worker in self._workers.values():
                _heard(worker)
        except BaseException:
            self.close()
            raise

    def _start(self, words: list[str]) -> subprocess.Popen[str]:
        errors = (self._folder / "errors.txt").open("a")
        with errors:
            process = subprocess.Popen(
                [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self._processes.append(process)
        return process

    def play(self, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
        """The whole story; how many lookups there were. All of them are in the dashboard's store when it returns."""
        plan, lookups = self.plan, 0
        start = plan.window[0]
        assert self._relay is not None
        for number in range(plan.before + plan.after):
            if number == plan.before:
                self._ordered({CHANGED: {"do": "swap"}})
            batch = plan.flood if number >= plan.before + plan.flood_after else plan.batch
            order = {"do": "round", "number": number, "lookups": plan.lookups, "batch": batch}
            told = self._ordered(dict.fromkeys(INSTANCES, order))
            if any(one["dropped"] or not one["sent"] for one in told):
                raise DashboardError(f"spans were lost: {told}; see {self._folder / 'errors.txt'}")
            lookups += sum(one["lookups"] for one in told)
            self._relay.tell(start + number * MINUTE_SECONDS)
            progress(number + 1, plan.before + plan.after)
        self._arrived(lookups)
        return lookups

    def _ordered(self, orders: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
        for name, order in orders.items():
            _spoken(self._workers[name], order)
        return [_heard(self._workers[name]) for name in orders]

    def _arrived(self, lookups: int) -> None:
        """The dashboard answers with what it has written: it is a moment behind."""
        end = time.monotonic() + PATIENCE_SECONDS
        start, until = self.plan.window
        while True:
            series = self.get("ratio", **{"from": start, "to": until, "points": 40})["series"]
            found = sum(sum(one["hits"]) + sum(one["misses"]) for one in series)
            if round(found) == lookups:
                return
            if time.monotonic() > end:
                raise DashboardError(f"{found:.0f} of {lookups} lookups arrived; see {self._folder / 'errors.txt'}")
            time.sleep(0.05)

    def get(self, path: str, **query: Any) -> Any:
        """What the dashboard's API answers."""
        from urllib.parse import urlencode
        from urllib.request import ProxyHandler, build_opener

        url = f"{self.page}/api/v1/{path}?{urlencode(query)}"
        with build_opener(ProxyHandler({})).open(url, timeout=PATIENCE_SECONDS) as answer:
            return msgspec.json.decode(answer.read())

    def close(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.stdin and process.stdin.close()
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout and process.stdout.close()
        self._processes.clear()
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _heard(process: subprocess.Popen[str]) -> dict[str, Any]:
    line = cast(IO[str], process.stdout).readline()
    if not line:
        raise DashboardError(f"a process of the rehearsal ended with {process.wait()}: {process.args!r}")
    said: dict[str, Any] = json.loads(line)
    return said


def _spoken(process: subprocess.Popen[str], order: dict[str, Any]) -> None:
    pipe = cast(IO[str], process.stdin)
    pipe.write(json.dumps(order) + "\n")
    pipe.flush()
