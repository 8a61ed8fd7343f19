"""`Uses`: which of the blocks that were warmed are later hit, by kind. A watcher: it reads the cache's events."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mmcache.cache import Cache
from mmcache.model.errors import SettingsError
from mmcache.model.event import Event, Hit
from mmcache.model.key import Key
from mmcache.prefetch.media.journal import FOLDER, MOST_FILES, Journal
from mmcache.prefetch.media.task import KINDS, Kind

MOST_KEYS = 65_536
"""Warmed blocks whose use is watched; beyond, the oldest are forgotten."""
FILE = "uses.json"


class Uses:
    """Counts, for each kind, blocks that were warmed and those of them that were hit since, each once.

    `with Uses.of(cache) as uses:` around an application's work reads its events at every `drain()` and at its end,
    and keeps the counts in the cache folder, where the next warming finds them. Hits that `peek` and `get` serve from
    memory are in no event, so only the *shares* of the kinds among each other mean something.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._warmed: OrderedDict[Key, Kind] = OrderedDict()
        self._counts: dict[Kind, list[int]] = {kind: [0, 0] for kind in KINDS}
        self._cache: Cache | None = None
        self._feed: Any = None
        self._feeding: Any = None

    @staticmethod
    def of(cache: Cache) -> Uses:
        """With what the cache folder knows: earlier counts, and the keys in the newest journals."""
        folder = None if cache.root is None else cache.root / FOLDER
        uses = Uses(None if folder is None else folder / FILE)
        if folder is not None and folder.is_dir():
            uses._load()
            newest = sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime)[-MOST_FILES:]
            for path in newest:
                for task, keys in Journal(path).read().done.items():
                    uses._watch(task.kind, keys)
        uses._cache = cache
        return uses

    def counts(self) -> dict[Kind, tuple[int, int]]:
        """Kind → (warmed, used)."""
        return {kind: (warmed, used) for kind, (warmed, used) in self._counts.items()}

    def warmed(self, kind: Kind, keys: Iterable[Key]) -> None:
        """Blocks were made."""
        keys = list(keys)
        self._counts[kind][0] += len(keys)
        self._watch(kind, keys)

    def count(self, kind: Kind, *, warmed: int, used: int) -> None:
        """What somebody else has observed. Raises `SettingsError` unless 0 <= used <= warmed."""
        if not 0 <= used <= warmed:
            raise SettingsError(f"of {warmed} blocks that were warmed, {used} cannot have been used")
        self._counts[kind][0] += warmed
        self._counts[kind][1] += used

    def observe(self, events: Iterable[Event]) -> None:
        """Blocks may have been hit."""
        for event in events:
            if isinstance(event, Hit) and (kind := self._warmed.pop(event.key, None)) is not None:
                self._counts[kind][1] += 1

    def drain(self) -> None:
        """Take in what has happened since the last time."""
        if self._feed is not None:
            self.observe(self._feed.drain())

    def __enter__(self) -> Self:
        if self._cache is not None:
            self._feeding = self._cache.events.feed()
            self._feed = self._feeding.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drain()
        if self._feeding is not None:
            self._feeding.__exit__(None, None, None)
            self._feed = self._feeding = None
        self.save()

    def save(self) -> None:
        """Into the cache folder, where there is one. Raises `OSError`."""
        if self._path is None:
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_name(f".{FILE}.part")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(self._counts), encoding="utf-8")
        draft.replace(self._path)

    def _watch(self, kind: Kind, keys: Iterable[Key]) -> None:
        for key in keys:
            self._warmed[key] = kind
            self._warmed.move_to_end(key)
        while len(self._warmed) > MOST_KEYS:
            self._warmed.popitem(last=False)

    def _load(self) -> None:
        assert self._path is not None
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            counts = {kind: [int(one) for one in found[kind]] for kind in KINDS}
        except (OSError, ValueError, TypeError, KeyError):
            return  # nothing is known, which is where everybody begins
        if all(len(pair) == 2 and 0 <= pair[1] <= pair[0] for pair in counts.values()):
            self._counts = counts
