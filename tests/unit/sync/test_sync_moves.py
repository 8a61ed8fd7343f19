"""Which sources a change moves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.sync.stand_ins import TABLES, ReadableIds, event
from tests.unit.sync.test_sync_envelope import changes

from mmcache.sync.batch import Interpreter
from mmcache.sync.envelope import Message, RowChange, read
from mmcache.sync.mapping import Table
from mmcache.sync.moves import Mover
from mmcache.sync.positions import Position
from mmcache.tiers.valkey.editions import ANEW

ROW = {"id": 1, "photo": "a", "title": "t", "body": "b", "price": 5}


def moved(message: Message, tables: dict[str, Table] | None = None) -> dict[str, int]:
    """Sources and versions."""
    known = tables or TABLES
    interpreter = Interpreter(Mover(ReadableIds(), known), known)
    place = message.topic, message.partition
    batch = interpreter.interpret([message], {place: Position(offset=0)})
    return {source.decode(): version for source, version in batch.versions.items()}


def update(after: dict[str, Any], before: dict[str, Any] | None = ROW, key: dict[str, Any] | None = None) -> Message:
    return event(0, "u", key or {"id": 1}, before, after)


def test_what_comes_or_goes_moves_its_row() -> None:
    assert moved(event(0, "c", {"id": 1}, None, ROW)) == {"row products 1": ANEW}
    assert moved(event(0, "d", {"id": 1}, ROW)) == {"row products 1": 1000}


def test_an_update_moves_the_groups_that_changed_and_that_of_all_columns() -> None:
    assert moved(update(ROW | {"photo": "z"})) == {"group * products 1": 1000, "group photo products 1": 1000}
    assert moved(update(ROW | {"price": 6})) == {"group * products 1": 1000}
    assert moved(update(ROW | {"title": "z", "photo": "z"})) == {
        "group * products 1": 1000, "group photo products 1": 1000, "group text products 1": 1000,
    }  # fmt: skip


def test_one_that_changes_nothing_to_be_seen_may_have_changed_what_is_left_out() -> None:
    assert moved(update(ROW)) == {"group * products 1": 1000}


def test_without_the_row_before_the_whole_row_moves() -> None:
    assert moved(update(ROW, before=None)) == {"row products 1": 1000}
    tables = {"public.products": Table(key=("id",), name="products", groups={"photo": ("photo",)}, old_rows=False)}
    assert moved(update(ROW | {"price": 6}), tables) == {"row products 1": 1000}


@pytest.mark.parametrize("lacking", ["before", "after"])
def test_a_mapped_column_that_is_missing_has_changed(lacking: str) -> None:
    short = {name: value for name, value in ROW.items() if name != "body"}
    found = moved(update(short) if lacking == "after" else update(ROW, before=short))
    assert "group text products 1" in found
    assert "group photo products 1" not in found


@pytest.mark.parametrize(("old", "new"), [(1, True), (1, 1.0), (0, None), ("1", 1), (float("nan"), float("nan"))])
def test_what_only_looks_the_same_has_changed(old: object, new: object) -> None:
    interpreter = Mover(ReadableIds(), TABLES)
    change = RowChange(("public.products",), "u", {"id": 1}, ROW | {"photo": old}, ROW | {"photo": new}, 5)
    assert b"group photo products 1" in interpreter.change("public.products", change).sources


def test_a_partial_row_before_proves_nothing_of_what_is_empty() -> None:
    """REPLICA IDENTITY USING INDEX: only the index's columns are there, the rest shows as empty."""
    before = {"id": 0, "photo": None, "title": "", "body": None, "price": 0}
    after = {"id": 1, "photo": None, "title": "", "body": "b", "price": 0}
    assert set(moved(update(after, before))) == {
        "group * products 1", "group photo products 1", "group text products 1",
    }  # fmt: skip


def test_a_primary_key_that_changes_moves_both_rows() -> None:
    headers = {"__debezium.newkey": b'{"id": 2}'}
    assert set(moved(event(0, "d", {"id": 1}, ROW, headers=headers))) == {"row products 1", "row products 2"}
    headers = {"__debezium.oldkey": b'{"id": 1}'}
    assert set(moved(event(0, "c", {"id": 2}, None, ROW | {"id": 2}, headers=headers))) == {
        "row products 1", "row products 2",
    }  # fmt: skip


