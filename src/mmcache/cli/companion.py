"""A command of ours beside another one: in a process of its own, which ends with the one that started it, however that
ends: it is told by SIGTERM, and where nobody can tell it any more (SIGKILL), by the end of what it reads on stdin.

    python -m mmcache.cli.companion dashboard --json …
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from mmcache.model.errors import SettingsError

END_SECONDS = 10.0
"""For its end, once it was told."""
_WORDS = 20
"""Lines of what it says on stderr that are kept."""


@contextmanager
def companion(command: Sequence[str], patience: float = 60.0) -> Iterator[dict[str, Any]]:
    """Run `mmcache COMMAND…`, which prints one line of JSON when it is ready; gives that. It is stopped at the end.

    Raises `SettingsError`, with what it said, where it does not get so far.
    """
    started = subprocess.Popen(
        [sys.executable, "-m", __name__, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,  # Ctrl-C in a terminal is told to us, and not to it
    )  # fmt: skip
    assert started.stdout is not None
    assert started.stderr is not None
    said: deque[bytes] = deque(maxlen=_WORDS)
    listening = threading.Thread(target=said.extend, args=(started.stderr,), name="mmcache-companion", daemon=True)
    listening.start()
    cut = threading.Timer(patience, started.kill)
    cut.daemon = True
    cut.start()
    try:
        line = started.stdout.readline()
        cut.cancel()
        try:
            told = json.loads(line)
        except ValueError:
            _stop(started)
            listening.join(END_SECONDS)
            words = b"".join(said).decode(errors="replace").strip() or "it took too long"
            raise SettingsError(f"mmcache {command[0]} did not start: {words}") from None
        if "error" in told:
            raise SettingsError(f"mmcache {command[0]} did not start: {told['message']}")
        yield told
    finally:
        cut.cancel()
        _stop(started)
        listening.join(END_SECONDS)
        started.stdout.close()
        started.stderr.close()


def _stop(started: subprocess.Popen[bytes]) -> None:
    assert started.stdin is not None
    with suppress(OSError):
        started.stdin.close()
    if started.poll() is None:
        started.terminate()
    try:
        started.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()


def main(arguments: Sequence[str]) -> int:
    """Run a command until it ends, or stdin does."""
    threading.Thread(target=_follow, name="mmcache-companion", daemon=True).start()
    from mmcache.cli.app import run

    return run(arguments)


def _follow() -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(END_SECONDS)
    os._exit(1)  # it does not come to its end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
