"""`Pipe`: the whole way of a change, from commit to caches: stages, `mmcache sync`, a cluster, cache processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from mmcache.keys.realm import load_secret
from mmcache.lab.cdc.board import Board
from mmcache.lab.cdc.process import await_ready, kill, stop
from mmcache.lab.cdc.stages import Stages
from mmcache.lab.servers import Cluster, Node, cluster, slot_of
from mmcache.lab.servers.process import bound_to_us, until
from mmcache.model.errors import AssetError, TierError

READERS = 3
STALE_AFTER_SECONDS = 3
"""While nothing is heard of changes for so long, all tables move."""
_TABLE = "public.products"


class CacheProcess:
    """One process with a `Cache` in a folder of its own, as on a host of its own."""

    def __init__(self, config_file: Path) -> None:
        self._config_file = config_file
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it takes orders. Raises `AssetError`."""
        command = [*bound_to_us(), sys.executable, "-m", "mmcache.lab.cdc.read_worker", str(self._config_file)]
        with self._config_file.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0
            )
        self.answer()

    def order(self, do: str, **how: Any) -> None:
        """Give an order; `answer` waits for it."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do} | how).encode() + b"\n")

    def answer(self) -> dict[str, Any]:
        """To the order before. Raises `AssetError` when it died instead."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        while line and not line.endswith(b"\n"):
            line += self._process.stdout.readline()
        if not line:
            log = self._config_file.with_suffix(".log").read_text(errors="replace")[-800:]
            raise AssetError(f"a cache process ended: {log}")
        found: dict[str, Any] = json.loads(line)
        return found

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        kill(self._process)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            stop(self._process)


class SyncProcess:
    """`mmcache sync run`."""

    def __init__(self, config_file: Path) -> None:
        self._config_file, self._log = config_file, config_file.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it reads. Raises `AssetError`."""
        words = [*bound_to_us(), sys.executable, "-m", "mmcache.cli", "sync", "run"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*words, "--config", str(self._config_file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        await_ready(self._process, self.reads, self._log, "mmcache sync")

    def reads(self) -> bool:
        """Whether this very process says that it reads."""
        assert self._process is not None
        mine = f":{self._process.pid}"
        return any(one["runner"].endswith(mine) and one["state"] == "reading" for one in self.reports())

    def reports(self) -> list[dict[str, Any]]:
        """What runners say of themselves, as `mmcache sync status` shows it."""
        from mmcache.sync import mapping
        from mmcache.sync.link import keeper_of
        from mmcache.sync.status import Status

        client, keeper = keeper_of(mapping.read(self._config_file).settings)
        try:
            seen = Status(keeper).seen()
        except TierError:
            return []
        finally:
            client.close()
        return [
            {"runner": one.report.runner, "state": one.report.state, "counts": one.report.counts,
             "epochs": one.report.epochs, "alive": one.alive, "positions": one.report.positions}
            for one in seen
        ]  # fmt: skip

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        kill(self._process)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            stop(self._process)


class Pipe:
    """All of it, while the context lasts. Every part can be killed and started again; one row of `products` is
    (id, version, title), ids from 1 to `rows`.
    """

    def __init__(self, folder: Path, rows: int, readers: int = READERS, primaries: int = 3, replicas: int = 1) -> None:
        self._folder, self._rows, self._readers = folder, rows, readers
        self._shape, self._exit = (primaries, replicas), ExitStack()
        self.board = Board(folder / "board")
        self.cluster: Cluster
        self.stages: Stages
        self.sync: SyncProcess
        self.caches: list[CacheProcess] = []

    def __enter__(self) -> Pipe:
        with self._exit:
            self._open()
            self._exit = self._exit.pop_all()
        return self

    def _open(self) -> None:
        self.cluster = self._exit.enter_context(cluster(self._folder / "cluster", *self._shape))
        make = (
            "CREATE TABLE products (id int PRIMARY KEY, version int NOT NULL, title text NOT NULL)",
            "ALTER TABLE products REPLICA IDENTITY FULL",
            f"INSERT INTO products SELECT n, 0, 'thing ' || n FROM generate_series(1, {self._rows}) n",
        )
        self.stages = self._exit.enter_context(
            Stages(self._folder / "stages", make, [_TABLE], snapshot="no_data", transactions=False)
        )
        secret_file = self._folder / "realm.key"
        load_secret(secret_file)
        self.sync = SyncProcess(self._mapping(secret_file))
        self._exit.callback(self.sync.stop)
        self.sync.start()
        for number in range(self._readers):
            config_file = self._folder / f"cache-{number}.json"
            config = {
                "folder": str(self._folder / f"cache-{number}"), "shared": self.cluster.url,
                "secret_file": str(secret_file), "port": self.stages.postgres.port,
                "board": str(self._folder / "board"),
            }  # fmt: skip
            config_file.write_text(json.dumps(config), encoding="utf-8")
            process = CacheProcess(config_file)
            self._exit.callback(process.stop)
            process.start()
            self.caches.append(process)
        self._await_flow()

    def _await_flow(self) -> None:
        """Until a first change has come through: only then is the topic there, and rows are kept."""
        self.stages.postgres.run("UPDATE products SET title = title WHERE id = 1")
        if not until(lambda: any("shop.public.products/0" in one["positions"] for one in self.sync.reports())):
            raise AssetError("mmcache sync does not find the topic of the table")
        if not all(found["kept"] for found in self.each("settle", row=1)):
            raise AssetError("a cache process keeps no rows")

    def _mapping(self, secret_file: Path) -> Path:
        path = self._folder / "sync.yaml"
        path.write_text(
            f"""\
kafka:
  bootstrap: "{self.stages.broker.address}"
  topics: ["shop.public.products", "__debezium-heartbeat.shop"]
  options: {{fetch.wait.max.ms: 5}}  # this broker answers when that is over, not when something comes
shared: "{self.cluster.url}"
secret_file: "{secret_file}"
replicas: {self._shape[1]}
stale_after: {STALE_AFTER_SECONDS}
tables:
  public.products: {{key: [id], name: products}}
""",
            encoding="utf-8",
        )
        return path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def news_node(self) -> Node:
        """The primary that holds the stream by which caches hear of changes."""
        return self.cluster.primary_of(slot_of(b"mmcache:{news}"))

    def each(self, do: str, **how: Any) -> list[dict[str, Any]]:
        """One order to all cache processes; their answers."""
        return ask_all(self.caches, do, **how)


def ask_all(caches: Sequence[CacheProcess], do: str, **how: Any) -> list[dict[str, Any]]:
    """One order to each of them at once; their answers."""
    for one in caches:
        one.order(do, **how)
    return [one.answer() for one in caches]
