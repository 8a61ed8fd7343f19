"""`NewsReader`: one process's cursor in the stream, and the lease that says whether it may go by what it knows."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mmcache import forks
from mmcache.model.clock import Clock
from mmcache.model.errors import TierError
from mmcache.model.event import Event, Failed
from mmcache.settings import SharedSettings
from mmcache.tiers.valkey.client import Client, Down, Listener, Refusal, Request
from mmcache.tiers.valkey.feed import READ_AT_ONCE, Feed, News, Place
from mmcache.tiers.valkey.watch import asleep

KEEP_SECONDS = 0.2
"""Between two times that the place is written down."""
_MAGIC = b"MMCN\x01"


class NewsReader:
    """Reads in a thread of its own. `heard()`: whether it knew, less than the lease ago, that it had missed nothing.

    `on_news` gets every entry, in order, perhaps twice; `on_gap` is called when some were missed, before the lease is
    taken up again: then whatever they may have been about must be forgotten. `on_heard` is called after each look.
    With a `memory` the place is kept there, so that what was told while no process ran is read at the next start.
    """

    fork_order = 0

    def __init__(
        self,
        client: Client,
        settings: SharedSettings,
        feed: Feed,
        *,
        clock: Clock,
        on_news: Callable[[News], None],
        on_gap: Callable[[], None],
        emit: Callable[[Event], None],
        on_heard: Callable[[], None] = lambda: None,
        memory: Path | None = None,
        asleep: Callable[[], float] = asleep,
    ) -> None:
        self._client, self._feed, self._clock, self._asleep = client, feed, clock, asleep
        self._on_news, self._on_gap, self._on_heard = on_news, on_gap, on_heard
        self._emit, self._memory = emit, memory
        self._lease = settings.news_lease_seconds
        self._block_ms = max(1, round(self._lease * 1000 / 5))
        self._patience = settings.timeout_seconds
        self.gaps = 0
        """How often news were missed."""
        self.keeps = True
        """Whether what was read may be kept as read: no while some of it is still to be written down."""
        self._reset()
        forks.join(self)

    def _reset(self) -> None:
        self._until = float("-inf")
        self._place: Place | None = None
        self._kept: Place | None = None
        self._keep_next = float("-inf")
        self._ended = threading.Event()
        self._met = threading.Event()
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None

    # what callers see

    def _now(self) -> float:
        return self._clock.monotonic() + self._asleep()

    def heard(self) -> bool:
        """Whether this process knows that it has missed nothing for as long as the lease allows."""
        if self._thread is None:
            self.start()
        if self._now() < self._until:
            return True
        if not self._met.is_set():  # the very first time: it is at it
            self._met.wait(self._patience)
            return self._now() < self._until
        return False

    def silence(self) -> float:
        """Seconds since it last knew that it had missed nothing; infinite before it ever did."""
        return self._now() - (self._until - self._lease)

    def start(self) -> None:
        """Begin to read, once: from where the news are now, so that all that is looked up afterwards is heard of; or
        from where they were left off, and what was told meanwhile is heard first. Waits for one timeout at most."""
        if self._thread is None and not self._ended.is_set():
            before = self._memory is not None and self._memory.exists()
            if not before and self._place is None:
                self._look()
            self._begin_to_read()
            if before:
                self._met.wait(self._patience)

    def _look(self) -> None:
        (reply,) = self._client.ask([Request(self._feed.key, self._feed.last_command())])
        if not isinstance(reply, Refusal | Down):  # else the thread goes on trying
            with suppress(TierError):
                self._place = Feed.last(reply)

    def _begin_to_read(self) -> None:
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="mmcache-news", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._ended.set()
        if (listener := self._listener) is not None:
            listener.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._keep()

    # reading

    def _run(self) -> None:
        pause, said = 0.01, False
        while not self._ended.is_set():
            try:
                self._read()
                pause, said = 0.01, False
            except Exception as error:  # noqa: BLE001 - whatever a tier or a plug-in raises, the thread goes on
                if not (said or self._ended.is_set()):
                    self._emit(Failed("news", str(error) if isinstance(error, TierError) else repr(error)))
                said = True
                self._drop_listener()
                self._met.set()
                self._ended.wait(pause)
                pause = min(2 * pause, self._lease / 5)

    def _drop_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _read(self) -> None:
        """One look. Raises `TierError`."""
        block_ms = None if self._now() >= self._until else self._block_ms  # who may serve nothing waits for nothing
        if self._listener is None:
            self._listener = self._client.listen(self._feed.key)
        if self._place is None:
            self._begin(self._listener)
        assert self._place is not None
        sent = self._now()
        news = Feed.entries(self._asked(self._listener, self._feed.read_command(self._place, block_ms)))
        if news is None:  # who waited for it to go would hear nothing of what comes after it
            self._missed(self._last(self._listener), sent)
        elif news:
            self._take(news, sent)
        else:
            sent = self._now()
            last = self._last(self._listener)
            if last == self._place:
                self._until = sent + self._lease
            elif _number(last.id) <= _number(self._place.id):  # a failover, or the stream is gone
                self._missed(last, sent)
        if self._now() < self._until:
            self._met.set()
        self._keep_soon()
        self._on_heard()

    def _take(self, news: list[News], sent: float) -> None:
        assert self._place is not None
        for one in news:
            if one.before != self._place.name:
                self._missed(one.place, sent)
                return
            self._on_news(one)
            self._place = one.place
        if len(news) < READ_AT_ONCE:  # else there may be more, and it is not known what they are about
            self._until = sent + self._lease

    def _missed(self, place: Place, sent: float) -> None:
        self._until = float("-inf")
        self.gaps += 1
        self._emit(Failed("news", "some were missed: whatever they may have been about is forgotten"))
        self._on_gap()
        self._place, self._until = place, sent + self._lease

    def _begin(self, listener: Listener) -> None:
        """Where this host left off, or now: what was looked up before now may be outdated."""
        self._place = self._recalled()
        if self._place is None:
            sent = self._now()
            self._missed(self._last(listener), sent)

    def _last(self, listener: Listener) -> Place:
        return Feed.last(self._asked(listener, self._feed.last_command()))

    def _asked(self, listener: Listener, command: tuple[str | bytes | int, ...]) -> object:
        reply = listener.ask(command, self._block_ms / 1000 + self._patience)
        if isinstance(reply, Refusal | Down):
            raise TierError(f"the news cannot be read: {reply}")
        return reply

    # the place, at rest

    def _recalled(self) -> Place | None:
        if self._memory is None:
            return None
        try:
            raw = self._memory.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TierError(f"cannot read where the news were left off: {error}") from error
        magic, _, rest = raw.partition(b"\n")
        number, _, name = rest.partition(b" ")
        if magic != _MAGIC or not number.replace(b"-", b"").isdigit():
            self._emit(Failed("news", f"{self._memory} is damaged: this counts as having missed some"))
            return Place(b"0-0", secrets.token_bytes(8))
        return Place(number, name)

    def _keep_soon(self) -> None:
        """Now and then: who is killed reads a little again, which is harmless."""
        if self._place != self._kept and self._now() >= self._keep_next:
            self._keep_next = self._now() + KEEP_SECONDS
            self._keep()

    def _keep(self) -> None:
        place = self._place
        if self._memory is None or place is None or place == self._kept or not self.keeps:
            return
        draft = self._memory.with_name(f".{self._memory.name}.{os.getpid()}")
        with suppress(OSError):  # read again, then: harmless
            draft.write_bytes(_MAGIC + b"\n" + place.id + b" " + place.name)
            os.chmod(draft, 0o600)
            os.replace(draft, self._memory)
            self._kept = place

    # forks

    def before_fork(self) -> None:
        """See `forks`."""

    def after_fork(self, child: bool) -> None:
        """The child reads for itself, from where its parent was; it has heard nothing yet."""
        if child:
            place, ended, reading = self._place, self._ended.is_set(), self._thread is not None
            self._reset()
            self._place = place
            if ended:
                self._ended.set()
            elif reading:
                self._begin_to_read()


def _number(place: bytes) -> tuple[int, int]:
    milliseconds, _, sequence = place.partition(b"-")
    return int(milliseconds), int(sequence or 0)
