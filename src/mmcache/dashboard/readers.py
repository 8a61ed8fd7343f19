"""Who reads the store, so that the writer can have it alone: what a reader's state has cannot be freed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Readers:
    """Any number of them, or the writer alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._shut = False

    def enter(self) -> None:
        """One reads; waits while the writer is alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._shut)
            self._count += 1

    def leave(self) -> None:
        """It reads no more."""
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    @contextmanager
    def out(self, patience: float) -> Iterator[bool]:
        """No further ones enter; True once the others have left, False where one stays for longer than `patience`
        seconds."""
        with self._changed:
            self._shut = True
        try:
            with self._changed:
                alone = self._changed.wait_for(lambda: self._count == 0, patience)
            yield alone
        finally:
            with self._changed:
                self._shut = False
                self._changed.notify_all()
