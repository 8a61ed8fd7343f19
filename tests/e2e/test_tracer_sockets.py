"""The connections of a traced process are timed by the kernel, from a request to the first bytes of its answer."""

from __future__ import annotations

import json
import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.tracer_stage import Reader, reader, require_tracing, tracefs

from mmcache.lab.servers import choose, server
from mmcache.model.errors import AssetError, TracerError
from mmcache.tracer import Trace
from mmcache.tracer.process import Traced

COUNT = 300

WATCH = """
import dataclasses, json, sys
from mmcache.tracer import Trace
with Trace(int(sys.argv[1]), shared=sys.argv[2] or None) as trace:
    print("attached", flush=True)
    sys.stdin.readline()
    print(json.dumps([dataclasses.asdict(one) for one in trace.sockets()]))
"""


class _Answers(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while self.request.recv(100):
            self.request.sendall(b"+PONG\r\n")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True  # a connection may outlive the block


@contextmanager
def _server() -> Iterator[int]:
    with _Server(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def read() -> Iterator[Reader]:
    require_tracing()
    with reader() as one:
        yield one


@contextmanager
def _watched(pid: int, shared: str = "") -> Iterator[list[Any]]:
    """What was timed is in the list after the block. tracefs is mounted for the watcher alone: in a mount namespace of
    its own, so that nothing of the machine changes."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed")
    mount = "mount -t tracefs tracefs /sys/kernel/tracing"
    try_it = ["unshare", "-m", "sh", "-c", f"{mount} && test -d /sys/kernel/tracing/events/syscalls"]
    tried = subprocess.run(try_it, capture_output=True, text=True, check=False)
    if tried.returncode and tracefs() is None:
        pytest.skip(f"no tracefs may be mounted here: {tried.stderr.strip()}")
    command = ["unshare", "-m", "sh", "-c", f'{mount} 2>/dev/null; exec "$@"', "sh", sys.executable, "-c", WATCH]
    found: list[Any] = []
    with subprocess.Popen(
        [*command, str(pid), shared], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "attached\n"
            yield found
            out, _ = process.communicate("\n", timeout=60)
        finally:
            process.kill()
    found += json.loads(out)


def test_each_answer_over_a_connection_with_redis_commands_is_timed(read: Reader) -> None:
    with _watched(read.pid) as found, _server() as port:
        read("talk", port, COUNT)
    (one,) = found
    assert one["count"] == COUNT
    assert 0 < one["mean"] <= one["most"]
    assert one["median"] > 0


def test_a_real_shared_tier_is_found_by_what_goes_over_its_connections(read: Reader, tmp_path: Path) -> None:
    try:
        choose()
    except AssetError as error:
        pytest.skip(str(error))
    with server(tmp_path / "server") as running, _watched(read.pid) as found:
        assert read("ask", f"valkey://127.0.0.1:{running.port}", COUNT) == 0
    assert sum(one["count"] for one in found) >= COUNT


def test_other_talk_and_other_processes_are_not_timed(read: Reader) -> None:
    with _watched(read.pid) as found, _server() as port, reader() as other:
        read("talk", port, COUNT, "GET")
        other("talk", port, COUNT)
    assert found == []


def test_what_cannot_be_read_is_timed_by_its_address(read: Reader) -> None:
    """As TLS is: none of its bytes tells what it carries, and a connection must be open when the trace begins."""
    with _server() as port:
        read("dial", port)
        with _watched(read.pid, f"127.0.0.1:{port}") as found:
            read("exchange", COUNT)
    (one,) = found
    assert (one["count"], one["peer"]) == (COUNT, f"127.0.0.1:{port}")


def test_without_tracefs_it_says_how_to_mount_it(read: Reader, tmp_path: Path) -> None:
    with pytest.raises(TracerError, match=r"mount -t tracefs tracefs .*--no-sockets"):
        Trace(read.pid, tracefs=(tmp_path,))


def test_sockets_are_named_by_their_peer() -> None:
    require_tracing()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as own:
            process = Traced(os.getpid())
            try:
                assert process.peers()[own.fileno()] == f"127.0.0.1:{port}"
            finally:
                process.close()
