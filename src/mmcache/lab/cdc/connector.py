"""The third stage: Debezium reading PostgreSQL and writing to the broker, in a process of its own.

What a user has in production is their own Debezium; this is the same code with the settings that a cache wants: nothing
skipped (truncates too), tombstones after deletes, numbers as strings, a replication slot and a file of positions that
both outlive the connector.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mmcache.lab.cdc.broker import Broker
from mmcache.lab.cdc.connect_worker import jars
from mmcache.lab.cdc.postgres import DATABASE, USER, Postgres
from mmcache.lab.cdc.process import await_ready, kill, stop
from mmcache.model.errors import AssetError

SLOT, PUBLICATION, SIGNALS = "mmcache", "mmcache", "public.debezium_signal"
_START_SECONDS = 90.0
_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


def ready() -> None:
    """Raises `AssetError` where Java or Debezium is missing."""
    if shutil.which("java") is None:
        raise AssetError("no Java here (17 or later): apt-get install default-jre-headless")
    jars()


class Connector:
    """Debezium over `tables` ("schema.table"); topics are called `prefix`.schema.table.

    After `kill` it resumes where its file of positions says, which may be earlier than it was: events come twice.
    """

    def __init__(
        self, folder: Path, postgres: Postgres, broker: Broker, tables: Sequence[str], prefix: str = "shop",
        schemas: bool = False, transactions: bool = True, snapshot: str = "initial",
    ) -> None:  # fmt: skip
        ready()
        folder.mkdir(parents=True, exist_ok=True)
        self._postgres, self._broker, self._tables = postgres, broker, list(tables)
        self._folder, self._log, self._status = folder, folder / "connector.log", folder / "connector.status"
        self._signal_file = folder / "signals.json"
        self.prefix, self._schemas, self._transactions, self._snapshot = prefix, schemas, transactions, snapshot
        self._process: subprocess.Popen[bytes] | None = None
        self._before: int | None = None
        """What fed the one that was killed: the server may not have noticed yet."""

    @property
    def topics(self) -> list[str]:
        """A topic a table, in their order."""
        return [re.sub(r"[^A-Za-z0-9._-]", "_", f"{self.prefix}.{table}") for table in self._tables]

    def prepare(self) -> None:
        """Make the table of signals and the publication in the database. Once, after the tables exist."""
        names = ", ".join(quoted(table) for table in [*self._tables, SIGNALS])
        self._postgres.run(
            f"CREATE TABLE IF NOT EXISTS {SIGNALS} (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data text)",
            f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {names} WITH (publish_via_partition_root = true)",
        )

    def start(self) -> None:
        """Until it reads the replication slot. Raises `AssetError`."""
        config = {"worker": self._worker(), "connector": self._connector(), "status": str(self._status)}
        config_file = self._folder / "connector.json"
        config_file.write_text(json.dumps(config), encoding="utf-8")
        self._status.unlink(missing_ok=True)
        self._before = self._postgres.follower(SLOT)
        command = [sys.executable, "-m", "mmcache.lab.cdc.connect_worker", str(config_file)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        await_ready(self._process, self.follows, self._log, "Debezium", _START_SECONDS)

    def follows(self) -> bool:
        """Whether its task runs, and reads the log of the database."""
        return self.state() == "RUNNING" and self._postgres.follower(SLOT) not in (None, self._before)

    def state(self) -> str:
        """Kafka Connect's word for the state of the task: RUNNING, FAILED, …; STARTING while there is none."""
        try:
            return self._status.read_text(encoding="utf-8")
        except FileNotFoundError:
            return "STARTING"

    def log(self) -> str:
        """What it and Kafka Connect have said so far."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """SIGKILL it. The replication slot keeps what it has not confirmed."""
        assert self._process is not None
        kill(self._process)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            stop(self._process)

    def snapshot(self, *tables: str, name: str) -> None:
        """Ask it, by a row in the table of signals, to read whole tables again while it goes on following the log."""
        chosen = json.dumps({"data-collections": list(tables) or self._tables, "type": "incremental"})
        self._postgres.run(
            f"INSERT INTO {SIGNALS} (id, type, data) VALUES ('{name}', 'execute-snapshot', '{chosen}')",
        )

    def _worker(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self._broker.address,
            "offset.storage.file.filename": str(self._folder / "positions"),
            "offset.flush.interval.ms": "500",
            "offset.flush.timeout.ms": "1000",
            "key.converter": _CONVERTER,
            "value.converter": _CONVERTER,
            "key.converter.schemas.enable": str(self._schemas).lower(),
            "value.converter.schemas.enable": str(self._schemas).lower(),
            "plugin.discovery": "service_load",
            "producer.linger.ms": "0",
            "producer.acks": "all",
        }

    def _connector(self) -> dict[str, str]:
        return {
            "name": self.prefix,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._postgres.port),
            "database.user": USER,
            "database.dbname": DATABASE,
            "topic.prefix": self.prefix,
            "plugin.name": "pgoutput",
            "slot.name": SLOT,
            "slot.drop.on.stop": "false",
            "slot.retry.delay.ms": "500",
            "publication.name": PUBLICATION,
            "publication.autocreate.mode": "disabled",
            "table.include.list": ",".join(self._tables),
            "snapshot.mode": self._snapshot,
            "skipped.operations": "none",
            "tombstones.on.delete": "true",
            "decimal.handling.mode": "string",
            "provide.transaction.metadata": str(self._transactions).lower(),
            "heartbeat.interval.ms": "1000",
            "signal.enabled.channels": "source,file",
            "signal.data.collection": SIGNALS,
            "signal.file": str(self._signal_file),
            "signal.poll.interval.ms": "1000",
            "poll.interval.ms": "10",
            "status.update.interval.ms": "1000",
            "retriable.restart.connector.wait.ms": "500",
            "errors.max.retries": "-1",
            "errors.retry.delay.max.ms": "1000",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
        }


def quoted(table: str) -> str:
    """`schema.table` as SQL writes it."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split(".", 1))
