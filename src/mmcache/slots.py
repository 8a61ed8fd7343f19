"""Compute slots: at most so many computations of a cache at a time, and a waiting room where they are all taken.

Who comes next is not decided here but by `admission.base.Ranks` (see `admission.qos`). Here is what must not go wrong:

* **Nobody waits for a slot while holding one.** A computation that computes another key runs on within its own slot,
  in the same thread, in threads and tasks that it started with its context, and across caches.
* **Nobody holds a slot while waiting for a flight.** Who follows another caller's computation, or another process's,
  lends its slot meanwhile (`lent`) and takes it back at once afterwards, even where that makes one more than allowed.
  So every slot belongs to a computation that can go on, and every waiting caller gets one in the end.
* **A blocking call never waits for what its own thread must go on to free**: on a thread whose event loop computes or
  waits here, it computes without a slot.
* **A slot is given back** whatever the computation raises, and when its task is cancelled, even while waiting.
* **A stuck pool does not stop the cache.** When no slot came free for `patience_seconds` (a plain thread pool inside of
  a computation does not hand its context on, so it may wait for its own caller), the next one that looks goes anyway.

A forked child starts with all slots free.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from mmcache import forks
from mmcache.admission.base import Ranks
from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import SettingsError
from mmcache.model.event import Event, Failed
from mmcache.niceness import check_nice, giving_way

_LOOK_AGAIN_SECONDS = 1.0
"""Loads fade while nothing happens, so who waits looks again this often."""


@dataclass(eq=False)
class _Ticket:
    """One computation that wants a slot, waits for one, has one, or lends it."""

    slots: Slots
    tenant: str
    since: float
    epoch: object
    loop: int | None
    """The thread of its event loop; None = it blocks its thread."""
    called: Future[None] = field(default_factory=Future)
    """Done when it may start."""
    holds: bool = False
    """Counted among the taken slots."""
    open: bool = True
    """The computation is not over."""
    lent: int = 0
    """Threads or tasks of the computation that wait for flights."""
    overtaken: int = 0


@dataclass(slots=True)
class Waited:
    """What became of a tenant's computations."""

    at_once: int = 0
    """Started without waiting."""
    delayed: int = 0
    seconds: float = 0.0
    """Waited by the delayed ones, together."""


_held: ContextVar[_Ticket | None] = ContextVar("mmcache_slot", default=None)
"""The slot that the running code computes in."""


