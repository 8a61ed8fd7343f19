"""Locks and forks: nobody forks in the middle of an update that must be whole."""

from __future__ import annotations

import threading

import pytest

from mmcache import forks, plugins
from mmcache.keeping import LockedLifetime
from mmcache.refs.base import References
from mmcache.testing import make_key
from mmcache.ttl.fixed import FixedTTL


def forked(done: threading.Event) -> None:
    forks._before()
    forks._after(child=False)
    done.set()


@pytest.mark.parametrize("holder", [*plugins.names("refs"), "lifetime"])
def test_a_fork_waits_for_updates_under_way(holder: str) -> None:
    made = LockedLifetime(FixedTTL()) if holder == "lifetime" else plugins.load("refs", holder)()
    done = threading.Event()
    with made._lock:
        forking = threading.Thread(target=forked, args=[done], daemon=True)
        forking.start()
        assert not done.wait(0.1)
    assert done.wait(10)
    forking.join(10)


@pytest.mark.parametrize("name", plugins.names("refs"))
def test_children_may_be_named_by_who_asks_the_tracker(name: str) -> None:
    tracker: References = plugins.load("refs", name)()
    tracker.link(make_key(1), (make_key(2 + tracker.holds(make_key(n))) for n in range(3)))
    assert tracker.reach([make_key(2)]) == {make_key(1), make_key(2)}
