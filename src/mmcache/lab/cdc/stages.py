"""The stages together, in the order in which a change runs through them: database, connector, broker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from mmcache.lab.cdc.broker import Broker, program
from mmcache.lab.cdc.connector import Connector, ready
from mmcache.lab.cdc.postgres import Postgres, client, programs


def missing() -> str | None:
    """Why the stages cannot run here; None = they can."""
    from mmcache.model.errors import AssetError

    try:
        ready()
        program()
        programs()
        client()
    except AssetError as error:
        return str(error)
    return None


class Stages:
    """PostgreSQL with `tables` (statements that make them), Debezium over them, and a broker, while the context lasts.

    Each of `postgres`, `connector`, `broker` can be killed and started again. `schemas`: events
    carry their schema. `transactions`: their begin and end are events too. `snapshot`: Debezium's `snapshot.mode`.
    """

    def __init__(
        self,
        folder: Path,
        make: Sequence[str],
        tables: Sequence[str],
        *,
        schemas: bool = False,
        transactions: bool = True,
        snapshot: str = "initial",
    ) -> None:
        self._make = list(make)
        self.broker = Broker(folder)
        ready()
        self.postgres = Postgres()
        self.connector = Connector(
            folder, self.postgres, self.broker, tables, schemas=schemas, transactions=transactions, snapshot=snapshot
        )

    def __enter__(self) -> Stages:
        try:
            self.broker.start()
            self.postgres.start()
            self.postgres.run(*self._make)
            self.connector.prepare()
            self.connector.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all of them, those that read before those that are read."""
        self.connector.stop()
        self.postgres.stop()
        self.broker.stop()
