"""Processes of several hosts that ask for one thing at once: one computes, whoever is killed or paused meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mmcache import Cache
from mmcache.lab import servers
from mmcache.lab.servers.process import until
from mmcache.model.errors import AssetError
from mmcache.settings import SharedSettings

pytestmark = pytest.mark.slow
LEASE_SECONDS = 0.5
SECRET = bytes(32)

HOST = """
import sys
from mmcache import Cache
from mmcache.settings import SharedSettings
url, root, lease = sys.argv[1:]
cache = Cache(root, shared=SharedSettings(url, lease_seconds=float(lease), timeout_seconds=30), secret=bytes(32))
def compute():
    print("computes", flush=True)
    return sys.stdin.readline().strip()
print("ready", flush=True)
for line in sys.stdin:
    key = cache.key(line.strip(), modality="text", signature="encoder-1")
    print("has", cache.get_or_compute(key, compute), flush=True)
    cache.flush()
cache.close()
"""


class Host:
    """A process with a cache in a folder of its own, as on a machine of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.said = folder.with_suffix(".said")
        with self.said.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-c", HOST, url, str(folder), str(LEASE_SECONDS)],
                stdin=subprocess.PIPE, stdout=sink, text=True,
            )  # fmt: skip

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def says(self, what: str) -> bool:
        """Whether it has said so by now."""
        return what in self.said.read_text(encoding="utf-8").splitlines()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.Server]:
    try:
        with servers.server(tmp_path / "server") as started:
            yield started
    except AssetError as missing:
        pytest.skip(str(missing))


@pytest.fixture
def hosts(server: servers.Server, tmp_path: Path) -> Iterator[list[Host]]:
    with ExitStack() as opened:
        found = []
        for number in range(3):
            host = Host(server.url, tmp_path / f"host-{number}")
            opened.callback(host.end)
            found.append(host)
        assert until(lambda: all(host.says("ready") for host in found))
        yield found


def leader_of(hosts: list[Host]) -> Host:
    assert until(lambda: any(host.says("computes") for host in hosts))
    (leader,) = (host for host in hosts if host.says("computes"))
    return leader


def what_is_shared(server: servers.Server) -> str:
    """What a newcomer finds."""
    settings = SharedSettings(server.url, timeout_seconds=30)
    with Cache(shared=settings, secret=SECRET) as cache:
        return str(cache.get(cache.key("the question", modality="text", signature="encoder-1")))


def test_one_of_three_hosts_computes(server: servers.Server, hosts: list[Host]) -> None:
    for host in hosts:
        host.tell("the question")
    leader = leader_of(hosts)
    leader.tell("the answer")
    assert until(lambda: all(host.says("has the answer") for host in hosts))
    assert sum(host.says("computes") for host in hosts) == 1
    assert what_is_shared(server) == "the answer"


def test_a_leader_that_is_killed_is_replaced(server: servers.Server, hosts: list[Host]) -> None:
    for host in hosts:
        host.tell("the question")
    leader = leader_of(hosts)
    leader.process.kill()
    others = [host for host in hosts if host is not leader]
    second = leader_of(others)
    second.tell("the answer")
    assert until(lambda: all(host.says("has the answer") for host in others))
    assert sum(host.says("computes") for host in others) == 1
    assert what_is_shared(server) == "the answer"


def test_a_leader_that_was_paused_has_its_own_answer_and_overwrites_nobodys(
    server: servers.Server, hosts: list[Host]
) -> None:
    for host in hosts:
        host.tell("the question")
    leader = leader_of(hosts)
    leader.process.send_signal(signal.SIGSTOP)
    others = [host for host in hosts if host is not leader]
    leader_of(others).tell("newer")
    assert until(lambda: all(host.says("has newer") for host in others))
    assert what_is_shared(server) == "newer"
    leader.tell("older")
    leader.process.send_signal(signal.SIGCONT)
    assert until(lambda: leader.says("has older"))
    leader.process.stdin.close()  # type: ignore[union-attr]
    assert leader.process.wait() == 0, "all that it had to write is written, or refused"
    assert what_is_shared(server) == "newer"
