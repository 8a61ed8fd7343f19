"""`Calls`: calls of the upstream that are under way, and who waits for each. One call a key, however many ask.

A call belongs to nobody: it goes on while anybody waits for it, whoever began it. When the last one has gone before
the answer is whole, it is cancelled, for an answer that nobody reads costs the upstream as much as one that is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

from mmcache.model.errors import MMCacheError, UpstreamError
from mmcache.server import tracing
from mmcache.server.answers_stored import LARGEST_BYTES
from mmcache.server.exchange import Proxy

AHEAD_BYTES = 1 << 20
"""How far the upstream may be ahead of the fastest reader before it is read no further."""
MOST_BYTES = 256 << 20
"""Of all streams under way; beyond it they are passed on, but neither joined nor stored."""

_ROUNDS = 3


@dataclass
class Room:
    """Bytes that all streams under way hold together."""

    most: int = MOST_BYTES
    held: int = 0


class Feed:
    """What a stream sent so far, for any number of readers, each at its own pace.

    Kept from the first byte, so that who comes later begins at the beginning, and it can be stored. Once it is too
    large for that, or all streams are, what every reader has is let go, and nobody may come any more; a reader who is
    too far behind is cut off.
    """

    def __init__(
        self, room: Room | None = None, largest_bytes: int = LARGEST_BYTES, ahead_bytes: int = AHEAD_BYTES
    ) -> None:
        self._pieces: list[bytes] = []
        self._first = 0
        """Number of the first piece that is still here."""
        self._held = self._sent = 0
        self._room = room or Room()
        self._largest, self._ahead = largest_bytes, ahead_bytes
        self._readers: set[Reader] = set()
        self._moved = asyncio.Event()
        self._read = asyncio.Event()
        self.ended = False
        self.error: MMCacheError | None = None

    @property
    def whole(self) -> bool:
        """Whether it is still here from its first byte."""
        return self._first == 0

    def body(self) -> bytes:
        """All of it, without the comments that kept it alive."""
        return b"".join(piece for piece in self._pieces if piece[:1] != b":")

    def push(self, piece: bytes) -> None:
        """One more."""
        self._pieces.append(piece)
        self._count(len(piece))
        self._sent += len(piece)
        while self._held > self._largest:
            self._let_go()
        if self._room.held > self._room.most:
            read = min((reader.place for reader in self._readers), default=self._first + len(self._pieces))
            while self._first < read:
                self._let_go()
        self._tell()

    def _count(self, size: int) -> None:
        self._held += size
        self._room.held += size

    def _let_go(self) -> None:
        """The first piece; who has not read it is cut off."""
        for reader in [reader for reader in self._readers if reader.place <= self._first]:
            reader.lost = True
            self._readers.discard(reader)
        self._count(-len(self._pieces.pop(0)))
        self._first += 1

    def end(self, error: MMCacheError | None = None) -> None:
        """No more. error: it broke off."""
        self.ended, self.error = True, error
        self._tell()
        self._close()

    def _tell(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    def _close(self) -> None:
        """Nothing more comes, and nobody reads: what is here goes with the call."""
        if self.ended and not self._readers:
            self._room.held -= self._held
            self._held = 0

    async def room(self) -> None:
        """Wait until the fastest reader has caught up; at once while there is none."""
        while self._readers and self._sent - max(reader.taken for reader in self._readers) > self._ahead:
            self._read.clear()
            await self._read.wait()

    def reader(self, left: Callable[[], None]) -> Reader:
        """A new one, from the first byte. left: called once when it ends or is closed."""
        reader = Reader(self, left)
        reader.lost = not self.whole
        self._readers.add(reader)
        return reader

    async def piece(self, reader: Reader) -> bytes | None:
        """Its next one; None at the end. Raises what the stream ended with."""
        while True:
            if reader.lost:
                raise UpstreamError("this reader is too slow: its stream was let go; ask again", code="slow-reader")
            if (at := reader.place - self._first) < len(self._pieces):
                piece = self._pieces[at]
                reader.place += 1
                reader.taken += len(piece)
                self._read.set()
                return piece
            if self.ended:
                if self.error is not None:
                    raise self.error
                return None
            await self._moved.wait()

    def leave(self, reader: Reader) -> None:
        """It reads no more."""
        self._readers.discard(reader)
        self._read.set()
        self._close()


class Reader:
    """One reader's view of a `Feed`: an async iterator that must be closed."""

    def __init__(self, feed: Feed, left: Callable[[], None]) -> None:
        self._feed, self._left, self._closed = feed, left, False
        self.place = self.taken = 0
        """Pieces and bytes that it has."""
        self.lost = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._closed:
            raise StopAsyncIteration
        try:
            piece = await self._feed.piece(self)
        except BaseException:
            self.close()
            raise
        if piece is None:
            self.close()
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """See `close`; what the frame calls."""
        self.close()

    def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            self._feed.leave(self)
            self._left()


