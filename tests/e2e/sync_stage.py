"""A broker, a shared tier, and `mmcache sync run` as a process that can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mmcache.lab import servers
from mmcache.lab.cdc.broker import Broker
from mmcache.model.clock import SystemClock
from mmcache.rows import Row, RowIds
from mmcache.settings import SharedSettings
from mmcache.sync.link import Keeper
from mmcache.sync.status import Seen, Status
from mmcache.tiers.valkey.client import Client
from mmcache.tiers.valkey.editions import Editions

TOPIC = "shop.public.products"
PATIENCE_SECONDS = 60.0


def until(wanted: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not wanted():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Stage:
    """All of it, and what a reader would ask."""

    def __init__(self, folder: Path, broker: Broker, server: servers.Server) -> None:
        self.folder, self.broker, self.server = folder, broker, server
        self.url = url = f"valkey://127.0.0.1:{server.port}"
        secret = os.urandom(32)
        key = folder / "realm.key"
        key.touch(0o600)
        key.write_bytes(secret)
        self.mapping = folder / "sync.yaml"
        self.configure()
        self.lsn = 1000
        self._settings = SharedSettings(url, timeout_seconds=5.0)
        self._client = Client(self._settings, clock=SystemClock())
        self._ids = RowIds(secret)
        self._editions = Editions(self._client, lambda: True, SystemClock())
        self._runners: list[subprocess.Popen[bytes]] = []

    def configure(self, kafka: str = "", more: str = "") -> None:
        """Write the mapping."""
        self.mapping.write_text(
            f"""
kafka: {{bootstrap: "{self.broker.address}", topics: [{TOPIC}], {kafka}
        options: {{fetch.wait.max.ms: 5, session.timeout.ms: 6000}}}}
shared: {{url: "{self.url}", timeout_seconds: 5}}
secret_file: {self.folder}/realm.key
tables:
  public.products: {{key: [id], groups: {{photo: [photo], text: [title]}}}}
{more}""",
            encoding="utf-8",
        )

    # the broker

    def make_topic(self, partitions: int = 2) -> None:
        """As a connector does when it finds none."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.broker.address, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, partitions, 1)])[TOPIC].result(PATIENCE_SECONDS)

    def produce(self, *messages: tuple[bytes | None, bytes | None]) -> None:
        """Keys and values, until the broker has them."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.address, "log_level": 0, "linger.ms": 0})
        for key, value in messages:
            producer.produce(TOPIC, value, key)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def change(self, *ids: int, photo: str = "new") -> None:
        """The photos of these products change."""
        self.produce(*(self._event(id, photo) for id in ids))

    def _event(self, id: int, photo: str) -> tuple[bytes, bytes]:
        self.lsn += 10
        row = {"id": id, "photo": "old", "title": "t"}
        value = {"op": "u", "before": row, "after": row | {"photo": photo}, "source": {
            "connector": "postgresql", "name": "shop", "db": "store", "schema": "public", "table": "products",
            "lsn": self.lsn, "sequence": json.dumps([str(self.lsn - 1), str(self.lsn)]),
            "ts_ms": round(time.time() * 1000), "snapshot": "false",
        }}  # fmt: skip
        return json.dumps({"id": id}).encode(), json.dumps(value).encode()

    # readers

    def edition(self, id: int, group: str | None = None) -> tuple[bytes, ...]:
        """What the key of a block computed from this row contains now."""
        self._editions.forget(None)
        found = self._editions.of(self._ids.of(Row("products", id, group)))
        assert isinstance(found, list)
        return tuple(found)

    # runners

    def start(self) -> subprocess.Popen[bytes]:
        """`mmcache sync run`."""
        command = [sys.executable, "-m", "mmcache.cli", "sync", "run", "--config", str(self.mapping)]
        with (self.folder / "runner.log").open("ab") as log:
            started = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        self._runners.append(started)
        return started

    def await_reading(self) -> None:
        """Until a runner reads."""
        until(lambda: any(one.alive and one.report.state == "reading" for one in self.seen()))

    def seen(self) -> list[Seen]:
        """What the runners say of themselves."""
        return Status(Keeper(self._client, self._client.address.prefix)).seen()

    def sync(self, *words: str) -> tuple[int, Any]:
        """Another `mmcache sync` command: its exit code, and what it says."""
        command = [sys.executable, "-m", "mmcache.cli", "sync", *words, "--config", str(self.mapping), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def status(self) -> tuple[int, Any]:
        """`mmcache sync status`."""
        return self.sync("status")

    def close(self) -> None:
        """End what was started."""
        for runner in self._runners:
            if runner.poll() is None:
                runner.kill()
            runner.wait()
        self._client.close()


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """One, while the context lasts. Skips where something is missing."""
    from mmcache.model.errors import AssetError

    try:
        broker = Broker(folder / "broker")
        with servers.server(folder / "valkey") as server:
            broker.start()
            made = Stage(folder, broker, server)
            try:
                yield made
            finally:
                made.close()
                broker.stop()
    except AssetError as missing:
        pytest.skip(str(missing))
