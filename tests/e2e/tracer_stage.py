"""A process to be traced, and whether this machine lets anything be traced."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from mmcache.model.errors import TracerError
from mmcache.tracer.trace import BTF, Trace

PATIENCE_SECONDS = 60.0
_FORBIDDEN = (
    "needs root",
    "no bpf()",
    "no pidfd_open()",
    "is not to be had",
    "No such file or directory",
    "not supported",
    "Invalid argument",  # older kernels, to what they do not know
    "Argument list too long",  # … and to programs that their verifier finds too long
    "Cannot allocate memory",
)


class Reader:
    """The other end of `mmcache.lab.traced_load`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = int(self._answer()["pid"])

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __call__(self, *words: object) -> Any:
        """One command, and its answer when it is done."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self._answer()


@contextmanager
def reader(stored: int = 100, **environment: str) -> Iterator[Reader]:
    """A process with so many keys in memory; it ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mmcache.lab.traced_load", "--stored", str(stored)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip
    try:
        yield Reader(process)
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()


@cache
def why_not() -> str | None:
    """Why nothing can be traced here; None = it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the tracer is for Linux, and brings its program for x86-64"
    if os.geteuid() != 0:
        return "tracing needs root"
    if not BTF.exists():
        return f"this kernel has no {BTF}"
    if find_spec("mmcache.tiers._hit_index") is None:
        return "the C extension was not built here"
    with reader(1) as one:
        try:
            Trace(one.pid, sockets=False).close()
        except TracerError as error:
            if any(words in str(error) for words in _FORBIDDEN):
                return f"this machine lets nothing be traced: {error}"
            raise
    return None


def require_tracing() -> None:
    """Skip with the reason where nothing can be traced."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)


def until(true: Callable[[], bool], wait: Callable[[], object] = lambda: time.sleep(0.05)) -> None:
    """Poll patiently. Fails after a minute."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < end, "it did not come about within a minute"
        wait()


def tracefs() -> Path | None:
    """Where syscalls can be traced."""
    return next(
        (one for one in (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing")) if (one / "events").is_dir()),
        None,
    )
