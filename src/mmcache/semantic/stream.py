"""`Broadcast`: one answer's chunks as they come, for every caller that asks for it meanwhile, from the first on."""

from __future__ import annotations

import copy
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from mmcache.calibration.base import Decision


class Broadcast:
    """Written by one, read by any number of threads and tasks. Chunks are kept until the last reader is gone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._chunks: list[Any] = []
        self._ended = False
        self._error: BaseException | None = None
        self._wake: list[Callable[[], None]] = []

    def push(self, chunk: Any) -> None:
        """One more."""
        chunk = _own(chunk)
        with self._changed:
            self._chunks.append(chunk)
            self._tell()

    def end(self, whole: Iterable[Any] = (), error: BaseException | None = None) -> None:
        """No more. `whole`: all chunks, where they were not pushed one by one (another process computed them)."""
        with self._changed:
            self._chunks += list(whole)[len(self._chunks) :]
            self._ended, self._error = True, error
            self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        wake, self._wake = self._wake, []
        for call in wake:
            call()

    def __iter__(self) -> Iterator[Any]:
        """All chunks from the first. Raises what the model raised, after the chunks that it gave."""
        place = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or len(self._chunks) > place)  # noqa: B023 - called here
                found, ended = self._chunks[place:], self._ended
            yield from map(_own, found)
            place += len(found)
            if ended and not found:
                if self._error is not None:
                    raise self._error
                return

    async def __aiter__(self) -> AsyncIterator[Any]:
        import asyncio

        loop, place = asyncio.get_running_loop(), 0
        while True:
            woken = asyncio.Event()
            with self._changed:
                found, ended = self._chunks[place:], self._ended
                if not found and not ended:
                    self._wake.append(lambda woken=woken: _call(loop, woken.set))  # type: ignore[misc]
            if not found and not ended:
                await woken.wait()
                continue
            for chunk in found:
                yield _own(chunk)
            place += len(found)
            if ended and not found:
                if self._error is not None:
                    raise self._error
                return


def _own(chunk: Any) -> Any:
    """A chunk that its reader may write to, and nobody else sees it."""
    return chunk if isinstance(chunk, str | bytes | int | float | None) else copy.deepcopy(chunk)


def _call(loop: Any, function: Callable[[], None]) -> None:
    """In the reader's loop; a loop that is closed has no reader."""
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:
        return


@dataclass(frozen=True)
class Stream:
    """An answer in chunks: iterate over it, or with `async for`. As often as you like: each time from the first."""

    chunks: Broadcast
    source: Literal["exact", "near", "computed"]
    """See `Reply.source`; who joins a stream under way gets `computed`."""
    decision: Decision | None = None
    stored_text: str | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter(self.chunks)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.chunks.__aiter__()

    @property
    def hit(self) -> bool:
        """Whether nothing was computed for it."""
        return self.source != "computed"


def stored(chunks: Iterable[Any]) -> Broadcast:
    """A stream that is over."""
    broadcast = Broadcast()
    broadcast.end(chunks)
    return broadcast