class Call:
    """One call of the upstream under way."""

    def __init__(self, forget: Callable[[Call], None], room: Room) -> None:
        self._forget = forget
        self.waiting = 0
        self.task: asyncio.Task[None] | None = None
        self.answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """What the call says first: a whole answer, or the head of a stream."""
        self.feed = Feed(room)
        """Of a stream."""
        self.over = False
        """The upstream has said all: from here on nobody need wait for it to go on."""
        self.traced = tracing.current()
        """The request that began it, where it is recorded."""

    async def head(self) -> Any:
        """Wait for `answered`. Who is cancelled meanwhile has left. Raises what the call raised."""
        self.waiting += 1
        try:
            return await asyncio.shield(self.answered)
        except BaseException:
            self.left()
            raise

    def join(self) -> None:
        """Another request waits for it, too."""
        mine = tracing.current()
        if mine is not None and self.traced is not None:
            mine.joined(self.traced)

    def tell(self, told: Any) -> None:
        """Set `answered`, if nothing has yet."""
        if not self.answered.done():
            self.answered.set_result(told)

    def left(self) -> None:
        """One waits no more."""
        self.waiting -= 1
        if self.waiting <= 0 and not self.over and self.task is not None:
            self.forget()
            self.task.cancel()

    def forget(self) -> None:
        """From now on nobody joins it."""
        self._forget(self)


async def others_first() -> None:
    """Let who was told something act on it: as many rounds of the loop as an answer needs to be on its way."""
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)


class Calls:
    """The calls of one event loop."""

    def __init__(self) -> None:
        self._under_way: dict[Any, Call] = {}
        self._all: dict[asyncio.Task[None], Call] = {}
        self._room = Room()

    def find(self, key: Any) -> Call | None:
        """The one under way for `key` that may still be joined."""
        call = self._under_way.get(key)
        return call if call is not None and call.feed.whole else None

    def begin(self, key: Any, run: Callable[[Call], Awaitable[None]]) -> Call:
        """Begin one in a task of its own. key: None = nobody may join it."""

        def forget(call: Call) -> None:
            if key is not None and self._under_way.get(key) is call:
                del self._under_way[key]

        call = Call(forget, self._room)
        if key is not None:
            self._under_way[key] = call
        task = asyncio.get_running_loop().create_task(self._run(call, run))
        call.task = task
        self._all[task] = call
        task.add_done_callback(self._all.pop)
        return call

    async def _run(self, call: Call, run: Callable[[Call], Awaitable[None]]) -> None:
        try:
            await run(call)
        except asyncio.CancelledError:
            self._fail(call, UpstreamError("the call was given up"))
            raise
        except MMCacheError as error:
            self._fail(call, error)
        except Exception as error:  # noqa: BLE001 - who waits must hear of it, whatever it is
            lost = UpstreamError(f"the call failed: {type(error).__name__}")
            lost.__cause__ = error
            self._fail(call, lost)
        finally:
            call.over = True
            call.forget()

    @staticmethod
    def _fail(call: Call, error: MMCacheError) -> None:
        if not call.answered.done():
            call.answered.set_exception(error)
            call.answered.exception()  # seen, also where everybody has gone
        if not call.feed.ended:
            call.feed.end(error)

    async def idle(self) -> None:
        """Wait until none is under way."""
        while self._all:
            await asyncio.wait([*self._all])

    async def close(self) -> None:
        """Let those be stored whose answer is whole, and give up the others."""
        for task, call in self._all.items():
            if not call.over:
                task.cancel()
        await self.idle()


def calls_of(proxy: Proxy) -> Calls:
    """Those of `proxy`, made at first use; ended with it."""
    calls: Calls | None = proxy.kept.get(__name__)
    if calls is None:
        calls = proxy.kept[__name__] = Calls()
        proxy.closers.append(calls.close)
    return calls
