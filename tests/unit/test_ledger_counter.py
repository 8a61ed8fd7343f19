"""`Ledger.counter`: the same sums as `add`, with nothing to look up."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from mmcache.ledger import NAMES, OTHER, Ledger
from mmcache.server.accounts import BOUNDS, Accounts
from mmcache.server.exchange import Verdict


def times(one: Callable[[], None], count: int) -> None:
    for _ in range(count):
        one()


def test_counters_of_the_same_labels_count_together_and_exactly_under_threads() -> None:
    ledger = Ledger()
    counters = [ledger.counter(("a", "hit")) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        for one in counters:
            threads.submit(times, one, 5000)
    ledger.add(("a", "hit"), 2, 0.5, 7)
    assert ledger.all() == {("a", "hit"): (20_002, 0.5, 7)}


def test_what_callers_name_stays_bounded() -> None:
    ledger = Ledger([0])
    for number in range(NAMES + 50):
        ledger.counter((f"{number}",))()
    found = ledger.all()
    assert len(found) == NAMES + 1
    assert found[(OTHER,)] == (50, 0.0, 0)


def test_requests_are_counted_by_reason_and_timed_by_outcome() -> None:
    ledger = Ledger()
    accounts = Accounts(ledger)
    for reason, seconds in (("absent", BOUNDS[0]), ("expired", BOUNDS[0] * 1.5), ("absent", 1e9), ("absent", 0.0)):
        accounts.count("/a", Verdict("miss", reason), None, seconds)
    assert ledger.all() == {("/a", "miss", "absent"): (3, 0.0, 0), ("/a", "miss", "expired"): (1, 0.0, 0)}
    ((label, took),) = accounts.took.items()
    assert label == ("/a", "miss")
    assert (took[0], took[1], took[len(BOUNDS)], sum(took[:-1])) == (2, 1, 1, 4)
    assert took[-1] == 1e9 + BOUNDS[0] * 2.5
