"""What must happen around `os.fork`: LMDB environments do not survive it, and inherited locks would outlive us.

Before a fork every open folder of this process is brought to rest (no transaction, index closed); parent and child
then reopen on first use. The child closes its copies of the file descriptors, so that a lock ends with its owner.
Short locks are `Lock`: one that another thread of the parent held is free in the child, where that thread is not; or
`QuietLock`, where what is guarded would be left half done.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """Something that holds locks or descriptors."""

    fork_order: int
    """Who may wait for another's lock comes to rest before that other."""

    def before_fork(self) -> None:
        """Come to rest and stay so."""

    def after_fork(self, child: bool) -> None:
        """Go on; in the child, forget what is the parent's."""


class Lock:
    """`threading.Lock` for a `with` statement, free in a forked child. What it guards must bear a missed update."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Nobody holds it."""
        self._lock = threading.Lock()


class QuietLock:
    """Like `Lock`, but nobody holds it while the process forks: for what would be broken by half an update.

    Who holds it waits for no other lock.
    """

    __slots__ = ("__weakref__", "_lock")

    fork_order = 4

    def __init__(self) -> None:
        self._lock = threading.Lock()
        join(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        """See `Forkable`."""
        self._lock.acquire()

    def after_fork(self, child: bool) -> None:
        """See `Forkable`."""
        self._lock.release()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
_members: weakref.WeakSet[Forkable] = weakref.WeakSet()
_gate = threading.RLock()
_resting: list[Forkable] = []


def join(member: Forkable) -> None:
    """Tell `member` of every fork from now on."""
    with _gate:
        _members.add(member)


def _before() -> None:
    _gate.acquire()
    _resting[:] = sorted(_members, key=lambda member: member.fork_order)
    for member in _resting:
        member.before_fork()


def _after(child: bool) -> None:
    if child:
        for lock in list(_locks):
            lock.renew()
    for member in reversed(_resting):
        member.after_fork(child)
    _resting.clear()
    _gate.release()


os.register_at_fork(
    before=_before, after_in_parent=lambda: _after(child=False), after_in_child=lambda: _after(child=True)
)
