"""The processes of a load, and what they tell, added up."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Condition, Thread
from types import TracebackType
from typing import IO, Self

import msgspec

from mmcache.lab.load.counts import Checked, Counts, Lost, Timeline
from mmcache.lab.load.job import Ended, Filled, Go, Job, Message, Order, Ready, Seen, Start, Stop, Told
from mmcache.model.errors import AssetError

_LEAD_SECONDS = 0.3
"""From the word to the beginning, so that all begin at once."""
_PATIENCE_SECONDS = 60.0
"""For a process to end that was told to."""
_LONGEST_WORD = 4000
_decode = msgspec.json.Decoder(Message).decode
_encode = msgspec.json.Encoder().encode


@dataclass
class Outcome:
    """Of a whole load."""

    counts: Counts
    seconds: float
    processor_shares: list[float]
    """Of one core, by process: near 1, the generator is the limit."""
    unasked: int
    longest_silence: float
    silence_ended: float
    """Seconds since the beginning."""
    lost: list[Lost]
    returned: int
    """Keys that were not to be found for a while, and came back."""
    checked: Checked | None


@dataclass
class _One:
    process: subprocess.Popen[bytes]
    thread: Thread
    words: bytearray = field(default_factory=bytearray)
    """The end of its stderr."""
    ready: bool = False
    ended: Ended | None = None
    gone: bool = False


class Crowd:
    """Started with `with`; ended with it, whatever happens."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._changed = Condition()
        self._ones: list[_One] = []
        self.timeline = Timeline()
        self.filled = self.refused = 0
        """Keys, before it begins."""
        self.told = ""
        """What the tier said last."""
        self.began: float | None = None
        """`time.monotonic`."""
        self._why = ""

    def __enter__(self) -> Self:
        try:
            for index in range(self._job.processes):
                self._ones.append(self._start(index))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def filling(self, seconds: float) -> bool:
        """Wait for so long; whether some still fill. Raises `AssetError` when one could not."""
        with self._changed:
            self._changed.wait_for(self._all_ready, seconds)
            self._sound()
            if self._all_ready() and self.refused and self.refused == self.filled:
                raise AssetError(f"nothing could be written: {': '.join(filter(None, (self._why, self.told)))}")
            return not self._all_ready()

    def go(self) -> float:
        """All begin; when, `time.monotonic`."""
        self.began = time.monotonic() + _LEAD_SECONDS
        self._order(Go(self.began))
        return self.began

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return 0.0 if self.began is None else max(0.0, time.monotonic() - self.began)

    def between(self, begin: float, end: float) -> Counts:
        """Seconds since the beginning."""
        with self._changed:
            return self.timeline.between(begin, end)

    def running(self, seconds: float) -> bool:
        """Wait for so long; whether some have not ended yet. Raises `AssetError` when one could not go on."""
        with self._changed:
            self._changed.wait_for(self._all_ended, seconds)
            self._sound()
            return not self._all_ended()

    def stop(self, *, check: bool = False) -> None:
        """All end at once, and say what there was; `check`: after a look at all that was written."""
        self._order(Stop(check))

    def outcome(self) -> Outcome:
        """When all have ended. Raises `AssetError` when one has not."""
        if self.running(_PATIENCE_SECONDS):
            raise AssetError("a process of the load does not end")
        ends = [one.ended for one in self._ones if one.ended is not None]
        checked = [end.checked for end in ends if end.checked is not None]
        longest = max(ends, key=lambda end: end.longest_silence)
        return Outcome(
            self.timeline.total(), min(self.timeline.seconds, self._job.seconds),
            [end.processor_share for end in ends], sum(end.unasked for end in ends), longest.longest_silence,
            longest.silence_ended - (self.began or 0.0), [one for end in ends for one in end.lost],
            sum(end.returned for end in ends),
            Checked(**{name: sum(getattr(one, name) for one in checked) for name in Checked.__struct_fields__})
            if checked else None,
        )  # fmt: skip

    def _start(self, index: int) -> _One:
        process = subprocess.Popen(
            [sys.executable, "-m", "mmcache.lab.load.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        one = _One(process, Thread(target=lambda: self._read(one), name="load", daemon=True))
        errors: IO[bytes] = process.stderr
        Thread(target=lambda: _keep(one.words, errors), name="load-errors", daemon=True).start()
        one.thread.start()
        _send(process, Start(self._job, index))
        return one

    def _read(self, one: _One) -> None:
        assert one.process.stdout is not None
        handlers: dict[type, Callable[[_One, Message], None]] = {
            Filled: self._on_filled, Ready: self._on_ready, Seen: self._on_seen, Told: self._on_told,
            Ended: self._on_ended,
        }  # fmt: skip
        try:
            with one.process.stdout as told:
                for line in told:
                    message = _decode(line)
                    with self._changed:
                        handlers[type(message)](one, message)
                        self._changed.notify_all()
        finally:
            with self._changed:
                one.gone = True
                self._changed.notify_all()

    def _on_filled(self, one: _One, message: Message) -> None:
        assert isinstance(message, Filled)
        self.filled += message.keys
        self.refused += message.refused
        self._why = message.why or self._why

    def _on_ready(self, one: _One, message: Message) -> None:
        one.ready = True

    def _on_seen(self, one: _One, message: Message) -> None:
        assert isinstance(message, Seen)
        self.timeline.add(message.bin, message.counts)

    def _on_told(self, one: _One, message: Message) -> None:
        assert isinstance(message, Told)
        self.told = message.message

    def _on_ended(self, one: _One, message: Message) -> None:
        assert isinstance(message, Ended)
        one.ended = message

    def _all_ready(self) -> bool:
        return all(one.ready or one.gone for one in self._ones)

    def _all_ended(self) -> bool:
        return all(one.ended is not None or one.gone for one in self._ones)

    def _sound(self) -> None:
        for one in self._ones:
            if one.gone and one.ended is None:
                one.process.wait(_PATIENCE_SECONDS)
                words = bytes(one.words).decode(errors="replace").strip()
                raise AssetError(f"a process of the load ended: {words or f'exit code {one.process.returncode}'}")

    def _order(self, order: Order) -> None:
        for one in self._ones:
            _send(one.process, order)

    def _end(self) -> None:
        for one in self._ones:
            if one.process.stdin is not None:
                _close(one.process.stdin)
        for one in self._ones:
            try:
                one.process.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
            one.thread.join(_PATIENCE_SECONDS)


def _send(process: subprocess.Popen[bytes], order: Order) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(_encode(order) + b"\n")
        process.stdin.flush()
    except (BrokenPipeError, ValueError):  # it has ended; its last words say why
        pass


def _close(pipe: IO[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        pipe.close()


def _keep(words: bytearray, errors: IO[bytes]) -> None:
    with errors:
        for line in errors:
            words += line
            del words[:-_LONGEST_WORD]
