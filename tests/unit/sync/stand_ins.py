"""Stand-ins for the broker and the shared tier, and change events made by hand."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from threading import Event
from typing import Any

from mmcache.model.errors import TierError
from mmcache.rows import RowIds
from mmcache.sync.envelope import Message
from mmcache.sync.link import Keeper, Link
from mmcache.sync.log import Topic, Topics
from mmcache.sync.mapping import Kafka, SyncConfig, Table
from mmcache.sync.positions import Partition
from mmcache.tiers.valkey.client import Request, Script
from mmcache.tiers.valkey.editions import ANEW, Change

PRODUCTS = "shop.public.products"
TABLES = {
    "public.products": Table(key=("id",), name="products", groups={"photo": ("photo",), "text": ("title", "body")}),
    "public.orders": Table(key=("shop", "number"), name="orders"),
}


def config(tables: Mapping[str, Table] = TABLES, **kafka: Any) -> SyncConfig:
    return SyncConfig(
        kafka=Kafka(bootstrap="nowhere:1", topics=("shop.public.products", "shop.public.orders"), **kafka),
        shared="valkey://nowhere:1",
        secret_file="/nowhere",
        tables=dict(tables),
    )


class ReadableIds(RowIds):
    """Sources that can be read: b"row products 1"."""

    def __init__(self) -> None:
        super().__init__(bytes(32))

    def _id(self, kind: str, *names: str) -> bytes:
        return " ".join((kind, *names)).encode()


def source(lsn: int, table: str = "products", **more: Any) -> dict[str, Any]:
    return {
        "connector": "postgresql", "name": "shop", "db": "store", "schema": "public", "table": table, "lsn": lsn,
        "sequence": json.dumps([str(lsn - 1), str(lsn)]), "ts_ms": 1_800_000_000_000 + lsn, "snapshot": "false",
    } | more  # fmt: skip


def event(
    offset: int,
    op: str = "u",
    key: Mapping[str, Any] | None = None,
    before: Any = None,
    after: Any = None,
    lsn: int = 1000,
    topic: str = PRODUCTS,
    partition: int = 0,
    headers: Mapping[str, bytes | None] | None = None,
    **more: Any,
) -> Message:
    value = {"op": op, "before": before, "after": after, "source": source(lsn, topic.rpartition(".")[2], **more)}
    raw_key = None if key is None else json.dumps(key).encode()
    return Message(topic, partition, offset, raw_key, json.dumps(value).encode(), headers or {})


class FakeServer:
    """What is kept under `{sync}`, and editions; `down` makes it refuse so many calls."""

    def __init__(self) -> None:
        self.hashes: dict[bytes, dict[str, bytes]] = {}
        self.dead: list[list[bytes]] = []
        self.editions: dict[bytes, tuple[int, int]] = {}
        """Version, and how often it moved."""
        self.applied: list[list[Change]] = []
        self.followed: list[dict[str, set[str]]] = []
        """What caches were told that is followed."""
        self.down = 0

    # as a client

    def ask(self, requests: Sequence[Request]) -> list[Any]:
        self._serve()
        return [self._reply(*request.words) for request in requests]

    def _serve(self) -> None:
        if self.down:
            self.down -= 1
            raise TierError("down")

    def _reply(self, command: Any, key: Any, *words: Any) -> Any:
        kept = self.hashes.setdefault(bytes(key), {}) if command.startswith("H") else {}
        if command == "HGETALL":
            return [part for name, value in kept.items() for part in (name.encode(), value)]
        if command == "HSET":
            kept.update(zip(words[::2], words[1::2], strict=True))
        elif command == "HDEL":
            for name in words:
                kept.pop(name, None)
        elif command == "XADD":
            self.dead.append([_raw(word) for word in words[4:]])
        elif command == "XLEN":
            return len(self.dead)
        elif command == "XREVRANGE":
            before = len(self.dead) if words[0] == "+" else int(str(words[0])[1:].partition("-")[0])
            return [[b"%d-0" % place, self.dead[place]] for place in range(before - 1, -1, -1)][: int(words[3])]
        return 1

    # as a publisher

    def apply(self, changes: Sequence[Change]) -> None:
        self._serve()
        self.applied.append(list(changes))
        for change in changes:
            version, moves = self.editions.get(change.source, (0, 0))
            if change.version == ANEW:
                self.editions[change.source] = version, moves + 1
            elif change.version > version:
                self.editions[change.source] = change.version, moves + 1

    def moves(self, source: str) -> int:
        return self.editions.get(source.encode(), (0, 0))[1]


class _Keeper(Keeper):
    """Runs the scripts of `status`: one tells, the other asks."""

    def __init__(self, server: FakeServer) -> None:
        super().__init__(server, "t:")
        self._server = server
        self.now = 1000.0

    def run(self, name: str, script: Script, *arguments: str | bytes | int) -> Any:
        kept = self._server.hashes.setdefault(self.key(name), {})
        if arguments:
            kept[str(arguments[0])] = b"%f " % self.now + _raw(arguments[1])
            return b"%f" % self.now
        return [b"%f" % self.now, self.ask(name, "HGETALL")]


def _raw(word: Any) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def link(server: FakeServer) -> Link:
    def follow(tables: Mapping[str, Collection[str]]) -> None:
        server.followed.append({table: set(groups) for table, groups in tables.items()})

    return Link(server, _Keeper(server), ReadableIds(), follow)


class Impatient(Event):
    """Waits for nothing."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


