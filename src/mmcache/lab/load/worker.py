"""One process of a load: `python -m mmcache.lab.load.worker`, told by its input, telling by its output.

It ends when its input does, so it does not outlive who started it; Ctrl-C is for that one to hear.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import IO

import msgspec

from mmcache.lab.load.blocks import Blocks
from mmcache.lab.load.counts import Checked
from mmcache.lab.load.job import Ended, Go, Message, Order, Ready, Start, Stop, Told
from mmcache.lab.load.lane import Lane
from mmcache.model.errors import MMCacheError, TierError
from mmcache.model.event import Event as Happened
from mmcache.model.event import Failed, Refused, RefuseReason
from mmcache.tiers.valkey.tier import ValkeyTier

_TOLD_AGAIN = 5.0
"""Seconds between two words of the tier."""
_LONGEST_WORD = 300
_decode = msgspec.json.Decoder(Order).decode
_encode = msgspec.json.Encoder().encode


class Worker:
    """Its lanes, and the two pipes."""

    def __init__(self, orders: FileIO, told: IO[bytes]) -> None:
        self._orders, self._told = orders, told
        self._lock = Lock()
        self._stop, self._go = Event(), SimpleQueue[float | None]()
        self._check = True
        self._last = float("-inf")

    def run(self) -> None:
        """From the first order to the last message. Raises `MMCacheError`."""
        start = _decode(self._orders.readline())
        assert isinstance(start, Start), "the first order says what to do"
        job = start.job
        Thread(target=self._listen, name="orders", daemon=True).start()
        tier = ValkeyTier.open(job.settings, emit=self._heard)
        blocks = Blocks(job.sizes, job.seed, job.run)
        first = start.index * job.lanes
        lanes = [Lane(job, number, tier, blocks, self.tell) for number in range(first, first + job.lanes)]
        try:
            _each(lanes, lambda lane: lane.fill(self.tell, self._stop))
            self.tell(Ready())
            begin = self._go.get()
            wall, busy = time.monotonic(), time.process_time()
            if begin is not None:
                _each(lanes, lambda lane: lane.run(begin, self._stop))
            share = (time.process_time() - busy) / max(1e-9, time.monotonic() - wall)
            checked = self._checked(lanes) if job.check and self._check else None
            if job.clean:
                self._clean(lanes)
            longest = max(lane.ledger.longest_silence for lane in lanes)
            lost = [one for lane in lanes for one in lane.ledger.lost]
            returned = sum(lane.ledger.returned for lane in lanes)
            self.tell(Ended(share, sum(lane.unasked for lane in lanes), *longest, lost, returned, checked))
        finally:
            tier.close()

    def _clean(self, lanes: list[Lane]) -> None:
        """As far as that goes: what was seen is to be told though the servers are gone by now."""
        try:
            _each(lanes, Lane.clean)
        except TierError as error:
            self.tell(Told(f"blocks are left there: {error}"[:_LONGEST_WORD]))

    def _checked(self, lanes: list[Lane]) -> Checked:
        found: list[Checked] = []
        _each(lanes, lambda lane: found.append(lane.check()))
        return Checked(**{name: sum(getattr(one, name) for one in found) for name in Checked.__struct_fields__})

    def _listen(self) -> None:
        for line in self._orders:
            order = _decode(line)
            if isinstance(order, Go):
                self._go.put(order.at)
            elif isinstance(order, Stop):
                self._check = order.check
                break
        else:
            self._check = False
        self._stop.set()
        self._go.put(None)

    def _heard(self, event: Happened) -> None:
        if isinstance(event, Failed) or (isinstance(event, Refused) and event.reason is RefuseReason.TIER_DOWN):
            now = time.monotonic()
            with self._lock:
                if now < self._last + _TOLD_AGAIN:
                    return
                self._last = now
            where = event.where if isinstance(event, Failed) else event.tier
            self.tell(Told(f"{where}: {event.detail}"[:_LONGEST_WORD]))

    def tell(self, message: Message) -> None:
        """One line out."""
        line = _encode(message) + b"\n"
        with self._lock:
            self._told.write(line)
            self._told.flush()


def _each(lanes: list[Lane], what: Callable[[Lane], object]) -> None:
    """In a thread each. Raises what the first that failed did."""
    with ThreadPoolExecutor(len(lanes), "lane") as threads:
        list(threads.map(what, lanes))


def main() -> int:
    """0 = done, 3 = could not be done; the error is on stderr."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # Without a buffer: a thread that still waits for one's lock at the end is a fatal error of Python's.
        Worker(FileIO(sys.stdin.fileno(), closefd=False), sys.stdout.buffer).run()
    except MMCacheError as error:
        print(error, file=sys.stderr)
        return 3
    except BrokenPipeError:  # who started it is gone
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
