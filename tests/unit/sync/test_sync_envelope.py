"""What messages of Debezium say: real ones, recorded, and ones that are broken."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sync.stand_ins import event, source

from mmcache.model.errors import PoisonError
from mmcache.sync.envelope import Message, RowChange, SchemaChange, Skipped, Tombstone, read
from mmcache.sync.versions import order_of, version_of

RECORDED = Path(__file__).resolve().parents[2] / "golden" / "debezium"


def recorded(name: str) -> list[tuple[str, Message]]:
    found = []
    for line in (RECORDED / name).read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        key, value = (None if one[part] is None else one[part].encode() for part in ("key", "value"))
        headers = {name: None if text is None else text.encode() for name, text in one["headers"]}
        found.append((one["step"], Message(one["topic"], one["partition"], one["offset"], key, value, headers)))
    return found


def changes(step: str, name: str = "plain.jsonl") -> list[RowChange]:
    read_ones = (read(message) for found, message in recorded(name) if found == step)
    return [one for one in read_ones if isinstance(one, RowChange)]


@pytest.mark.parametrize("name", ["plain.jsonl", "schemas.jsonl"])
def test_every_real_message_is_understood(name: str) -> None:
    for step, message in recorded(name):
        event = read(message)
        if isinstance(event, RowChange):
            assert event.tables[0].startswith("public."), step
            assert event.server == "shop"
            assert event.source_ts is not None


def test_a_schema_beside_it_changes_nothing() -> None:
    plain, with_schemas = changes("insert")[0], changes("insert", "schemas.jsonl")[0]
    assert plain.after == with_schemas.after
    assert plain.keys == with_schemas.keys == {"id": 3}
    assert plain.tables == with_schemas.tables == ("public.products", "postgres.public.products")


def test_updates_with_and_without_the_row_before() -> None:
    (full,), (without,) = changes("update"), changes("update without the row before")
    assert full.before is not None
    assert full.after is not None
    assert full.before["price"] != full.after["price"]
    assert without.before is None
    assert without.keys == {"shop": 7, "number": "A-1"}


def test_a_primary_key_that_changes_names_both_rows() -> None:
    gone, come = changes("primary key changes")
    assert (gone.op, come.op) == ("d", "c")
    assert gone.keys == come.other_keys == {"id": 2}
    assert come.keys == gone.other_keys == {"id": 20}


def test_a_deletion_is_followed_by_its_tombstone() -> None:
    events = [read(m) for step, m in recorded("plain.jsonl") if step == "delete" and m.topic.endswith("products")]
    assert [type(one) for one in events] == [RowChange, Tombstone]
    assert isinstance(events[1], Tombstone)
    assert events[1].keys == {"id": 3}


def test_snapshots_are_told_from_the_log() -> None:
    assert {one.snapshot for one in changes("snapshot")} == {"initial"}
    assert len({one.version for one in changes("snapshot")}) == 1
    assert {one.snapshot for one in changes("incremental snapshot")} == {"incremental"}
    assert {one.version for one in changes("incremental snapshot")} == {None}
    assert {one.snapshot for one in changes("insert")} == {""}


def test_truncate_is_of_a_table() -> None:
    assert [one.op for one in changes("truncate of two")] == ["t", "t"]
    assert {one.tables[0] for one in changes("truncate of two")} == {"public.orders", "public.pages"}


def test_what_is_about_no_row_is_skipped() -> None:
    kinds = {read(message) for _, message in recorded("plain.jsonl") if not message.topic.startswith("shop.public")}
    assert kinds == {Skipped.HEARTBEAT, Skipped.TRANSACTION, Skipped.LOGICAL}


def test_versions_of_a_row_only_rise() -> None:
    last: dict[tuple[str, str], int] = {}
    for _, message in recorded("plain.jsonl"):
        one = read(message)
        if isinstance(one, RowChange) and one.version is not None and not one.snapshot:
            row = one.tables[0], str(one.keys)
            assert one.version >= last.get(row, 0)
            last[row] = one.version


@pytest.mark.parametrize(
    ("of", "version", "order"),
    [
        ({"connector": "postgresql", "lsn": 24023128, "sequence": '["24023119","24023128"]'}, 24023128, 24023119),
        ({"connector": "postgresql", "lsn": 24023128, "sequence": '[null,"24023128"]'}, 24023128, 24023128),
        ({"connector": "postgresql", "lsn": None}, None, None),
        ({"connector": "postgresql", "lsn": True, "sequence": "[1"}, None, None),
        ({"connector": "postgresql", "lsn": 10**18}, None, None),
        ({"connector": "mysql", "file": "mysql-bin.000003", "pos": 154, "row": 0}, 30_000_000_154, 30_000_000_154),
        ({"connector": "mariadb", "file": "b.999999", "pos": 2**32 - 1}, 9_999_994_294_967_295, 9_999_994_294_967_295),
        ({"connector": "mysql", "file": "mysql-bin", "pos": 154}, None, None),
        ({"connector": "mysql", "file": "b.1", "pos": 10**10}, None, None),
        ({"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005"}, None, None),
    ],
)
def test_versions(of: dict[str, Any], version: int | None, order: int | None) -> None:
    assert version_of(of) == version
    assert order_of(of) == order


def test_mysql_events() -> None:
    value = {
        "op": "u", "before": {"id": 1, "a": 1}, "after": {"id": 1, "a": 2}, "ts_ms": 5,
        "source": {"connector": "mysql", "name": "m", "db": "inventory", "table": "customers", "ts_ms": 1465491411815,
                   "file": "mysql-bin.000003", "pos": 484, "row": 0, "snapshot": "false"},
    }  # fmt: skip
    found = read(Message("m.inventory.customers", 0, 0, b'{"id":1}', json.dumps(value).encode()))
    assert isinstance(found, RowChange)
    assert found.tables == ("inventory.customers",)
    assert found.version == 3 * 10**10 + 484


def test_a_schema_change_names_its_tables() -> None:
    value = {"databaseName": "inventory", "ddl": "ALTER …", "tableChanges": [{"type": "ALTER", "id": '"inv"."c"'}]}
    assert read(Message("m", 0, 0, None, json.dumps(value).encode())) == SchemaChange((("inv.c",),))


def test_decimals_in_keys() -> None:
    field: dict[str, Any] = {
        "field": "id",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2"},
    }
    unscaled = base64.b64encode((-1990).to_bytes(2, "big", signed=True)).decode()
    schema: dict[str, Any] = {"fields": [field], "name": "shop.public.products.Key"}
    key = {"schema": schema, "payload": {"id": unscaled}}
    message = event(0, "d")
    found = read(Message(message.topic, 0, 0, json.dumps(key).encode(), message.value))
    assert isinstance(found, RowChange)
    assert found.keys == {"id": Decimal("-19.90")}
    schema["fields"] = [field | {"field": []}, 1, field | {"parameters": None}]  # damaged, and still no fault
    found = read(Message(message.topic, 0, 0, json.dumps(key).encode(), message.value))
    assert isinstance(found, RowChange)
    assert found.keys == {"id": None}
    variable = {"id": {"scale": 3, "value": unscaled}}
    found = read(Message(message.topic, 0, 0, json.dumps(variable).encode(), message.value))
    assert isinstance(found, RowChange)
    assert found.keys == {"id": Decimal("-1.990")}


@pytest.mark.parametrize(
    "huge", [{"scale": 10**9, "value": "AQ=="}, {"scale": 0, "value": "!"}, {"scale": None, "value": 5}]
)
def test_a_number_that_cannot_be_read_names_no_row(huge: Any) -> None:
    message = event(0, "d")
    found = read(Message(message.topic, 0, 0, json.dumps({"id": huge}).encode(), message.value))
    assert isinstance(found, RowChange)
    assert found.keys == {"id": None}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "no JSON"),
        (b"\0\0\0\0\1abc", "Avro"),
        (b"[1,2]", "not an object"),
        (b"[" * 100_000, "no JSON"),
        (b'{"id": 1, "title": "flat"}', "flattened"),
        (b'{"op": "u"}', "without `source`"),
        (json.dumps({"op": "x", "source": source(1)}).encode(), "unknown operation"),
        (json.dumps({"op": ["u"], "source": source(1)}).encode(), "unknown operation"),
        (json.dumps({"op": "u", "source": source(1)}).encode(), "`after`"),
        (json.dumps({"op": "u", "source": source(1), "after": [1]}).encode(), "no row"),
        (json.dumps({"op": "u", "source": {"connector": "postgresql"}}).encode(), "names no table"),
    ],
)
def test_what_is_no_event_is_poison_with_a_reason(value: bytes, why: str) -> None:
    with pytest.raises(PoisonError, match=why) as caught:
        read(Message("shop.public.products", 0, 0, b'{"id": 7}', value))
    assert caught.value.key == {"id": 7}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(["op", "source", "before", "after", "schema", "payload", "ddl", "status", "tableChanges", "id"])
envelopes = st.dictionaries(names, json_values | st.sampled_from(["c", "u", "d", "r", "t", "m"]), max_size=6)
sources = st.fixed_dictionaries({}, optional=dict.fromkeys(source(1), json_values) | {"row": json_values})


@given(st.binary() | (envelopes | json_values).map(lambda one: json.dumps(one).encode()), st.none() | st.binary())
def test_whatever_comes_is_understood_or_poison(value: bytes, key: bytes | None) -> None:
    with suppress(PoisonError):
        read(Message("t", 0, 0, key, value))


@given(envelopes, sources, st.none() | json_values)
def test_whatever_the_source_says_is_understood_or_poison(envelope: Any, of: Any, key: Any) -> None:
    value = json.dumps(envelope | {"op": "u", "source": of, "after": {"id": 1}}).encode()
    try:
        found = read(
            Message("t", 0, 0, json.dumps(key).encode(), value, {"__debezium.newkey": json.dumps(key).encode()})
        )
    except PoisonError:
        return
    assert isinstance(found, RowChange)
    assert found.version is None or 0 < found.version < 10**18