class FakeLog:
    """A broker of lists. `make` makes a topic anew, `break_off` is a connection that broke."""

    def __init__(self, topics: Mapping[str, int] | None = None) -> None:
        self.identities: dict[str, str | None] = {}
        self.logs: dict[Partition, list[Message]] = {}
        self.lows: dict[Partition, int] = {}
        self.away = False
        self.leaderless: set[Partition] = set()
        self.deaf = 0
        """So many questions for single messages get no answer."""
        self.reading: dict[Partition, int] = {}
        self.committed: dict[Partition, int] = {}
        self.signals: list[tuple[str, str, bytes]] = []
        self.closed = False
        self._doubtful = False
        self._serial = 0
        for topic, partitions in (topics if topics is not None else {PRODUCTS: 1}).items():
            self.make(topic, partitions)

    def make(self, topic: str, partitions: int = 1, identity: bool = True) -> None:
        self._serial += 1
        self.identities[topic] = f"id-{self._serial}" if identity else None
        for number in range(partitions):
            self.logs[topic, number] = []
            self.lows.pop((topic, number), None)

    def drop(self, topic: str) -> None:
        del self.identities[topic]
        self.logs = {place: log for place, log in self.logs.items() if place[0] != topic}

    def write(self, *messages: Message) -> None:
        for message in messages:
            log = self.logs[message.topic, message.partition]
            assert message.offset == len(log)
            log.append(message)

    def break_off(self) -> None:
        self._doubtful = True

    def look(self) -> Topics | None:
        if self.away:
            return None
        return Topics("cluster", {
            topic: Topic(sum(place[0] == topic for place in self.logs), identity)
            for topic, identity in self.identities.items()
        })  # fmt: skip

    def ends(self, partition: Partition) -> tuple[int, int] | None:
        log = self.logs.get(partition)
        return (
            None
            if self.away or log is None or partition in self.leaderless
            else (self.lows.get(partition, 0), len(log))
        )

    def ends_known(self, partition: Partition) -> int | None:
        return len(self.logs[partition]) if partition in self.logs else None

    def first_from(self, offsets: Mapping[Partition, int]) -> dict[Partition, Message | None]:
        found: dict[Partition, Message | None] = {}
        if self.deaf:
            self.deaf -= 1
            return found
        for place, offset in offsets.items():
            there = [m for m in self.logs.get(place, []) if m.offset >= max(offset, self.lows.get(place, 0))]
            found[place] = there[0] if there else None
        return found

    def owned(self, topics: Topics) -> set[Partition]:
        return {(name, number) for name, topic in topics.topics.items() for number in range(topic.partitions)}

    def begin(self, offsets: Mapping[Partition, int]) -> None:
        self.reading = dict(offsets)

    def poll(self, most: int, seconds: float) -> list[Message]:
        found: list[Message] = []
        for place, offset in self.reading.items():
            some = [] if self.away else self.logs.get(place, [])[offset : offset + most]
            self.reading[place] = offset + len(some)
            found += some
        return found

    def doubtful(self) -> bool:
        was, self._doubtful = self._doubtful, False
        return was

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self.committed |= offsets

    def produce(self, topic: str, key: str, value: bytes) -> None:
        self.signals.append((topic, key, value))

    def close(self) -> None:
        self.closed = True
