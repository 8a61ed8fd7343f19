"""Doing again what a dead letter failed at."""

from __future__ import annotations

from collections.abc import Mapping

from mmcache.model.errors import SyncError
from mmcache.sync.batch import Interpreter
from mmcache.sync.dead import DeadLetter
from mmcache.sync.link import Link
from mmcache.sync.mapping import Table
from mmcache.sync.moves import Mover
from mmcache.sync.positions import Position
from mmcache.sync.refresh import Refresher
from mmcache.tiers.valkey.editions import ANEW, Change


def retry(letter: DeadLetter, link: Link, tables: Mapping[str, Table], refreshers: Mapping[str, Refresher]) -> int:
    """Move what its message says, and refresh if it was that; how many sources moved. What it says is old by now, so
    they move whatever their versions. Raises `SyncError` where it fails again, `TierError`.
    """
    if not letter.whole:
        raise SyncError(f"dead letter {letter.id} was too long to be kept whole; --drop it")
    message = letter.message
    partition = message.topic, message.partition
    interpreter = Interpreter(Mover(link.ids, tables), tables)
    batch = interpreter.interpret([message], {partition: Position(offset=message.offset)})
    if batch.poison:
        raise SyncError(f"dead letter {letter.id} is still not understood: {batch.poison[0][0]}")
    link.publisher.apply([Change(source, ANEW) for source in batch.versions])
    if letter.reason == "refresh":
        for change, _ in batch.refresh:
            try:
                refreshers[change.table](change)
            except Exception as error:
                raise SyncError(f"dead letter {letter.id}: refresh failed again: {error}") from error
    return len(batch.versions)
