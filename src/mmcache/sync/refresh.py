"""Recomputing at once what has changed, instead of at the next request: functions of the user, beside the runner."""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from mmcache.model.errors import SettingsError
from mmcache.sync.envelope import Message, RowChange
from mmcache.sync.mapping import Table

MOST_WAITING = 10_000
"""Rows that wait to be refreshed; beyond, the oldest are left to their next request."""

Refresher = Callable[[RowChange], object]


def load(tables: Mapping[str, Table]) -> dict[str, Refresher]:
    """The functions that the mapping names, by what rows call the table. Raises `SettingsError`."""
    found: dict[str, Refresher] = {}
    for name, table in tables.items():
        if table.refresh is None:
            continue
        module, _, attribute = table.refresh.partition(":")
        try:
            function: Any = importlib.import_module(module)
            for part in attribute.split("."):
                function = getattr(function, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise SettingsError(f"tables: {name}: cannot import refresh {table.refresh}: {error}") from error
        if not callable(function):
            raise SettingsError(f"tables: {name}: refresh {table.refresh} is no function")
        found[table.name or name] = function
    return found


class Refreshes:
    """One thread that calls them, row by row: a row that changes again while it waits is refreshed once.

    They never hold the moving of editions up, so they may be slow, fall behind, and fail.
    """

    def __init__(self, functions: Mapping[str, Refresher]) -> None:
        self._functions = functions
        self._waiting: OrderedDict[tuple[str, tuple[object, ...]], tuple[RowChange, Message]] = OrderedDict()
        self._failed: list[tuple[str, Message]] = []
        self._changed = threading.Condition()
        self._ended = False
        self._busy = False
        self._thread: threading.Thread | None = None
        self.done = self.left_out = 0

    def add(self, change: RowChange, message: Message) -> None:
        """Soon."""
        with self._changed:
            self._waiting.pop((change.table, change.key), None)
            self._waiting[change.table, change.key] = change, message
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popitem(last=False)
                self.left_out += 1
            self._changed.notify_all()
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._run, name="mmcache-refresh", daemon=True)
                self._thread.start()

    def failed(self) -> list[tuple[str, Message]]:
        """Those that failed and were not noted yet, and why."""
        with self._changed:
            return list(self._failed)

    def noted(self) -> None:
        """The first of them is kept elsewhere."""
        with self._changed:
            del self._failed[0]

    def settle(self, seconds: float) -> bool:
        """Wait until none waits, for so long at most; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, seconds)

    def close(self) -> None:
        """Leave out what waits; does not wait for one that is under way."""
        with self._changed:
            self._ended = True
            self.left_out += len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._waiting) or self._ended)
                if self._ended:
                    return
                _, (change, message) = self._waiting.popitem(last=False)
                self._busy = True
            try:
                self._functions[change.table](change)
            except Exception as error:  # noqa: BLE001 a function of the user, whose faults must not stop the runner
                with self._changed:
                    self._failed.append((f"{type(error).__name__}: {error}", message))
            else:
                self.done += 1