class Slots:
    """See the module's text. All methods may be called from any thread."""

    fork_order = 0

    def __init__(
        self,
        count: int,
        ranks: Ranks,
        *,
        tenants: Collection[str] = (),
        clock: Clock | None = None,
        nice: Mapping[str, int] | None = None,
        report: Callable[[Event], None] = lambda event: None,
        patience_seconds: float = 60.0,
        look_again_seconds: float = _LOOK_AGAIN_SECONDS,
    ) -> None:
        """`count` slots. `tenants`: who is counted by name in `waited`; all others are "". `nice`: by tenant, how much
        its computations give way (see `niceness`). `report`: told when `ranks` raise. Raises `SettingsError`."""
        if count < 1:
            raise SettingsError(f"compute slots are 1 or more, or None for no limit, not {count}")
        self.count, self._ranks, self._clock = count, ranks, clock or SystemClock()
        self._nice, self._report = dict(nice or {}), report
        check_nice(max(self._nice.values(), default=0))
        self._patience, self._look_again = patience_seconds, look_again_seconds
        self.waited = {name: Waited() for name in ("", *tenants)}
        """By tenant, since the start; exact to within what several threads count at the same moment."""
        self._reset()
        forks.join(self)

    def _reset(self) -> None:
        self._lock = forks.Lock()
        self._epoch = object()
        self._taken = 0
        self._rooms: dict[str, deque[_Ticket]] = {}
        self._loops: Counter[int] = Counter()
        """Thread → computations that its event loop has here."""
        self._moved = self._clock.monotonic()
        """When a slot last came free, or somebody went without."""
        self._ranks.reset()

    def before_fork(self) -> None:
        """See `forks`."""

    def after_fork(self, child: bool) -> None:
        """A child has none of its parent's computations."""
        if child:
            self._reset()

    @property
    def taken_now(self) -> int:
        """Slots taken."""
        return self._taken

    @property
    def waiting_now(self) -> int:
        """Computations in the waiting room."""
        return sum(map(len, list(self._rooms.values())))

    # Taking a slot --------------------------------------------------------------------------------------------------

    @contextmanager
    def taken(self, tenant: str) -> Iterator[None]:
        """Inside, the caller computes for `tenant`; waits for a slot first."""
        if _nested() or self._loops[threading.get_ident()]:
            yield
            return
        ticket = self._join(tenant)
        try:
            while not self._may_go(ticket):
                try:
                    ticket.called.result(self._look_again)
                except TimeoutError:
                    continue
            with _inside(ticket), giving_way(self.nice(tenant)):
                yield
        finally:
            self._leave(ticket)

    @asynccontextmanager
    async def taken_async(self, tenant: str) -> AsyncIterator[None]:
        """The async twin of `taken`: the event loop goes on."""
        import asyncio

        if _nested():
            yield
            return
        ticket = self._join(tenant, threading.get_ident())
        try:
            called = asyncio.wrap_future(ticket.called)
            while not self._may_go(ticket):
                await asyncio.wait([called], timeout=self._look_again)  # which neither raises nor cancels `called`
            with _inside(ticket):
                yield
        finally:
            self._leave(ticket)

    def nice(self, tenant: str) -> int:
        """How much the tenant's computations give way."""
        return self._nice.get(tenant, 0)

    def _join(self, tenant: str, loop: int | None = None) -> _Ticket:
        now = self._clock.monotonic()
        ticket = _Ticket(self, tenant, now, self._epoch, loop)
        with self._lock:
            if loop is not None:
                self._loops[loop] += 1
            if not self._taken:
                self._moved = now
            self._rooms.setdefault(tenant, deque()).append(ticket)
            self._call(now)
            self._count(ticket, delayed=not ticket.holds)
        return ticket

    def _may_go(self, ticket: _Ticket) -> bool:
        """Whether it was called; where nothing moved for long, it goes anyway."""
        if ticket.called.done():
            return True
        with self._lock:
            now = self._clock.monotonic()
            self._call(now)
            if not ticket.called.done() and now - self._moved >= self._patience and ticket.epoch is self._epoch:
                self._moved = now
                self._rooms[ticket.tenant].remove(ticket)
                self._start(ticket, now)
            return ticket.called.done()

    def _call(self, now: float) -> None:
        """Start who may, as long as slots are free."""
        while self._taken < self.count and self._rooms:
            waiting = [(tenant, room[0].overtaken) for tenant, room in self._rooms.items()]
            try:
                chosen = self._ranks.choose(waiting, self.count - self._taken, self.count, now)
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; then who waits longest goes
                self._failed(error)
                chosen = min(self._rooms, key=lambda tenant: self._rooms[tenant][0].since)
            if chosen is None:
                return
            ticket = self._rooms[chosen].popleft()
            for tenant, room in self._rooms.items():
                if tenant != chosen:
                    room[0].overtaken += 1
            self._start(ticket, now)

    def _start(self, ticket: _Ticket, now: float) -> None:
        if not self._rooms[ticket.tenant]:
            del self._rooms[ticket.tenant]
        self._take(ticket, now)
        self._waited(ticket).seconds += now - ticket.since
        ticket.called.set_result(None)

    def _take(self, ticket: _Ticket, now: float) -> None:
        ticket.holds = True
        self._taken += 1
        self._tell(self._ranks.began, ticket, now)

    def _tell(self, tell: Callable[[str, int, float], None], ticket: _Ticket, now: float) -> None:
        try:
            tell(ticket.tenant, self.count, now)
        except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; it only misses the news
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._report(Failed("slots", f"their ranks raised {error!r}"))

    def _free(self, ticket: _Ticket) -> None:
        """Give the slot of `ticket` to who comes next."""
        now = self._clock.monotonic()
        if ticket.holds:
            ticket.holds = False
            self._taken -= 1
            self._moved = now
            self._tell(self._ranks.ended, ticket, now)
        self._call(now)

    def _leave(self, ticket: _Ticket) -> None:
        with self._lock:
            ticket.open = False
            if ticket.epoch is not self._epoch:
                return  # it was taken before the fork, in the parent
            if ticket.loop is not None:
                self._loops[ticket.loop] -= 1
                if not self._loops[ticket.loop]:
                    del self._loops[ticket.loop]
            if not ticket.called.done():
                room = self._rooms[ticket.tenant]
                room.remove(ticket)
                if not room:
                    del self._rooms[ticket.tenant]
            self._free(ticket)

    def _count(self, ticket: _Ticket, *, delayed: bool) -> None:
        waited = self._waited(ticket)
        waited.delayed += delayed
        waited.at_once += not delayed

    def _waited(self, ticket: _Ticket) -> Waited:
        return self.waited.get(ticket.tenant) or self.waited[""]

    # Lending it -----------------------------------------------------------------------------------------------------

    def lend(self, ticket: _Ticket) -> None:
        """The computation of `ticket` waits for another one."""
        with self._lock:
            ticket.lent += 1
            if ticket.epoch is self._epoch:
                self._free(ticket)

    def take_back(self, ticket: _Ticket) -> None:
        """It goes on."""
        with self._lock:
            ticket.lent -= 1
            if ticket.open and not ticket.lent and not ticket.holds and ticket.epoch is self._epoch:
                self._take(ticket, self._clock.monotonic())


def _nested() -> bool:
    ticket = _held.get()
    return ticket is not None and ticket.open


@contextmanager
def _inside(ticket: _Ticket) -> Iterator[None]:
    token = _held.set(ticket)
    try:
        yield
    finally:
        _held.reset(token)


def in_own_thread(compute: Callable[[], object]) -> Callable[[], object]:
    """`compute` for a thread that runs nothing else: within `taken_async`, it gives way as its tenant is told to."""
    ticket = _held.get()
    nice = 0 if ticket is None or not ticket.open else ticket.slots.nice(ticket.tenant)
    if not nice:
        return compute

    def gives_way() -> object:
        with giving_way(nice):
            return compute()

    return gives_way


@contextmanager
def lent() -> Iterator[None]:
    """Inside, the running computation, if it is one that holds a slot, waits for another; its slot serves others."""
    ticket = _held.get()
    if ticket is None or not ticket.open:
        yield
        return
    ticket.slots.lend(ticket)
    try:
        yield
    finally:
        ticket.slots.take_back(ticket)
