"""`Pending`: answers under way, which near-equal prompts may wait for: where they would trust them once stored."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from mmcache.model.key import Key


@dataclass(eq=False)
class Pending:
    """One answer under way. Its future gives a maker of the answer, or None where there is none to be shared."""

    key: Key
    thread: int
    """Whose end would be the end of it; 0 = of a thread of its own."""
    future: Future[Any] = field(default_factory=Future)


_answering: ContextVar[bool] = ContextVar("mmcache_answering", default=False)


@contextmanager
def answering() -> Iterator[None]:
    """What runs inside computes an answer: it waits for no other, which may be waiting for this one."""
    token = _answering.set(True)
    try:
        yield
    finally:
        _answering.reset(token)


def may_wait(pending: Pending, *, blocking: bool) -> bool:
    """Whether the caller may wait for `pending`; `blocking` stops the whole thread, and with it any task on it."""
    return not _answering.get() and not (blocking and pending.thread == threading.get_ident())
