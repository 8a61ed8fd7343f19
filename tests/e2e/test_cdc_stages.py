"""The three real stages of change data capture: what happens in the database arrives, whoever dies on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mmcache.lab.cdc.stages import Stages, missing
from mmcache.lab.cdc.tail import Message, Tail

why = missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(why is not None, reason=why or "")]

TABLE = "public.products"
MAKE = (
    "CREATE TABLE products (id int PRIMARY KEY, name text, price numeric(10, 2))",
    "ALTER TABLE products REPLICA IDENTITY FULL",
    "INSERT INTO products VALUES (1, 'old', 1.50)",
)
PATIENCE_SECONDS = 180.0
ROUNDS, ROUND_SECONDS = 30, 6.0


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[Stages]:
    with Stages(tmp_path, MAKE, [TABLE]) as started:
        yield started


class Seen:
    """What arrived so far, read on until something did."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages
        self.messages: list[Message] = []
        self.tail = Tail(stages.broker.address, stages.connector.topics)

    def until(self, op: str, *, nudge: Callable[[], None] = lambda: None, **after: Any) -> dict[str, Any]:
        """The first event with this operation whose row after it holds this; `nudge` is done while nothing comes."""
        for _ in range(ROUNDS):
            for message in self.tail.messages(ROUND_SECONDS, PATIENCE_SECONDS):
                self.messages.append(message)
                event: dict[str, Any] = json.loads(message.value) if message.value else {"op": "tombstone"}
                if event["op"] == op and after.items() <= (event.get("after") or {}).items():
                    return event | {"key": message.key, "headers": dict(message.headers)}
            nudge()
        said = self.stages.connector.log()[-3000:]
        raise AssertionError(f"{op} {after} never came, but {self.messages[-3:]} did; the connector said: {said}")

    def names(self) -> list[str]:
        """The names that products had, in the order in which they came."""
        events = [json.loads(message.value) for message in self.messages if message.value]
        return [event["after"]["name"] for event in events if event["after"]]


@pytest.fixture
def seen(stages: Stages) -> Iterator[Seen]:
    made = Seen(stages)
    yield made
    made.tail.close()


def rename(stages: Stages, name: str) -> None:
    stages.postgres.run(f"UPDATE products SET name = '{name}' WHERE id = 1")


def test_every_kind_of_change_arrives(stages: Stages, seen: Seen) -> None:
    assert seen.until("r", id=1)["after"] == {"id": 1, "name": "old", "price": "1.50"}
    stages.postgres.run("INSERT INTO products VALUES (2, 'two', NULL)", "UPDATE products SET price = 2 WHERE id = 2")
    assert seen.until("c", id=2)["key"] == '{"id":2}'
    update = seen.until("u", id=2)
    assert (update["before"]["price"], update["after"]["price"]) == (None, "2.00")
    assert update["source"]["lsn"] > 0
    assert update["transaction"]["total_order"] == 1

    stages.postgres.run("UPDATE products SET id = 3 WHERE id = 2")
    assert seen.until("d")["headers"]["__debezium.newkey"] == '{"id":3}'
    assert seen.until("tombstone")["key"] == '{"id":2}'
    assert seen.until("c", id=3)["headers"]["__debezium.oldkey"] == '{"id":2}'

    stages.postgres.run("ALTER TABLE products ADD colour text", "UPDATE products SET colour = 'red' WHERE id = 3")
    assert seen.until("u", id=3)["after"]["colour"] == "red"
    stages.postgres.run("DELETE FROM products WHERE id = 3")
    assert seen.until("d")["before"]["name"] == "two"
    stages.connector.snapshot(TABLE, name="again")
    assert seen.until("r", id=1)["source"]["snapshot"] == "incremental"
    stages.postgres.run("TRUNCATE products")
    assert seen.until("t")["key"] is None


def test_a_killed_database_keeps_what_was_committed(stages: Stages, seen: Seen) -> None:
    rename(stages, "before")
    stages.postgres.kill()
    stages.postgres.start()
    rename(stages, "after")
    seen.until("u", name="after")
    assert list(dict.fromkeys(seen.names())) == ["old", "before", "after"]


def test_a_killed_connector_goes_on_where_it_was(stages: Stages, seen: Seen) -> None:
    rename(stages, "before")
    seen.until("u", name="before")
    stages.connector.kill()
    rename(stages, "meanwhile")
    stages.connector.start()
    rename(stages, "after")
    seen.until("u", name="after")
    assert list(dict.fromkeys(seen.names())) == ["old", "before", "meanwhile", "after"]


def test_a_killed_broker_comes_back_empty_and_is_filled_again_on_demand(stages: Stages, seen: Seen) -> None:
    stages.postgres.run("INSERT INTO products VALUES (5, 'kept', 5)")
    seen.until("c", id=5)
    stages.broker.kill()
    rename(stages, "meanwhile")
    stages.broker.start()
    rename(stages, "after")
    later = Seen(stages)
    # This broker at times holds a new topic's first record back, from its producer as well, until the next one comes.
    later.until("u", name="after", nudge=lambda: rename(stages, "after"))
    assert "kept" not in later.names()  # whoever had not read it will never
    stages.connector.snapshot(TABLE, name="again")
    later.until("r", id=5)
    later.tail.close()
    assert later.names().count("kept") == 1
