"""An index file is as long as its meta page says, so that one which was cut off can be told.

LMDB does not write a page that a transaction took at the end of the file and gave back before it committed: after one
that drops much, a sound file is often shorter than its meta page says. Whoever committed makes it longer
at once; whoever opens waits for that. Only a process killed between the two leaves a sound index that looks cut off.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import lmdb

_PATIENCE_SECONDS = 1.0


def missing(env: Any) -> int:
    """How many bytes the file should have where it is shorter than that; else 0."""
    pages: int = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    return pages if pages > os.stat(_file(env)).st_size else 0


@contextmanager
def lengthened(env: Any) -> Iterator[None]:
    """Around a write transaction: after its commit the file is long enough."""
    yield
    with suppress(OSError, lmdb.Error):  # what was committed is: this may not look like a failure of it
        if missing(env):
            with env.begin(write=True):  # nobody else writes now: to a file that grew, this would be a cut
                if pages := missing(env):
                    os.truncate(_file(env), pages)


def check(env: Any) -> None:
    """Raises `lmdb.CorruptedError` where the file is too short, and stays so: a look beyond its end is a SIGBUS."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while missing(env):
        if time.monotonic() > end:
            raise lmdb.CorruptedError(f"{_file(env)} is cut off")
        time.sleep(0.01)


def _file(env: Any) -> str:
    return os.path.join(env.path(), "data.mdb")
