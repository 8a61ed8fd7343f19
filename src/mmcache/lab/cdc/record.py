"""Records real messages of Debezium, of every kind: `python -m mmcache.lab.cdc.record FOLDER`.

Each line of `plain.jsonl` and `schemas.jsonl` (where every message carries its schema) is one message as the broker
gave it, with the step that caused it. Positions and times differ from one recording to the next.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mmcache.lab.cdc.stages import Stages
from mmcache.lab.cdc.tail import Tail

_QUIET_SECONDS, _LONGEST_SECONDS = 1.5, 20.0

TABLES = ("public.products", "public.orders", "public.pages", "public.events", "public.Odd Name")
MAKE = (
    "CREATE TYPE shelf AS ENUM ('top', 'low')",
    """CREATE TABLE products (
        id bigint PRIMARY KEY, name text, price numeric(12, 4), weight double precision, made timestamptz,
        seen timestamp, day date, hour time, photo bytea, code uuid, tags text[], extra jsonb, live boolean,
        shelf shelf, span interval, free numeric
    )""",
    "ALTER TABLE products REPLICA IDENTITY FULL",
    "CREATE TABLE orders (shop int, number varchar(20), amount numeric(10, 2), PRIMARY KEY (shop, number))",
    "CREATE TABLE pages (id uuid PRIMARY KEY, title text, body text)",
    "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
    "CREATE TABLE events (what text, at timestamptz)",
    "ALTER TABLE events REPLICA IDENTITY FULL",
    'CREATE TABLE "Odd Name" ("The Key" int PRIMARY KEY, "ümlaut" text)',
    r"""INSERT INTO products VALUES (
        1, 'Lamp "é"', 19.9900, 0.1, '2026-01-02 03:04:05.678901+02', '2026-01-02 03:04:05.6', '2026-02-28',
        '23:59:59.5', '\x00ff10', '3f2504e0-4f89-11d3-9a0c-0305e82c3301', '{a,"b c"}', '{"k": [1, null]}', true, 'top',
        '1 mon 2 days', 12345678901234567890.123)""",
    "INSERT INTO products (id) VALUES (2)",
    "INSERT INTO orders VALUES (7, 'A-1', 10.50), (7, 'A-2', NULL)",
    "INSERT INTO pages VALUES ('11111111-1111-1111-1111-111111111111', 'short', repeat('x', 2500))",
)
STEPS: dict[str, tuple[str, ...]] = {
    "insert": ("INSERT INTO products (id, name, price, photo) VALUES (3, 'Chair', 5, NULL)",),
    "update": ("UPDATE products SET price = 18.5 WHERE id = 1",),
    "update of nothing": ("UPDATE products SET price = price WHERE id = 1",),
    "update without the row before": ("UPDATE orders SET amount = 11 WHERE number = 'A-1'",),
    "update beside a large value": ("UPDATE pages SET title = 'longer'",),
    "delete": ("DELETE FROM products WHERE id = 3",),
    "delete without the row before": ("DELETE FROM orders WHERE number = 'A-2'",),
    "primary key changes": ("UPDATE products SET id = 20 WHERE id = 2",),
    "composite key changes": ("UPDATE orders SET shop = 8 WHERE number = 'A-1'",),
    "extreme values": (
        "INSERT INTO products (id, price, weight, free, made, day) VALUES "
        "(-9223372036854775808, NULL, 'NaN', 'NaN', 'infinity', '4713-01-01 BC')",
    ),
    "no primary key": (
        "INSERT INTO events VALUES ('seen', now())",
        "UPDATE events SET what = 'gone'",
        "DELETE FROM events",
    ),
    "odd names": ("INSERT INTO \"Odd Name\" VALUES (1, 'ä')",),
    "one transaction": (
        "BEGIN; INSERT INTO orders VALUES (1, 'B', 1); UPDATE products SET name = 'Lamp 2' WHERE id = 1; "
        "DELETE FROM orders WHERE number = 'B'; COMMIT",
    ),
    "rolled back": ("BEGIN; UPDATE products SET name = 'never' WHERE id = 1; ROLLBACK",),
    "column added": (
        "ALTER TABLE products ADD colour text DEFAULT 'red'",
        "UPDATE products SET colour = 'blue' WHERE id = 1",
    ),
    "column renamed": (
        "ALTER TABLE products RENAME colour TO tint",
        "UPDATE products SET tint = 'green' WHERE id = 1",
    ),
    "column retyped": (
        "ALTER TABLE products ALTER weight TYPE text",
        "UPDATE products SET weight = 'heavy' WHERE id = 1",
    ),
    "column dropped": ("ALTER TABLE products DROP tint", "UPDATE products SET name = 'Lamp 3' WHERE id = 1"),
    "message in the log": ("SELECT pg_logical_emit_message(true, 'note', 'hello')",),
    "incremental snapshot": (),
    "truncate": ("TRUNCATE orders",),
    "truncate of two": ("TRUNCATE orders, pages",),
}
_BRIEF = ("insert", "delete", "primary key changes", "column retyped", "truncate")
"""With schemas, which are long."""


def main(folder: Path) -> None:
    """Record both files anew."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schemas in (("plain", False), ("schemas", True)):
        with tempfile.TemporaryDirectory() as scratch, Stages(Path(scratch), MAKE, TABLES, schemas=schemas) as stages:
            lines = [json.dumps(message, ensure_ascii=False) for message in _messages(stages, brief=schemas)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _messages(stages: Stages, brief: bool) -> list[dict[str, Any]]:
    topics = [*stages.connector.topics, "shop.transaction", "shop.message", "__debezium-heartbeat.shop"]
    with Tail(stages.broker.address, topics) as tail:
        messages = _drain(tail, "snapshot")
        for step in _BRIEF if brief else STEPS:
            stages.postgres.run(*STEPS[step])
            if step == "incremental snapshot":
                stages.connector.snapshot("public.products", name="again")
            messages += _drain(tail, step)
    return messages


def _drain(tail: Tail, step: str) -> list[dict[str, Any]]:
    """All that comes until nothing but heartbeats came for a while; of heartbeats one."""
    found, beats, last = [], [], time.monotonic()
    for message in tail.messages(_LONGEST_SECONDS, _LONGEST_SECONDS):
        if message.topic.startswith("__debezium-heartbeat"):
            beats.append(message)
            if time.monotonic() - last > _QUIET_SECONDS:
                break
        else:
            found.append(message)
            last = time.monotonic()
    return [{"step": step, **asdict(message)} for message in [*found, *(beats[:1] if step == "snapshot" else [])]]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
