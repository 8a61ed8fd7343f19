"""A primary, its replicas, and the sentinels that watch over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mmcache.lab.servers.process import Server, ask_to_stop, free_ports, until
from mmcache.lab.servers.single import Setup
from mmcache.model.errors import AssetError, TierError
from mmcache.scale.binaries import Binary

MASTER = "mymaster"
"""What the sentinels call the primary."""


class Sentinel(Server):
    """One that watches. It keeps what it knows in its configuration, and so needs a file."""

    def arguments(self) -> list[str]:
        """See `Server.arguments`."""
        return [str(self.folder / "sentinel.conf"), "--sentinel"]


@dataclass
class Replicated:
    """Running servers of one data set."""

    servers: list[Server]
    sentinels: list[Sentinel]
    quorum: int
    options: Sequence[str] = ()
    """That all servers have in common."""

    @property
    def url(self) -> str:
        """What a cache is given as `shared=`."""
        return f"valkey+sentinel://{','.join(f'{each.host}:{each.port}' for each in self.sentinels)}/{MASTER}"

    @property
    def primary(self) -> Server:
        """Whom the sentinels name now. Raises `TierError` when none can be asked."""
        for sentinel in self.sentinels:
            try:
                host, port = sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
            except (OSError, TierError, TypeError):
                continue
            return next(each for each in self.servers if (each.host, each.port) == (host.decode(), int(port)))
        raise TierError("no sentinel says who is primary")

    @property
    def replicas(self) -> list[Server]:
        """All others, also those that are down."""
        primary = self.primary
        return [each for each in self.servers if each is not primary]

    def await_healthy(self) -> None:
        """Until all sentinels agree on a primary that serves, all that run follow it, and it can be replaced.

        Raises `AssetError`.
        """
        if not until(self._healthy):
            raise AssetError("the sentinels do not agree, or a replica does not follow")

    def await_failover(self, former: Server) -> None:
        """Until another than `former` is primary. Raises `AssetError`."""
        if not until(lambda: self._replaced(former)):
            raise AssetError("no other became primary")

    def restart(self, server: Server) -> None:
        """Start a killed one again, as a replica that nobody promotes before it has the data. Raises `AssetError`.

        A former primary that came back as one would be empty, and the next failover could give its emptiness to all:
        https://redis.io/docs/latest/operate/oss_and_stack/management/replication/ warns of it.
        """
        self.await_failover(server)
        server.options = [*self.options, *_following(self.primary), "--replica-priority", "0"]
        server.restart()
        if not until(lambda: b"master_link_status:up" in server.ask("INFO", "replication")):
            raise AssetError("it does not follow the primary")
        server.ask("CONFIG", "SET", "replica-priority", "100")

    def _replaced(self, former: Server) -> bool:
        try:
            return self.primary is not former and self.primary.ask("ROLE")[0] == b"master"
        except (OSError, TierError):  # the sentinels are about to name another
            return False

    def _healthy(self) -> bool:
        try:
            primary = self.primary
            if primary.ask("ROLE")[0] != b"master":
                return False
            named = {tuple(each.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)) for each in self.sentinels}
            known = [each.ask("SENTINEL", "CKQUORUM", MASTER) for each in self.sentinels]
            followers = [each.ask("INFO", "replication") for each in self.servers if each.alive and each is not primary]
            pages = [each.ask("SENTINEL", "REPLICAS", MASTER) for each in self.sentinels]
        except (OSError, TierError):
            return False
        return (
            len(named) == 1
            and all(said.startswith(f"OK {len(self.sentinels)} ") for said in known)
            and all(b"master_link_status:up" in said for said in followers)
            and all(len(page) >= len(followers) for page in pages)
        )


@contextmanager
def replicated(
    folder: Path,
    replicas: int = 1,
    sentinels: int = 3,
    *options: str,
    down_after_ms: int = 1000,
    binary: Binary | None = None,
    password: str | None = None,
    users: Mapping[str, str] | None = None,
) -> Iterator[Replicated]:
    """A primary with replicas and sentinels on free ports of 127.0.0.1; ended by its own pids. Raises `AssetError`.

    A primary that is silent for `down_after_ms` is replaced.
    """
    setup = Setup(options, binary, None, password, users)
    first = setup.new(folder / "0")
    followers = [setup.new(folder / str(number), *_following(first)) for number in range(1, 1 + replicas)]
    servers = [first, *followers]
    watching = [
        Sentinel(first.binary, folder / f"sentinel{number}", port) for number, port in enumerate(free_ports(sentinels))
    ]
    quorum = sentinels // 2 + 1
    made = Replicated(servers, watching, quorum, first.options)
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.await_answer()
        for sentinel in watching:
            _write(sentinel, first.port, quorum, down_after_ms, password)
            sentinel.start()
        for sentinel in watching:
            sentinel.await_answer()
        made.await_healthy()
        yield made
    finally:
        ask_to_stop([*watching, *servers])


def _following(primary: Server) -> list[str]:
    return ["--replicaof", primary.host, str(primary.port)]


def _write(sentinel: Sentinel, primary: int, quorum: int, down_after_ms: int, password: str | None) -> None:
    sentinel.folder.mkdir(parents=True, exist_ok=True)
    lines = [
        f"port {sentinel.port}", "bind 127.0.0.1", f"dir {sentinel.folder}",
        f"sentinel monitor {MASTER} 127.0.0.1 {primary} {quorum}",
        f"sentinel down-after-milliseconds {MASTER} {down_after_ms}",
        f"sentinel failover-timeout {MASTER} 4000", f"sentinel parallel-syncs {MASTER} 1",
    ]  # fmt: skip
    if password is not None:
        lines.append(f"sentinel auth-pass {MASTER} {password}")
    (sentinel.folder / "sentinel.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
