"""A throw-away PostgreSQL with logical decoding: the first stage, and the truth that the others follow.

Its programs come from the system (Debian: `postgresql`), its client from `mmcache[cdc]`. `initdb` does not run as root,
so for root another user serves. The folder lies in the system's temporary folder, because that user must reach it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from mmcache.lab.cdc.process import await_ready, kill, stop
from mmcache.lab.servers.process import bound_to_us, free_ports
from mmcache.model.errors import AssetError

USER, DATABASE = "postgres", "postgres"
_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "8",
    "max_replication_slots": "8",
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_connections": "40",
    "log_min_messages": "warning",
    "autovacuum": "off",
}


def programs() -> Path:
    """The folder of `initdb` and `postgres`, newest first. Raises `AssetError` where none is installed."""
    for found in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version, reverse=True):
        return found.parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise AssetError("no PostgreSQL here: apt-get install postgresql")
    return Path(on_path).resolve().parent


def _version(initdb: Path) -> float:
    name = initdb.parent.parent.name
    return float(name) if name.replace(".", "").isdigit() else 0.0


def _servant() -> str | None:
    """Who runs it: None = we ourselves; another user where we are root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise AssetError("PostgreSQL does not run as root, and there is no user postgres or nobody")


class Postgres:
    """A server of its own, on a unix socket and a free port of 127.0.0.1.

    What is committed survives `kill`; `start` recovers it as after a power cut. `stop` also removes its folder.
    """

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self._programs, self._servant = programs(), _servant()
        self.folder = Path(tempfile.mkdtemp(prefix="mmcache-postgres-"))
        self._data, self._log = self.folder / "data", self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        if self._servant is not None:
            shutil.chown(self.folder, self._servant)
        made = subprocess.run(
            [
                self._programs / "initdb", "-D", self._data, "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C",
                "--no-sync",
            ],
            user=self._servant, cwd=self.folder, capture_output=True, check=False,
        )  # fmt: skip
        if made.returncode:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise AssetError(f"initdb failed: {made.stderr.decode(errors='replace')[-500:]}")

    def start(self) -> None:
        """Until it accepts statements. Raises `AssetError`."""
        settings = _SETTINGS | {"port": str(self.port), "unix_socket_directories": str(self.folder)}
        command = [*bound_to_us(), str(self._programs / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, user=self._servant, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        await_ready(self._process, self._answers, self._log, "PostgreSQL")

    def kill(self) -> None:
        """SIGKILL the server and every process of it."""
        assert self._process is not None
        kill(self._process)

    def stop(self) -> None:
        """End it and remove all it kept."""
        if self._process is not None:
            stop(self._process, signal.SIGINT)  # a fast shutdown: it does not wait for clients
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run them one after another, each a transaction of its own; the rows of the last one."""
        connection = connected(self.port)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall()) if cursor.description else []
        finally:
            connection.close()

    def follower(self, slot: str) -> int | None:
        """The server's process that feeds whoever reads this replication slot; None = nobody does."""
        found = self.run(f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{slot}' AND active")
        return int(found[0][0]) if found else None

    def _answers(self) -> bool:
        try:
            return self.run("SELECT 1") == [(1,)]
        except client().OperationalError:
            return False


def connected(port: int) -> Any:
    """A connection of psycopg2 to the server on `port`; every statement is a transaction. Raises psycopg2's errors."""
    connection = client().connect(host="127.0.0.1", port=port, user=USER, dbname=DATABASE, connect_timeout=5)
    connection.autocommit = True
    return connection


def client() -> Any:
    """The module psycopg2. Raises `AssetError` where it is missing."""
    try:
        import psycopg2
    except ImportError as error:
        raise AssetError("no client of PostgreSQL here: pip install 'mmcache[cdc]'") from error
    return psycopg2
