"""Asking the connector to read tables again, once it is known that a broker has lost its log.

Nothing stale is served without it: the tables have been moved as a whole. It is for those who want every row's change
announced again (`refresh`, other readers of the topics).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

import msgspec

from mmcache.model.errors import SyncError
from mmcache.sync.log import Log
from mmcache.sync.mapping import Resnapshot

COMMAND_SECONDS = 60.0


def ask(wanted: Resnapshot, tables: Sequence[str], log: Log, run: Callable[..., object] = subprocess.run) -> None:
    """Ask for `tables`: by Debezium's signal, or by the user's command. Raises `SyncError`."""
    if wanted.topic is not None and wanted.server is not None:
        signal = {"type": "execute-snapshot", "data": {"data-collections": list(tables), "type": "INCREMENTAL"}}
        log.produce(wanted.topic, wanted.server, msgspec.json.encode(signal))
        return
    command = [*wanted.command, *tables]
    try:
        run(command, check=True, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        raise SyncError(f"resnapshot: {command[0]} did not work: {error}") from error
