"""The load of table `qos`: payment lookups that must be quick, and a report export at full blast, in one cache.

Lookups arrive open-loop: at times drawn beforehand, whether or not earlier ones are done, and each one's latency counts
from its arrival. So a stall hurts all that arrive during it, and none is left out (Tene's "coordinated omission").
The export is closed-loop: threads that ask for the next page as soon as they have the last one.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mmcache.cache import Cache
from mmcache.model.event import Refused, RefuseReason, Stored
from mmcache.settings import Tenant

CRITICAL, BATCH = "payments", "export"
TENANTS = {CRITICAL: Tenant("critical"), BATCH: Tenant("batch")}
SIGNATURE = "table-qos"

KNOWN = 3000
"""Payments whose vectors are in the cache when a round begins."""
NEW_SHARE = 0.1
"""Lookups of payments never seen before, which no cache can hold."""
ZIPF_EXPONENT = 0.9
RATE = 40.0
"""Lookups a second. The tenth of them that must be computed takes about 6 % of one core, so waiting is rare alone."""
READ_AGAIN, RECENT = 1 / 3, 24
"""Share of pages that the export reads again, out of the last so many."""
EXPORT_THREADS, LOOKUP_THREADS = 8, 16
MEMORY_BYTES = 14 << 20
"""The known payments take 11.3 MiB of it, a page of the export 0.4 MiB: what is idle is soon full."""
SLOTS = 2
WARM_UP_SECONDS = 1.0
"""The export runs alone for so long before the first lookup arrives."""


@dataclass(frozen=True)
class Models:
    """What is computed. `text` of a payment gives float32 [384], `page` of a page number float32 [257, 384]."""

    text: Callable[[str], Any]
    page: Callable[[int], Any]


@dataclass(frozen=True)
class Load:
    """One round's requests, the same in every arm."""

    arrivals: tuple[float, ...]
    """Seconds since the round began."""
    lookups: tuple[str, ...]
    pages: tuple[int, ...]


@dataclass
class Served:
    """A tenant's requests of one round."""

    seconds: list[float] = field(default_factory=list)
    hits: list[bool] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    """Of the seconds, those before a lookup's thread ran at all: the operating system's part."""


@dataclass(frozen=True)
class Round:
    """What one arm did with one load."""

    critical: Served
    batch: Served
    seconds: float
    """From the first arrival to the last answer."""
    stored: dict[str, tuple[int, int]]
    """Tenant → blocks computed that memory took, and that admission or policy refused."""


def payment(number: int) -> str:
    """A text about as long as a card payment's record."""
    return f"card payment {number}: {number * 37 % 9973 / 100:.2f} EUR to merchant {number * 101 % 7919}"


