"""Real processes say what is hot in them, and `mmcache hot` shows it, live, until they are gone."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.patience import PATIENCE, until

WATCHED = """
import sys
from mmcache import Cache
from mmcache.hotkeys import HotKeys

with Cache(sys.argv[1], memory="8MiB", disk="64MiB") as cache, HotKeys(cache, every=0.1, service=sys.argv[2]) as hot:
    keys = [cache.key(text, modality="text", signature="s") for text in sys.argv[3]]
    print(keys[0].short, flush=True)
    while True:
        for key in keys:
            cache.get_or_compute(key, lambda: b"value")
        hot.pump()
        if not sys.stdin.readline():
            break
"""


@contextmanager
def watched(root: Path, name: str, texts: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that uses `root`, and the key that it used first; it ends when its input does."""
    words = [sys.executable, "-c", WATCHED, str(root), name, texts]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield child, child.stdout.readline().strip()
        finally:
            child.kill()


def hot(root: Path) -> tuple[int, dict[str, list[dict[str, object]]]]:
    words = [sys.executable, "-m", "mmcache.cli", "hot", "--root", str(root), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_processes_are_shown_together_until_they_are_gone(tmp_path: Path) -> None:
    with watched(tmp_path, "one", "ab") as (first, key), watched(tmp_path, "two", "a") as (second, same):
        assert key == same
        until(lambda: len(list((tmp_path / "hot").glob("hot-*.json"))) == 2, "two files")
        until(lambda: any(len(line["processes"]) == 2 for line in hot(tmp_path)[1].get("keys", [])), "one key of both")  # type: ignore[arg-type]
        code, found = hot(tmp_path)
        assert code == 0
        assert {one["service"] for one in found["processes"]} == {"one", "two"}
        assert found["keys"][0]["key"] == key
        assert first.stdin is not None
        first.stdin.close()  # it ends well, and takes its file away
        assert first.wait(PATIENCE) == 0
        assert [one["service"] for one in hot(tmp_path)[1]["processes"]] == ["two"]
        second.send_signal(signal.SIGKILL)
        second.wait()
        (left,) = (tmp_path / "hot").glob("hot-*.json")
        os.utime(left, (time.time() - 60, time.time() - 60))
        code, found = hot(tmp_path)
        assert code == 3
        assert "HotKeys" in str(found["message"])
    with watched(tmp_path, "three", "c"):
        until(lambda: not left.exists(), "swept")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_live_list_leaves_the_terminal_as_it_was(tmp_path: Path, number: signal.Signals) -> None:
    with watched(tmp_path, "one", "ab") as (_, key):
        until(lambda: len(list((tmp_path / "hot").glob("hot-*.json"))) == 1, "a file")
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        live = subprocess.Popen(
            [sys.executable, "-m", "mmcache.cli", "hot", "--root", str(tmp_path)],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=clean | {"TERM": "xterm-256color"},
        )  # fmt: skip
        seen = b""

        def read() -> None:
            nonlocal seen
            if select.select([master], [], [], 0.05)[0]:
                seen += os.read(master, 65536)

        try:
            end = time.monotonic() + PATIENCE
            while key.encode() not in seen:
                assert time.monotonic() < end, seen
                read()
            live.send_signal(number)
            while live.poll() is None:
                assert time.monotonic() < end, seen
                read()
            read()
            assert live.returncode == 130
            assert b"\x1b[?1049l" in seen  # the other screen is left
            assert b"\x1b[?25h" in seen  # and the cursor shown
        finally:
            live.kill()
            live.wait()
            os.close(master)
            os.close(slave)
