"""What a cache shares with other hosts: the tier on Valkey or Redis, single flight, news, and editions of rows."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from blake3 import blake3

from mmcache.forks import Lock
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.clock import Clock
from mmcache.model.errors import SettingsError, TierError
from mmcache.model.event import Event, Failed, MissReason
from mmcache.model.key import Key
from mmcache.rows import Row, RowIds
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.client import Client, Down, Refusal, Request
from mmcache.tiers.valkey.editions import Editions
from mmcache.tiers.valkey.feed import Feed, News
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.news import NewsReader
from mmcache.tiers.valkey.realm import same_secret
from mmcache.tiers.valkey.tier import ValkeyTier
from mmcache.tiers.write_behind import WriteBehind

MOST_UNTOLD = 65_536
"""Invalidated keys that wait until the server can be told; beyond, all hosts forget everything instead."""
_ORIGIN_BYTES = 8


class Shared:
    """All of it, wired. `Spread.Elsewhere`."""

    def __init__(
        self,
        settings: SharedSettings,
        secret: bytes,
        *,
        folder: Path | None,
        clock: Clock,
        emit: Callable[[Event], None],
        catch_up: Callable[[], int],
        sequence: Callable[[], int],
        hear: Callable[[Sequence[Key] | None], None],
        heard: Callable[[Collection[bytes] | None], None],
    ) -> None:
        """folder: where the disk tier is, whose processes tell one another; None = there is none. `hear(keys)`: other
        hosts invalidated them, None = any. `heard(sources)`: what answers rest on has changed, likewise.

        Waits for one timeout at most. Raises `SettingsError` where caches of another secret share the prefix.
        """
        self._emit, self._hear, self._heard = emit, hear, heard
        self.client = Client(settings, clock=clock, emit=emit)
        self._require_same_secret(secret)
        self.valkey = ValkeyTier(settings, client=self.client, clock=clock, emit=emit)
        self.claims = self.valkey.claims
        self.tier = WriteBehind(
            self.valkey, backlog_bytes=settings.backlog_bytes, emit=emit, clock=clock, catch_up=catch_up,
            sequence=sequence, mark=self.valkey.tokens.mark,
        )  # fmt: skip
        self._names = Names(self.client.address.prefix)
        self._origin = _origin(folder)
        self._feed = Feed(self.client, self._origin)
        self._untold: set[Key] = set()
        self._lock = Lock()
        self.news = NewsReader(
            self.client, settings, self._feed, clock=clock, on_news=self._on_news, on_gap=self._on_gap, emit=emit,
            on_heard=self._tell_the_untold, memory=None if folder is None else folder / "news",
        )  # fmt: skip
        self._editions = Editions(self.client, self.news.heard, clock)
        self._ids = RowIds(secret)

    def _require_same_secret(self, secret: bytes) -> None:
        prefix = self.client.address.prefix
        same = same_secret(self.client, prefix, secret)
        if isinstance(same, Down | Refusal):
            self._emit(Failed("shared", f"the shared tier is left out for now: {same}"))
        elif not same:
            self.client.close()
            raise SettingsError(
                f"caches with another secret share the prefix {prefix!r}: nothing would ever be found. Give all hosts "
                "the same secret (copy the file realm.key of one, or pass secret=), or take another prefix"
            )

    # invalidation

    def holds(self, key: Key) -> bool:
        """Whether the server has a value of `key`, or may have one."""
        head = self._names.head(key)
        (reply,) = self.client.ask([Request(head, ("EXISTS", head))])
        return bool(reply != 0)

    def tell(self, keys: Sequence[Key], undropped: Collection[Key]) -> None:
        """Make all other hosts forget `keys`; what cannot be told now is told as soon as the server is heard again."""
        with self._lock:
            self._untold.update(undropped)
            late = bool(self._untold)
            if late:
                self._untold.update(keys)
        if late:
            self._tell_the_untold()
            return
        try:
            self._feed.tell(keys=keys)
        except TierError as error:
            with self._lock:
                self._untold.update(keys)
            self._emit(Failed("news", f"{error}; they are told when it serves again", keys[0] if keys else None))

    def tell_sources(self, sources: Sequence[bytes]) -> None:
        """Make all other hosts forget answers that rest on `sources`. Raises `TierError`: tell it again."""
        self._feed.tell(answers=sources)

    def _tell_the_untold(self) -> None:
        with self._lock:
            keys, self._untold = self._untold, set()
        if not keys:
            return
        try:
            self.valkey.drop(keys)
            if len(keys) > MOST_UNTOLD:
                self._feed.tell_of_a_gap()
            else:
                self._feed.tell(keys=list(keys))
        except TierError:  # said when it was first tried
            with self._lock:
                self._untold |= keys

    def _on_news(self, news: News) -> None:
        if news.sources:
            self._editions.forget(news.sources)
        if news.origin != self._origin:  # who told has dropped it for all processes of its machine
            if news.keys:
                self._hear(news.keys)
            if news.answers:
                self._heard(news.answers)

    def _on_gap(self) -> None:
        self._editions.forget(None)
        self._hear(None)
        self._heard(None)

    # rows

    def mix(self, digest: bytes, salt: bytes, rows: Sequence[Row]) -> bytes | MissReason:
        """A content digest with the state of `rows` in it, 16 bytes; or why nobody can say what state they are in."""
        sources = [source for row in rows for source in self._ids.of(row)]
        editions = self._editions.of(sources)
        if isinstance(editions, MissReason):
            return editions
        named = [part for pair in zip(sources, editions, strict=True) for part in pair]
        return blake3(framed("rows", digest, *named), key=salt).digest(length=DIGEST_BYTES)

    # life

    def close(self) -> None:
        """After the tier, and after the news: close the connections."""
        self._tell_the_untold()
        self.client.close()


def _origin(folder: Path | None) -> bytes:
    """Who tells: the processes of this very folder, which tell one another through a file; without one, this process.

    Neither a path nor a file in the folder would do: containers have equal paths, and folders are copied.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        found = None if folder is None else folder.stat()
    except OSError:
        found = None
    if found is None:
        return secrets.token_bytes(_ORIGIN_BYTES)
    return blake3(framed("origin", boot, b"%d %d" % (found.st_dev, found.st_ino))).digest(length=_ORIGIN_BYTES)
