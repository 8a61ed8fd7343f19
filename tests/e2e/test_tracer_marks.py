"""A key that the kernel finds hot is heated in the cache of the process that reads it."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.tracer_stage import reader, require_tracing, until


def test_a_hot_key_reaches_the_process_that_reads_it() -> None:
    require_tracing()
    with reader() as read:
        read("listen")
        (name, *_) = read("names", 1)
        command = [
            sys.executable,
            "-m",
            "mmcache.cli",
            "trace",
            "--pid",
            str(read.pid),
            "--no-sockets",
            "--mark",
            "--json",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                until(lambda: bool(read("heard")), lambda: read("read", 0, 20_000))
                assert set(read("heard")) == {name}
                read.process.kill()
                _, err = process.communicate(timeout=60)
            finally:
                process.kill()
        assert process.returncode == 0, err


def test_who_does_not_listen_is_not_told() -> None:
    require_tracing()
    with reader() as read:
        command = [sys.executable, "-m", "mmcache.cli", "trace", "--pid", str(read.pid), "--no-sockets", "--mark"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 3
    assert "does not listen for marks" in done.stderr
