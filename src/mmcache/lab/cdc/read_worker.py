"""A process that serves rows through a cache, `python -m … CONFIG.json`: one host of several.

It answers orders, one JSON line each: `settle` waits until rows are kept, `warm` reads rows before they change, `begin`
reads rows that have been changed again and again until it is served their new version, `end` says what it was served,
`check` reads them once more.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mmcache.cache import Cache
from mmcache.keys.realm import load_secret
from mmcache.lab.cdc.board import Board
from mmcache.lab.cdc.postgres import client, connected
from mmcache.rows import Row

TABLE = "products"
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.002, 0.02
"""Between two turns; doubled while nothing comes."""
_SETTLE_SECONDS = 30.0
_AGAIN = 0.1
"""In so many turns, a row that was seen before is read again."""
_AT_ONCE = 8
"""Rows looked at in a turn."""


def vector(text: str) -> np.ndarray[Any, Any]:
    """What stands for a model: the row and the version that its input names, and a vector of them."""
    row, version, _ = text.split(":", 2)
    return np.array([int(row), int(version)] * 128, np.int64)


class Reading:
    """Reads rows as callers would, and notes what it was served."""

    def __init__(self, cache: Cache, port: int, board: Board) -> None:
        self._encode = cache.wrap(vector, modality="text", signature="lab-rows-1", guard=False)
        self._cache, self._port, self._board = cache, port, board
        self._database: Any = None
        self._reset()

    def _reset(self) -> None:
        self._target = 0
        self._seen: OrderedDict[int, float] = OrderedDict()
        self._old: list[tuple[int, float]] = []
        self._reads = self._loads = self._wrong = self._unanswered = 0
        self._ended = threading.Event()
        self._settled = threading.Event()

    def read(self, row: int) -> tuple[int, float, float] | None:
        """The version served, and when the question and the answer were; None where the database is away."""
        began = time.monotonic()
        try:
            value = self._encode.row(Row(TABLE, row), partial(self._load, row))
        except client().Error:
            self._unanswered += 1
            self._disconnect()
            return None
        ended = time.monotonic()
        self._reads += 1
        self._wrong += int(value[0]) != row
        return int(value[1]), began, ended

    def _load(self, row: int) -> str:
        if self._database is None:
            self._database = connected(self._port)
        self._loads += 1
        with self._database.cursor() as cursor:
            cursor.execute("SELECT version, title FROM products WHERE id = %s", (row,))
            version, title = cursor.fetchone()
        return f"{row}:{version}:{title}"

    def _disconnect(self) -> None:
        if self._database is not None:
            with suppress(client().Error):
                self._database.close()
            self._database = None

    # orders

    def warm(self, rows: list[int], **_: Any) -> dict[str, Any]:
        """Read them, so that they are kept as they are."""
        for row in rows:
            self.read(row)
        self._cache.flush()
        return {"reads": self._reads, "unanswered": self._unanswered}

    def settle(self, row: int, **_: Any) -> dict[str, Any]:
        """Read this row until it is served without being loaded: then rows are followed, and kept."""
        end = time.monotonic() + _SETTLE_SECONDS
        while time.monotonic() < end:
            before = self._loads
            self.read(row)
            if self._loads == before:
                return {"kept": True}
            time.sleep(_LONGEST_PAUSE_SECONDS)
        return {"kept": False}

    def begin(self, rows: list[int], version: int, **_: Any) -> dict[str, Any]:
        """Read them from when they are committed, in this order, until each is served as this version or later."""
        self._reset()
        self._target = version
        threading.Thread(target=self._follow, args=(rows,), daemon=True).start()
        return {}

    def _follow(self, rows: list[int]) -> None:
        pending: OrderedDict[int, None] = OrderedDict()
        come, pause = 0, _PAUSE_SECONDS
        draw = random.Random(1)
        while not self._ended.is_set():
            committed = self._board.committed
            while come < len(rows) and rows[come] <= committed:
                pending[rows[come]] = None
                come += 1
            before = len(pending)
            for row in list(islice(pending, _AT_ONCE)):
                found = self.read(row)
                if found is not None and found[0] >= self._target:
                    self._seen[row] = found[2]
                    del pending[row]
                elif found is not None:
                    self._old.append((row, found[1]))
            if come and draw.random() < _AGAIN:  # what was served as new once must not be old again
                row = rows[draw.randrange(come)]
                found = self.read(row)
                if found is not None and found[0] < self._target:
                    self._old.append((row, found[1]))
            if come == len(rows) and not pending:
                self._settled.set()
            pause = (
                min(2 * pause, _LONGEST_PAUSE_SECONDS)
                if before > _AT_ONCE and len(pending) == before
                else _PAUSE_SECONDS
            )
            time.sleep(pause)
        self._settled.set()

    def end(self, patience: float, **_: Any) -> dict[str, Any]:
        """Stop once every row was served as new, or after so many seconds: when each was, and every old one served."""
        settled = self._settled.wait(patience)
        self._ended.set()
        return {
            "settled": settled, "seen": list(self._seen.items()), "old": self._old, "reads": self._reads,
            "loads": self._loads, "wrong": self._wrong, "unanswered": self._unanswered,
        }  # fmt: skip

    def check(self, rows: list[int], version: int, **_: Any) -> dict[str, Any]:
        """How many of them are still served in an older version."""
        found = [self.read(row) for row in rows]
        return {"old": sum(1 for one in found if one is not None and one[0] < version), "wrong": self._wrong}


def main(config_file: Path) -> None:
    """Take orders until standard input ends."""
    config: Mapping[str, Any] = json.loads(config_file.read_text(encoding="utf-8"))
    secret = load_secret(config["secret_file"])
    with Cache(config["folder"], shared=config["shared"], secret=secret, memory="256MiB", disk="1GiB") as cache:
        reading = Reading(cache, config["port"], Board(Path(config["board"])))
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            print(json.dumps(getattr(reading, order.pop("do"))(**order)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