def draw(seed: int, seconds: float, pages: int = 6000) -> Load:
    """A load of `seconds` seconds of lookups."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1.0 / RATE, max(1, round(RATE * seconds)))
    ranks = np.arange(1, KNOWN + 1) ** -ZIPF_EXPONENT
    known = rng.choice(KNOWN, len(gaps), p=ranks / ranks.sum())
    new = rng.random(len(gaps)) < NEW_SHARE
    lookups = [payment(10**6 * (seed + 1) + n if new[n] else int(known[n])) for n in range(len(gaps))]
    read: list[int] = []
    for n, again in enumerate(rng.random(pages) < READ_AGAIN):
        read.append(read[n - 1 - int(rng.integers(min(n, RECENT)))] if again and n else n)
    return Load(tuple(float(at) for at in np.cumsum(gaps)), tuple(lookups), tuple(read))


def warmed(cache: Cache) -> Cache:
    """`cache` with the known payments in it, as earlier lookups would have left them: the most popular used last."""
    rng = np.random.default_rng(0)
    for number in reversed(range(KNOWN)):
        cache.put(_payment_key(cache, payment(number)), rng.random(384, np.float32), cost=0.012)
    return cache


def _payment_key(cache: Cache, text: str) -> Any:
    return cache.key(text, modality="text", signature=SIGNATURE, tenant=CRITICAL)


def run(cache: Cache, load: Load, models: Models, *, exporting: bool) -> Round:
    """One round. `cache` is warmed and has no other users."""
    critical, batch, lock, stop = Served(), Served(), threading.Lock(), threading.Event()

    def ask(served: Served, since: float, key: Any, compute: Callable[[], Any]) -> None:
        computed: list[bool] = []

        def counted() -> Any:
            computed.append(True)
            return compute()

        cache.get_or_compute(key, counted)
        seconds = time.perf_counter() - since
        if not stop.is_set():
            with lock:
                served.seconds.append(seconds)
                served.hits.append(not computed)

    pages = iter(load.pages)

    def export() -> None:
        while not stop.is_set():
            with lock:
                page = next(pages, None)
            if page is None:
                return
            since = time.perf_counter()
            key = cache.key(f"page {page}", modality="text", signature=SIGNATURE, tenant=BATCH)
            ask(batch, since, key, lambda page=page: models.page(page))  # type: ignore[misc]

    arrivals = iter(enumerate(load.arrivals))
    began = [0.0]

    def look_up() -> None:
        while True:
            with lock:
                number, at = next(arrivals, (None, 0.0))
            if number is None:
                return
            due, text = began[0] + at, load.lookups[number]
            if (early := due - time.perf_counter()) > 0:
                time.sleep(early)
            critical.late.append(time.perf_counter() - due)
            ask(critical, due, _payment_key(cache, text), lambda text=text: models.text(text))  # type: ignore[misc]

    with cache.events.feed(1 << 20) as feed:
        with _threads(export, EXPORT_THREADS if exporting else 0):
            if exporting and load.arrivals[-1] > WARM_UP_SECONDS:
                time.sleep(WARM_UP_SECONDS)
            with lock:
                batch.seconds.clear()
                batch.hits.clear()
            began[0] = time.perf_counter()
            with _threads(look_up, LOOKUP_THREADS):
                pass
            seconds = time.perf_counter() - began[0]
            stop.set()
        return Round(critical, batch, seconds, _outcomes(cache, feed.drain()))


def pressure(cache: Cache, load: Load, advance: Callable[[float], None], pages_a_second: float) -> Round:
    """One round in virtual time with stand-ins for the models: what memory keeps of a load, however fast the machine.

    The export reads `pages_a_second` (0 = none). `cache` is warmed, and `advance` lets its clock go on.
    """
    critical, batch, now, pages = Served(), Served(), 0.0, 0
    vector, page = np.zeros(384, np.float32), np.zeros((257, 384), np.float32)

    def ask(served: Served, key: Any, value: Any) -> None:
        computed: list[bool] = []

        def counted() -> Any:
            computed.append(True)
            return value

        cache.get_or_compute(key, counted)
        served.hits.append(not computed)

    with cache.events.feed(1 << 20) as feed:
        for at, text in zip(load.arrivals, load.lookups, strict=True):
            while pages_a_second and pages / pages_a_second < at:
                name = f"page {load.pages[pages % len(load.pages)]}"
                ask(batch, cache.key(name, modality="text", signature=SIGNATURE, tenant=BATCH), page)
                pages += 1
            advance(at - now)
            now = at
            ask(critical, _payment_key(cache, text), vector)
        return Round(critical, batch, now, _outcomes(cache, feed.drain()))


def _outcomes(cache: Cache, events: Sequence[Any]) -> dict[str, tuple[int, int]]:
    stored, refused = Counter[str](), Counter[str]()
    for event in events:
        if isinstance(event, Stored | Refused) and (scope := cache.scopes.find(event.key)) is not None:
            if isinstance(event, Stored):
                stored[scope.tenant] += event.tier == "memory"
            else:
                refused[scope.tenant] += event.reason in (RefuseReason.ADMISSION, RefuseReason.QUOTA)
    return {tenant: (stored[tenant], refused[tenant]) for tenant in TENANTS}


@contextmanager
def _threads(work: Callable[[], None], count: int) -> Iterator[None]:
    """`count` threads that run `work`; ended when the block ends. What one raised is raised here."""
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            failed.append(error)

    threads = [threading.Thread(target=guarded, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]


def overtaken(enter: Callable[[str], Any], compute: Callable[[], Any], seconds: float) -> tuple[list[int], float]:
    """Starvation: critical threads at full blast on all slots, and one batch thread. `enter(tenant)` takes a slot.

    How many computations started between a batch computation's arrival and its own start, for each; and the batch
    tenant's share of all computations.
    """
    lock, stop = threading.Lock(), threading.Event()
    started, mine, found = itertools.count(), [0, 0], list[int]()

    def work(tenant: str) -> None:
        while not stop.is_set():
            with lock:
                before = mine[0]
            with enter(tenant):
                with lock:
                    if tenant == BATCH:
                        mine[1] += 1
                        found.append(mine[0] - before)
                    else:
                        mine[0] = next(started) + 1
                compute()

    with _threads(lambda: work(CRITICAL), 3 * SLOTS), _threads(lambda: work(BATCH), 1):
        time.sleep(seconds)
        stop.set()
    return found, mine[1] / max(1, sum(mine))


def above_quota(cache: Cache, quota: int, tenant: str, puts: int, seed: int) -> tuple[int, float]:
    """Puts of random sizes from two threads into `tenant`'s quota: most bytes above it at any moment (0 = never), and
    the share of it in use at the end."""
    lock, most = threading.Lock(), [0]

    def held() -> int:
        return int(cache.stats().tiers["memory"].detail.get(f"bytes[{tenant}]", 0))

    def work(part: int) -> None:
        rng = np.random.default_rng((seed, part))
        for n in range(puts):
            size = int(rng.integers(1, quota // 20))
            key = cache.key(f"{part} {n}", modality="text", signature=SIGNATURE, tenant=tenant)
            cache.put(key, bytes(size))
            now = held()
            with lock:
                most[0] = max(most[0], now - quota)

    with _threads(lambda: work(0), 1), _threads(lambda: work(1), 1):
        pass
    return most[0], held() / quota
