"""What a cache shares with other hosts: the tier on Valkey or Redis, single flight, news, and editions of rows."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from blake3 import blake3

from mmcache import forks
from mmcache.forks import Lock
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.clock import Clock
from mmcache.model.errors import MMCacheError, SettingsError, TierError
from mmcache.model.event import Event, Failed, MissReason
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.rows import Row, RowIds
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.client import Client, Down, Refusal, Request
from mmcache.tiers.valkey.editions import Editions
from mmcache.tiers.valkey.feed import Feed, News
from mmcache.tiers.valkey.fence import UNCONDITIONAL
from mmcache.tiers.valkey.followed import Followed
from mmcache.tiers.valkey.names import Names
from mmcache.tiers.valkey.news import NewsReader
from mmcache.tiers.valkey.realm import same_secret
from mmcache.tiers.valkey.record import CREATED_AT, when
from mmcache.tiers.valkey.tier import ValkeyTier
from mmcache.tiers.write_behind import WriteBehind

MOST_UNTOLD = 65_536
"""Invalidated keys that wait until the server can be told; beyond, all hosts forget everything instead."""
MOST_UNPROVEN = 16_384
"""Puts that may yet turn out to have arrived after another host's drop: the newest are remembered."""
_ORIGIN_BYTES = 8


class Shared:
    """All of it, wired. `Spread.Elsewhere`."""

    fork_order = 6

    def __init__(
        self,
        settings: SharedSettings,
        secret: bytes,
        *,
        folder: Path | None,
        memory: Path | None,
        clock: Clock,
        emit: Callable[[Event], None],
        catch_up: Callable[[], int],
        sequence: Callable[[], int],
        hear: Callable[[Sequence[Key] | None], None],
        heard: Callable[[Collection[bytes] | None], None],
    ) -> None:
        """folder: where the disk tier is, whose processes tell one another; None = there is none. memory: the file that
        keeps how far the news were read; None = none. `hear(keys)`: other hosts invalidated them, None = any.
        `heard(sources)`: what answers rest on has changed, likewise.

        Waits for one timeout at most. Raises `SettingsError` where caches of another secret share the prefix.
        """
        self._emit, self._hear, self._heard = emit, hear, heard
        self.client = Client(settings, clock=clock, emit=emit)
        self._require_same_secret(secret)
        self.valkey = ValkeyTier(settings, client=self.client, clock=clock, emit=emit)
        self.claims = self.valkey.claims
        self.tier = WriteBehind(
            self.valkey, backlog_bytes=settings.backlog_bytes, emit=emit, clock=clock, catch_up=catch_up,
            sequence=sequence, mark=self._mark,
        )  # fmt: skip
        self._names = Names(self.client.address.prefix)
        self._alone = folder is None
        self._feed = Feed(self.client, _origin(folder))
        self._unheard: set[bytes] | None = set()
        """Sources that answers rest on, told of but not yet written down; None = any."""
        self._untold: set[Key] = set()
        self._soon: dict[Key, None] = {}
        """Replaced; others are told of many at once, for a load of many puts must not make them miss other news."""
        self._undropped: set[Key] = set()
        """What the server may still have, in spite of a drop; told already, and once more when it is dropped."""
        self._unproven: dict[Key, float] = {}
        """When what was put without a token was created: nobody else can keep that from arriving after a drop."""
        self._lock = Lock()
        self.news = NewsReader(
            self.client, settings, self._feed, clock=clock, on_news=self._on_news, on_gap=self._on_gap, emit=emit,
            on_heard=self._looked, memory=memory,
        )  # fmt: skip
        self._editions = Editions(self.client, self.news.heard, clock)
        self._followed = Followed(self.client, clock)
        self._clock, self._complain = clock, float("-inf")
        self._ids = RowIds(secret)
        forks.join(self)

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

    def tell(self, keys: Sequence[Key], undropped: Collection[Key]) -> None:
        """Make all other hosts forget `keys`; what cannot be told now is told as soon as the server is heard again."""
        with self._lock:
            self._undropped.update(undropped)
            if self._untold:  # the server was not there just now: `_tell_the_untold` sees to them all
                self._untold.update(keys)
                return
        try:
            self._feed.tell(keys=keys)
        except TierError as error:
            with self._lock:
                self._untold.update(keys)
            self._emit(Failed("news", f"{error}; they are told when it serves again", keys[0] if keys else None))

    def tell_soon(self, key: Key) -> None:
        """See `Elsewhere`: when the batch is written that it is of."""
        with self._lock:
            self._soon[key] = None

    def tell_the_replaced(self) -> None:
        """Tell of all that `tell_soon` was given."""
        if self._soon:
            with self._lock:
                keys, self._soon = self._soon, {}
            self.tell(list(keys), ())

    def tell_sources(self, sources: Sequence[bytes]) -> None:
        """Make all other hosts forget answers that rest on `sources`. Raises `TierError`: tell it again."""
        self._feed.tell(answers=sources)

    def _tell_the_untold(self) -> None:
        self.tell_the_replaced()
        with self._lock:
            untold, self._untold = self._untold, set()
            undropped, self._undropped = self._undropped, set()
        if not untold and not undropped:
            return
        keys = untold | undropped
        try:
            self.valkey.drop(keys)
        except TierError:  # said when it was first tried; a node that is gone keeps nobody from hearing of the others
            with self._lock:
                self._undropped |= keys
            keys = untold
        try:
            if len(keys) > MOST_UNTOLD:
                self._feed.tell_of_a_gap()
            elif keys:
                self._feed.tell(keys=list(keys))
        except TierError:
            with self._lock:
                self._untold |= keys

    def _mark(self, frame: Frame) -> Frame:
        marked = self.valkey.tokens.mark(frame)
        if self.valkey.tokens.of(marked) == UNCONDITIONAL:
            with self._lock:
                self._unproven.pop(frame.key, None)
                self._unproven[frame.key] = frame.header.created
                if len(self._unproven) > MOST_UNPROVEN:
                    del self._unproven[next(iter(self._unproven))]
        return marked

    def outlived(self, keys: Sequence[Key] | None) -> list[Key]:
        """See `Elsewhere`."""
        with self._lock:
            wanted = self._unproven if keys is None else self._unproven.keys() & set(keys)
            mine = {key: self._unproven.pop(key) for key in list(wanted)}
        heads = [self._names.head(key) for key in mine]
        replies = self.client.ask([Request(at, ("GETRANGE", at, CREATED_AT, CREATED_AT + 7)) for at in heads])
        return [
            key
            for (key, created), reply in zip(mine.items(), replies, strict=True)
            if isinstance(reply, Down | Refusal) or bytes(reply) == when(created)
        ]

    def _on_news(self, news: News) -> None:
        if news.sources:
            self._editions.forget(news.sources)
        if news.origin != self._feed.origin:  # who told has dropped it for all processes of its machine
            if news.keys:
                self.valkey.dropped(news.keys)
                self._hear(news.keys)
            if news.answers:
                self._unheard = None if self._unheard is None else {*self._unheard, *news.answers}
                self._hear_the_unheard()

    def _on_gap(self) -> None:
        self._editions.forget(None)
        self.valkey.dropped(None)
        self._hear(None)
        self._unheard = None
        self._hear_the_unheard()

    def _looked(self) -> None:
        self._hear_the_unheard()
        self._tell_the_untold()

    def _hear_the_unheard(self) -> None:
        """What cannot be written down (the disk is full) keeps nobody from hearing the rest; it is tried again."""
        if self.all_heard:
            return
        try:
            self._heard(self._unheard)
        except MMCacheError as error:
            if self.news.keeps:
                self._emit(Failed("news", f"no answer is served until it is written down what has changed: {error}"))
            self.news.keeps = False
        else:
            self._unheard, self.news.keeps = set(), True

    @property
    def all_heard(self) -> bool:
        """Whether it is written down what answers rest on that has changed."""
        return self._unheard is not None and not self._unheard

    # rows

    def mix(self, digest: bytes, salt: bytes, rows: Sequence[Row]) -> bytes | MissReason:
        """A content digest with the state of `rows` in it, 16 bytes; or why nobody can say what state they are in."""
        if not self.news.heard():
            return MissReason.STALE_LEASE
        followed = self._followed.tables()
        if isinstance(followed, MissReason):
            return followed
        for row in rows:
            groups = followed.get(row.table)
            if groups is None or (row.group is not None and row.group not in groups):
                return self._unfollowed(row, groups)
        sources = [source for row in rows for source in self._ids.of(row)]
        editions = self._editions.of(sources)
        if isinstance(editions, MissReason):
            return editions
        named = [part for pair in zip(sources, editions, strict=True) for part in pair]
        return blake3(framed("rows", digest, *named), key=salt).digest(length=DIGEST_BYTES)

    def _unfollowed(self, row: Row, groups: frozenset[str] | None) -> MissReason:
        """Says so once a minute."""
        now = self._clock.monotonic()
        if now >= self._complain:
            self._complain = now + 60.0
            what = f"no `mmcache sync run` follows the table {row.table!r} now" if groups is None else (
                f"the mapping of `mmcache sync` has no group {row.group!r} in {row.table!r}, only {sorted(groups)}"
            )  # fmt: skip
            self._emit(Failed("rows", f"{what}: nothing that rests on it is served"))
        return MissReason.STALE_LEASE if groups is None else MissReason.ABSTAINED

    # life

    def close(self) -> None:
        """After the tier, and after the news: close the connections."""
        with self._lock:
            self._untold |= self._undropped  # which the tier has dropped as it was closed, if it could
        self._tell_the_untold()
        if self._untold:
            self._emit(Failed("news", f"other hosts were never told of {len(self._untold)} invalidated blocks"))
        self.client.close()

    def before_fork(self) -> None:
        """See `forks`."""

    def after_fork(self, child: bool) -> None:
        """Without a folder there is nothing but the news between the child and its parent."""
        if child and self._alone:
            self._feed.origin = secrets.token_bytes(_ORIGIN_BYTES)


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
