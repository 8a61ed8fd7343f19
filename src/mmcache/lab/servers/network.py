"""A network of this machine alone, whose cables can be cut: each host is a network namespace on one switch.

Only for root on Linux, with `ip`, `nsenter` and `unshare`. A namespace lives as long as the process that holds it, and
that ends with this one; so nothing is left behind, however this process ends.
"""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from mmcache.lab.servers.process import bound_to_us, until
from mmcache.model.errors import AssetError

_NOWHERE = "02:00:00:00:00:01"
"""An Ethernet address that no host has: what is sent there is lost without a word, as on a cut cable."""
_BURST = 2000
"""Bytes that pass a throttled host at once: a packet must."""
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Host:
    """One of the network; `here` is where this process is."""

    name: str
    address: str
    pid: int | None
    """Of the process that holds its namespace; None for here."""

    @property
    def within(self) -> list[str]:
        """The words in front of a command that is to run there."""
        return [] if self.pid is None else ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]


@dataclass
class Network:
    """Hosts that reach each other until they are cut off; see `network`."""

    here: Host
    switch: Host
    subnet: str
    opened: ExitStack
    hosts: list[Host] = field(default_factory=list)

    def add(self, name: str) -> Host:
        """One more host. Raises `AssetError`."""
        number = len(self.hosts) + 2
        host = Host(name, f"{self.subnet}.{number}", _held(self.opened))
        self._join(host, number)
        self.hosts.append(host)
        return host

    def _join(self, host: Host, number: int) -> None:
        port, cable = f"p{number}", _cable(host)
        _run(self.switch, "ip", "link", "add", port, "type", "veth", "peer", "name", cable,
             "netns", str(host.pid or os.getpid()))  # fmt: skip
        _run(self.switch, "ip", "link", "set", port, "master", "switch", "up")
        _run(host, "ip", "address", "add", f"{host.address}/24", "dev", cable)
        for link in (cable,) if host is self.here else (cable, "lo"):
            _run(host, "ip", "link", "set", link, "up")

    def cut(self, one: Host, other: Host) -> None:
        """Nothing gets from one to the other nor back, and no error tells of it. Connections stay open."""
        for host, lost in ((one, other), (other, one)):
            _run(host, "ip", "neigh", "replace", lost.address, "lladdr", _NOWHERE, "nud", "permanent",
                 "dev", _cable(host))  # fmt: skip

    def heal(self, one: Host, other: Host) -> None:
        """They reach each other again; what TCP had under way arrives."""
        for host, lost in ((one, other), (other, one)):
            _run(host, "ip", "neigh", "del", lost.address, "dev", _cable(host), may_fail=True)

    def isolate(self, host: Host) -> None:
        """Cut it off from all others."""
        for other in [self.here, *self.hosts]:
            if other is not host:
                self.cut(host, other)

    def rejoin(self, host: Host) -> None:
        """Undo `isolate`."""
        for other in [self.here, *self.hosts]:
            if other is not host:
                self.heal(host, other)

    def delay(self, host: Host, milliseconds: int, lost_percent: float = 0.0) -> None:
        """All that it sends takes so much longer, and some is lost. Raises `AssetError` without netem in the kernel."""
        _run(host, "tc", "qdisc", "replace", "dev", _cable(host), "root", "netem", "delay", f"{milliseconds}ms",
             "loss", f"{lost_percent}%")  # fmt: skip

    def throttle(self, host: Host, bytes_per_second: int) -> None:
        """It sends no more than that, after the first 2000 bytes. Raises `AssetError` without tbf in the kernel."""
        _run(host, "tc", "qdisc", "replace", "dev", _cable(host), "root", "tbf", "rate", f"{8 * bytes_per_second}bit",
             "burst", str(_BURST), "limit", str(1 << 20))  # fmt: skip

    def at_ease(self, host: Host) -> None:
        """Undo `delay` and `throttle`."""
        _run(host, "tc", "qdisc", "del", "dev", _cable(host), "root", may_fail=True)


@contextmanager
def network(hosts: Sequence[str] = ()) -> Iterator[Network]:
    """A network with these hosts. Raises `AssetError` with the reason where none can be made."""
    missing = [tool for tool in ("ip", "tc", "nsenter", "unshare", "setpriv") if shutil.which(tool) is None]
    if missing or os.name != "posix" or os.getuid() != 0:
        raise AssetError(f"no network of one's own here: {', '.join(missing) or 'only root can make one'}")
    with ExitStack() as opened:
        switch = Host("switch", "", _held(opened))
        _run(switch, "ip", "link", "add", "switch", "type", "bridge")
        _run(switch, "ip", "link", "set", "switch", "up")
        subnet = _unused_subnet()
        here = Host(f"{os.getpid()}-{next(_NUMBERS)}", f"{subnet}.1", None)
        made = Network(here, switch, subnet, opened)
        made._join(here, 1)
        for name in hosts:
            made.add(name)
        yield made


def _cable(host: Host) -> str:
    """Its interface. Here, where there are others, it has a name of its own."""
    return f"mm{host.name}"[:15] if host.pid is None else "cable"


def _held(opened: ExitStack) -> int:
    """A process that does nothing but hold a namespace, until `opened` is closed."""
    try:
        holder = subprocess.Popen([*bound_to_us(), "unshare", "--net", "sleep", "infinity"], stderr=subprocess.DEVNULL)
    except OSError as error:
        raise AssetError(f"no network of one's own here: {error}") from error
    opened.callback(holder.wait)
    opened.callback(holder.kill)
    ours = os.stat("/proc/self/ns/net").st_ino
    if not until(lambda: _elsewhere(holder.pid, ours), lambda: holder.poll() is not None):
        raise AssetError("no network of one's own here: the kernel gives no namespace")
    return holder.pid


def _elsewhere(pid: int, ours: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino != ours
    except OSError:
        return False


def _run(host: Host, *words: str, may_fail: bool = False) -> None:
    done = subprocess.run([*host.within, *words], capture_output=True, text=True, check=False)
    if done.returncode and not may_fail:
        raise AssetError(f"no such network here: {' '.join(words)}: {done.stderr.strip()}")


def _unused_subnet() -> str:
    """Three numbers of a private /24 that this machine is not in."""
    first = os.getpid() % 200
    for number in range(first, first + 50):
        subnet = f"10.213.{number % 250}"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((f"{subnet}.1", 0))
            except OSError:
                return subnet
    raise AssetError("no network of one's own here: no free addresses")
