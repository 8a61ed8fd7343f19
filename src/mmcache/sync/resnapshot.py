"""Asking the connector to read tables again, once it is known that a broker has lost its log.

Nothing stale is served without it: the tables have been moved as a whole. It is for those who want every row's change
announced again (`refresh`, other readers of the topics).
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Sequence

import msgspec

from mmcache.model.errors import SyncError
from mmcache.sync.log import Log
from mmcache.sync.mapping import Resnapshot

COMMAND_SECONDS = 60.0
THREAD = "mmcache-resnapshot"


def ask(
    wanted: Resnapshot,
    tables: Sequence[str],
    log: Log,
    failed: Callable[[str], None],
    run: Callable[..., object] = subprocess.run,
) -> None:
    """Ask for `tables`: by Debezium's signal, or by the user's command, which nobody waits for. failed: told why."""
    if wanted.topic is not None and wanted.server is not None:
        signal = {"type": "execute-snapshot", "data": {"data-collections": list(tables), "type": "INCREMENTAL"}}
        try:
            log.produce(wanted.topic, wanted.server, msgspec.json.encode(signal))
        except SyncError as error:
            failed(str(error))
        return
    threading.Thread(target=_command, args=(wanted.command, tables, failed, run), name=THREAD, daemon=True).start()


def _command(
    command: Sequence[str], tables: Sequence[str], failed: Callable[[str], None], run: Callable[..., object]
) -> None:
    """The reason does not show its arguments, which may be secrets."""
    quiet = subprocess.DEVNULL
    try:
        run([*command, *tables], check=True, timeout=COMMAND_SECONDS, stdin=quiet, stdout=quiet)
    except subprocess.CalledProcessError as error:
        failed(f"resnapshot: {command[0]} ended with exit code {error.returncode}")
    except subprocess.TimeoutExpired:
        failed(f"resnapshot: {command[0]} did not end within {COMMAND_SECONDS:g} s")
    except OSError as error:
        failed(f"resnapshot: {command[0]} did not start: {error.strerror or error}")
