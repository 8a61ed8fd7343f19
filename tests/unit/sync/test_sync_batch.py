"""What a batch of messages comes to."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from tests.unit.sync.stand_ins import PRODUCTS, TABLES, ReadableIds, event
from tests.unit.sync.test_sync_envelope import recorded

from mmcache.sync.batch import Batch, Interpreter
from mmcache.sync.envelope import Message
from mmcache.sync.mapping import Table
from mmcache.sync.moves import Mover
from mmcache.sync.positions import Partition, Position, digest_of
from mmcache.sync.versions import Database
from mmcache.tiers.valkey.editions import ANEW

ROW = {"id": 1, "photo": "a", "title": "t", "body": "b"}
PLACE = (PRODUCTS, 0)


class Reader:
    """An interpreter that remembers its positions."""

    def __init__(self, tables: dict[str, Table] = TABLES, **options: str) -> None:
        self.interpreter = Interpreter(Mover(ReadableIds(), tables), tables, **options)  # type: ignore[arg-type]
        self.positions: dict[Partition, Position] = {PLACE: Position(offset=0)}
        self.databases: dict[str, Database] = {}

    def take(self, *messages: Message) -> Batch:
        batch = self.interpreter.interpret(messages, self.positions, self.databases)
        self.positions |= batch.positions
        self.databases |= batch.databases
        return batch


def moved(batch: Batch) -> dict[str, int]:
    return {source.decode(): version for source, version in batch.versions.items()}


def test_what_moves_twice_moves_once_to_the_highest_version() -> None:
    batch = Reader().take(event(0, "u", {"id": 1}, None, ROW, lsn=5), event(1, "d", {"id": 1}, ROW, lsn=9))
    assert moved(batch) == {"row products 1": 9}
    assert batch.counts == {"messages": 2, "applied": 2}


def test_a_move_without_a_version_stays_one() -> None:
    batch = Batch()
    mover = Mover(ReadableIds(), TABLES)
    move = mover.row("public.products", {"id": 1})
    batch.move(move, None)
    batch.move(move, 7)
    assert moved(batch) == {"row products 1": ANEW}


def test_positions_follow_and_mark_the_last_message() -> None:
    reader = Reader()
    messages = [event(0, "c", {"id": 1}, None, ROW), event(1, "d", {"id": 1}, ROW)]
    reader.take(*messages)
    assert reader.positions[PLACE].offset == 2
    assert reader.positions[PLACE].mark == (1, digest_of(messages[1]))


def test_what_was_applied_and_what_is_not_ours_is_left_out() -> None:
    reader = Reader()
    reader.take(event(0, "c", {"id": 1}, None, ROW))
    batch = reader.take(event(0, "c", {"id": 1}, None, ROW), event(0, "c", {"id": 1}, None, ROW, partition=3))
    assert batch.counts == {"repeated": 2}
    assert not batch.versions
    assert not batch.positions


def tombstone(offset: int, key: object = None) -> Message:
    return Message(PRODUCTS, 0, offset, json.dumps(key or {"id": 1}).encode(), None)


def test_the_tombstone_of_a_deletion_is_skipped_even_in_the_next_batch() -> None:
    reader = Reader()
    assert moved(reader.take(event(0, "d", {"id": 1}, ROW), tombstone(1))) == {"row products 1": 1000}
    reader.take(event(2, "d", {"id": 1}, ROW))
    assert not reader.take(tombstone(3)).versions


def test_a_tombstone_alone_is_a_deletion() -> None:
    reader = Reader()
    assert moved(reader.take(tombstone(0))) == {"row products 1": ANEW}
    reader.take(event(1, "d", {"id": 2}, ROW))
    assert moved(reader.take(tombstone(2))) == {"row products 1": ANEW}
    assert moved(reader.take(tombstone(3, {"other": 1}))) == {"table products": ANEW}
    assert not reader.take(Message(PRODUCTS, 0, 4, None, None)).versions


def test_poison_moves_all_that_it_may_be_about() -> None:
    reader = Reader()
    with_key = Message(PRODUCTS, 0, 0, b'{"id": 1}', b"?")
    without = Message(PRODUCTS, 0, 1, b"?", b"?")
    batch = reader.take(with_key, without)
    assert moved(batch) == {"row products 1": ANEW, "table products": ANEW}
    assert [message for _, message in batch.poison] == [with_key, without]
    assert batch.counts["poison"] == 2
    assert reader.positions[PLACE].offset == 2


def test_poison_of_a_table_that_is_not_mapped_moves_nothing() -> None:
    value = json.dumps({"op": "?", "source": {"connector": "x", "schema": "public", "table": "other"}}).encode()
    batch = Reader().take(Message(PRODUCTS, 0, 0, None, value))
    assert not batch.versions
    assert len(batch.poison) == 1


def test_poison_may_be_told_to_move_nothing() -> None:
    batch = Reader(on_poison="skip").take(Message(PRODUCTS, 0, 0, None, b"?"))
    assert not batch.versions
    assert len(batch.poison) == 1


def test_a_table_that_was_altered_moves_once_in_each_partition() -> None:
    reader = Reader()
    reader.positions[PRODUCTS, 1] = Position(offset=0)
    wide = ROW | {"more": 1}
    reader.take(event(0, "u", {"id": 1}, ROW, ROW), event(0, "u", {"id": 1}, ROW, ROW, partition=1))
    batch = reader.take(event(1, "u", {"id": 1}, wide, wide), event(1, "u", {"id": 1}, ROW, ROW, partition=1))
    assert moved(batch)["table products"] == ANEW
    assert batch.counts["altered"] == 1
    batch = reader.take(event(2, "u", {"id": 1}, wide, wide), event(2, "u", {"id": 1}, ROW, ROW, partition=1))
    assert "table products" not in moved(batch)
    assert reader.take(event(2, "u", {"id": 1}, wide, wide, partition=1)).counts["repeated"] == 1
    assert reader.take(event(3, "u", {"id": 1}, wide, wide, partition=1)).counts["altered"] == 1


def test_a_schema_change_moves_its_tables() -> None:
    value = json.dumps({"ddl": "…", "tableChanges": [{"id": '"public"."orders"'}, {"id": '"public"."other"'}]})
    assert moved(Reader().take(Message(PRODUCTS, 0, 0, None, value.encode()))) == {"table orders": ANEW}


def test_a_database_that_was_restored() -> None:
    """Its log goes on from an earlier place, at a later time: all may be different, and versions do not compare."""
    reader = Reader()
    reader.take(event(0, "d", {"id": 1}, lsn=5000, ts_ms=10_000))
    batch = reader.take(event(1, "d", {"id": 1}, lsn=300, ts_ms=20_000))
    assert moved(batch) == {"table products": ANEW, "table orders": ANEW, "row products 1": ANEW}
    assert batch.rewound == {"shop"}
    batch = reader.take(event(2, "d", {"id": 1}, lsn=310, ts_ms=20_001))
    assert (moved(batch), batch.rewound) == ({"row products 1": ANEW}, set())
    assert moved(reader.take(event(3, "d", {"id": 1}, lsn=5000, ts_ms=20_002))) == {"row products 1": ANEW}
    assert moved(reader.take(event(4, "d", {"id": 1}, lsn=5001, ts_ms=20_003))) == {"row products 1": 5001}
    assert reader.take(event(5, "d", {"id": 1}, lsn=10, ts_ms=30_000)).rewound == {"shop"}


def test_a_restored_database_that_begins_with_a_snapshot() -> None:
    reader = Reader()
    reader.take(event(0, "d", {"id": 1}, lsn=5000, ts_ms=10_000))
    batch = reader.take(event(1, "r", {"id": 1}, None, ROW, lsn=300, ts_ms=20_000, snapshot="first"))
    assert batch.rewound == {"shop"}
    assert moved(batch) == {"table products": ANEW, "table orders": ANEW}


def test_another_partition_tells_of_it_too() -> None:
    reader = Reader()
    reader.positions[PRODUCTS, 1] = Position(offset=0)
    reader.take(event(0, "d", {"id": 1}, lsn=5000, ts_ms=10_000))
    batch = reader.take(event(0, "d", {"id": 2}, lsn=300, ts_ms=20_000, partition=1))
    assert batch.rewound == {"shop"}
    batch = reader.take(event(1, "d", {"id": 1}, lsn=310, ts_ms=20_001))
    assert (moved(batch), batch.rewound) == ({"row products 1": ANEW}, set())


def test_a_partition_that_lags_is_old() -> None:
    reader = Reader()
    reader.positions[PRODUCTS, 1] = Position(offset=0)
    reader.take(event(0, "d", {"id": 1}, lsn=5000, ts_ms=10_000))
    batch = reader.take(event(0, "d", {"id": 2}, lsn=4990, ts_ms=10_003, partition=1))
    assert (moved(batch), batch.rewound) == ({"row products 2": 4990}, set())


def test_what_a_connector_repeats_is_old() -> None:
    reader = Reader()
    reader.take(event(0, "d", {"id": 1}, lsn=5000, ts_ms=10_000))
    batch = reader.take(event(1, "d", {"id": 1}, lsn=300, ts_ms=9_000))
    assert not batch.rewound
    assert moved(batch) == {"row products 1": 300}


def test_several_databases_in_one_partition_have_no_common_order() -> None:
    reader = Reader()
    reader.take(event(0, "d", {"id": 1}, lsn=5000, name="east"))
    assert moved(reader.take(event(1, "d", {"id": 1}, lsn=9000, name="west"))) == {"row products 1": ANEW}
    assert moved(reader.take(event(2, "d", {"id": 1}, lsn=9000, name="east"))) == {"row products 1": ANEW}


def test_another_database_with_the_same_table_has_no_common_order() -> None:
    """A database that moved to another server, with a connector of its own, begins its log at a lower place."""
    reader = Reader()
    topic = "new.public.products"
    reader.positions |= {(topic, 0): Position(offset=0), ("shop.public.orders", 0): Position(offset=0)}
    reader.take(event(0, "d", {"id": 1}, lsn=10**12))
    assert moved(reader.take(event(0, "d", {"id": 1}, lsn=10**6, topic=topic, name="new"))) == {"row products 1": ANEW}
    assert moved(reader.take(event(1, "d", {"id": 1}, lsn=10**12 + 1))) == {"row products 1": ANEW}
    assert moved(reader.take(event(0, "d", {"shop": 1, "number": 2}, lsn=10**12 + 2, topic="shop.public.orders"))) == {
        "row orders 1 2": 10**12 + 2
    }


def test_the_first_transaction_of_a_restored_database_tells_of_no_commit_before_it() -> None:
    reader = Reader()
    reader.take(event(0, "d", {"id": 1}, lsn=5000, ts_ms=10_000))
    batch = reader.take(event(1, "d", {"id": 1}, lsn=300, ts_ms=20_000, sequence='[null,"300"]'))
    assert batch.rewound == {"shop"}
    assert moved(batch) == {"table products": ANEW, "table orders": ANEW, "row products 1": ANEW}


def test_an_insertion_may_stand_in_the_log_before_a_deletion_that_it_waited_for() -> None:
    """Seen of PostgreSQL: one transaction inserts and deletes a row; another, meanwhile, inserts it and has to wait."""
    reader = Reader()
    reader.take(event(0, "c", {"id": 1}, None, ROW, lsn=0x1525D00), event(1, "d", {"id": 1}, ROW, lsn=0x1525E70))
    assert moved(reader.take(event(2, "c", {"id": 1}, None, ROW, lsn=0x1525DE0))) == {"row products 1": ANEW}


def test_heartbeats_tell_that_the_connector_lives() -> None:
    reader = Reader()
    topic = "__debezium-heartbeat.shop"
    reader.positions[topic, 0] = Position(offset=0)
    for offset, value in enumerate(
        [b'{"ts_ms": 5000}', b'{"payload": {"ts_ms": 7000}}', b"?", b"[]", b'{"ts_ms": "x"}']
    ):
        reader.take(Message(topic, 0, offset, b"{}", value))
    assert reader.interpreter.heard_ts == 7.0


def test_rows_to_refresh() -> None:
    tables = {"public.products": Table(key=("id",), name="products", refresh="a:b")}
    batch = Reader(tables).take(
        event(0, "c", {"id": 1}, None, ROW), event(1, "d", {"id": 1}, ROW), event(2, "t"),
        event(3, "r", {"id": 2}, None, ROW, snapshot="true"),
    )  # fmt: skip
    assert [(change.table, change.key, change.op) for change, _ in batch.refresh] == [("products", (1,), "c")]


def outcome(messages: Sequence[Message], sizes: Sequence[int]) -> dict[bytes, int]:
    tables = TABLES | {"public.events": Table(key=("what",)), "public.pages": Table(key=("id",))}
    reader = Reader(tables)
    reader.positions = {(message.topic, message.partition): Position(offset=0) for message in messages}
    found: dict[bytes, int] = {}
    start = turn = 0
    while start < len(messages):
        batch = reader.take(*messages[start : start + sizes[turn % len(sizes)]])
        assert not batch.poison
        assert not batch.rewound
        for source, version in batch.versions.items():
            found[source] = ANEW if ANEW in (version, found.get(source)) else max(version, found.get(source, 0))
        start, turn = start + sizes[turn % len(sizes)], turn + 1
    return found


@pytest.mark.parametrize("sizes", [(1,), (7,), (2, 5, 1)])
@pytest.mark.parametrize("name", ["plain.jsonl", "schemas.jsonl"])
def test_real_messages_end_in_the_same_editions_however_they_are_cut(name: str, sizes: Sequence[int]) -> None:
    messages = [message for _, message in recorded(name)]
    assert outcome(messages, sizes) == outcome(messages, (1000,))