@pytest.mark.parametrize("op", ["t", "r"])
def test_what_is_about_the_table_moves_the_table(op: str) -> None:
    message = event(0, op, None, None, ROW if op == "r" else None, snapshot="first" if op == "r" else "false")
    assert moved(message) == {"table products": 1000 if op == "r" else ANEW}


def test_an_incremental_snapshot_moves_what_it_read() -> None:
    assert moved(event(0, "r", {"id": 1}, None, ROW, snapshot="incremental")) == {"row products 1": 1000}


@pytest.mark.parametrize("key", [{"id": None}, {"id": 1.5}, {"id": True}, {"id": [1]}, {"id": {"a": 1}}])
def test_a_key_that_names_no_row_moves_the_table(key: dict[str, Any]) -> None:
    assert moved(event(0, "c", key, None, ROW | key)) == {"table products": ANEW}
    assert moved(event(0, "u", key, ROW | key, ROW | key)) == {"table products": ANEW}
    assert moved(event(0, "d", key, ROW | key)) == {"table products": ANEW}


class TestKeysOtherThanThePrimaryKey:
    """Rows named by `sku`, while messages are keyed by `id`."""

    TABLES = {"public.products": Table(key=("sku",), name="products")}  # noqa: RUF012

    def moved(self, message: Message) -> dict[str, int]:
        return moved(message, self.TABLES)

    def test_both_values_move_whatever_their_version(self) -> None:
        """Versions order the changes of one row, and several rows may bear one `sku` in turn."""
        message = event(0, "u", {"id": 1}, {"id": 1, "sku": "a"}, {"id": 1, "sku": "b"})
        assert self.moved(message) == {"row products a": ANEW, "row products b": ANEW}

    def test_without_the_row_before_any_row_may_be_meant(self) -> None:
        assert self.moved(event(0, "u", {"id": 1}, None, {"id": 1, "sku": "b"})) == {"table products": ANEW}
        assert self.moved(event(0, "d", {"id": 1}, None)) == {"table products": ANEW}

    @pytest.mark.parametrize("sku", ["", None, 0])
    def test_an_empty_value_before_may_be_a_stand_in(self, sku: object) -> None:
        assert self.moved(event(0, "d", {"id": 1}, {"id": 1, "sku": sku})) == {"table products": ANEW}

    def test_a_deletion_with_the_row(self) -> None:
        assert self.moved(event(0, "d", {"id": 1}, {"id": 1, "sku": "a"})) == {"row products a": ANEW}


def test_a_part_of_the_primary_key_is_no_order() -> None:
    tables = {"public.orders": Table(key=("shop",), name="orders")}
    message = event(0, "c", {"shop": 7, "number": "A"}, None, {"shop": 7, "number": "A"}, topic="shop.public.orders")
    assert moved(message, tables) == {"row orders 7": ANEW}


def test_tables_that_are_not_mapped_move_nothing() -> None:
    assert moved(event(0, "c", {"id": 1}, None, ROW, topic="shop.public.other")) == {}


def test_a_table_by_its_three_parts() -> None:
    tables = {"store.public.products": Table(key=("id",), name="p")}
    assert moved(event(0, "d", {"id": 1}), tables) == {"row p 1": 1000}


def test_the_name_with_most_parts_counts() -> None:
    tables = {"public.products": Table(key=("id",), name="p"), "store.public.products": Table(key=("id",), name="q")}
    assert moved(event(0, "d", {"id": 1}), tables) == {"row q 1": 1000}


def test_real_messages() -> None:
    mover = Mover(ReadableIds(), TABLES)

    def sources(step: str) -> list[set[str]]:
        return [{s.decode() for s in mover.change(one.tables[0], one).sources} for one in changes(step)]

    # this `products` has no `title`: what is missing has changed
    assert sources("update") == [{"group * products 1", "group text products 1"}]
    assert sources("update without the row before") == [{"row orders 7 A-1"}]
    assert sources("primary key changes") == [{"row products 2", "row products 20"}] * 2
    assert sources("composite key changes") == [{"row orders 7 A-1", "row orders 8 A-1"}] * 2
    assert sources("extreme values") == [{"row products -9223372036854775808"}]


def test_a_value_too_large_to_be_sent_again_moves_the_row() -> None:
    (change,) = changes("update beside a large value")
    tables = {"public.pages": Table(key=("id",), name="pages", groups={"text": ("body",)})}
    (source,) = Mover(ReadableIds(), tables).change("public.pages", change).sources
    assert source.startswith(b"row pages")
    assert isinstance(read(event(0, "t")), RowChange)
