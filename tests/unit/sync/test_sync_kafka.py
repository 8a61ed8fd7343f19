"""The Kafka client, on librdkafka's own mock cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.sync.stand_ins import PRODUCTS, FakeServer, config, event, link

from mmcache.model.errors import SettingsError, SyncError
from mmcache.sync.envelope import Message
from mmcache.sync.kafka import KafkaLog
from mmcache.sync.mapping import Kafka
from mmcache.sync.runner import Runner

confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs mmcache[sync]")

PLACES = [(PRODUCTS, number) for number in range(2)]


class Mock:
    """A cluster that lives as long as its producer."""

    def __init__(self) -> None:
        self.producer = confluent_kafka.Producer(
            {"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0}
        )
        (broker,) = self.producer.list_topics(timeout=30).brokers.values()
        self.address = f"{broker.host}:{broker.port}"
        self.logs: list[KafkaLog] = []

    def write(self, *messages: Message) -> None:
        for one in messages:
            headers: Any = list(one.headers.items())
            self.producer.produce(one.topic, one.value, one.key, one.partition, headers=headers)
        assert self.producer.flush(30) == 0

    def log(self, *topics: str, **more: Any) -> KafkaLog:
        made = KafkaLog(Kafka(bootstrap=self.address, topics=topics or (PRODUCTS,), **more))
        self.logs.append(made)
        return made


@pytest.fixture
def mock() -> Iterator[Mock]:
    made = Mock()
    made.write(event(0, "d", {"id": 1}, headers={"h": b"x", "none": None}), event(0, "d", {"id": 2}, partition=1))
    yield made
    for log in made.logs:
        log.close()


def messages(log: KafkaLog, count: int) -> list[Message]:
    found: list[Message] = []
    for _ in range(300):
        found += log.poll(100, 0.1)
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} messages came")


def test_it_sees_topics_by_name_and_by_pattern(mock: Mock) -> None:
    for topics in ((PRODUCTS,), ("^shop[.]public[.].*",)):
        seen = mock.log(*topics).look()
        assert seen is not None
        assert list(seen.topics) == [PRODUCTS]
    seen = mock.log("other").look()
    assert seen is not None
    assert not seen.topics


def test_it_reads_from_where_it_is_told(mock: Mock) -> None:
    log = mock.log()
    seen = log.look()
    assert seen is not None
    assert set(PLACES) <= log.owned(seen)
    assert log.ends(PLACES[0]) == (0, 1)
    log.begin(dict.fromkeys(PLACES, 0))
    found = messages(log, 2)
    assert {(one.partition, one.offset, one.key) for one in found} == {(0, 0, b'{"id": 1}'), (1, 0, b'{"id": 2}')}
    assert {one.partition: dict(one.headers) for one in found} == {0: {"h": b"x", "none": None}, 1: {}}
    assert log.ends_known(PLACES[0]) == 1
    mock.write(event(1, "d", {"id": 3}))
    log.begin({PLACES[0]: 1})
    assert [one.offset for one in messages(log, 1)] == [1]
    log.commit({PLACES[0]: 2})


def test_it_finds_single_messages(mock: Mock) -> None:
    log = mock.log()
    log.look()
    found = log.first_from({PLACES[0]: 0, PLACES[1]: 1})
    assert found[PLACES[1]] is None
    one = found[PLACES[0]]
    assert one is not None
    assert one.key == b'{"id": 1}'


def test_a_place_that_is_not_there_raises_doubts(mock: Mock) -> None:
    log = mock.log()
    log.look()
    log.doubtful()
    log.begin({PLACES[0]: 500})
    for _ in range(300):
        assert not log.poll(10, 0.1)
        if log.doubtful():
            return
    raise AssertionError("it never said so")


def test_a_runner_reads_to_the_end(mock: Mock) -> None:
    server, log = FakeServer(), mock.log()
    told = config(start="beginning")
    Runner(told, log, link(server), name="me").run(until_end=True)
    mock.logs.clear()
    assert (server.moves("row products 1"), server.moves("row products 2")) == (1, 1)


def test_signals(mock: Mock) -> None:
    log = mock.log("signals")
    log.produce("signals", "shop", b"{}")
    seen = log.look()
    assert seen is not None
    log.begin(dict.fromkeys(log.owned(seen), 0))
    (one,) = messages(log, 1)
    assert (one.key, one.value) == (b"shop", b"{}")


def test_options_that_the_client_does_not_know() -> None:
    with pytest.raises(SettingsError, match="does not take these options"):
        KafkaLog(Kafka(bootstrap="127.0.0.1:1", topics=("a",), options={"no.such.option": 1}))


def test_nobody_answers() -> None:
    told: list[str] = []
    log = KafkaLog(Kafka(bootstrap="127.0.0.1:1", topics=("a",)), told.append)
    try:
        assert log.look() is None
        assert log.ends(("a", 0)) is None
        assert told
        with pytest.raises(SyncError, match="did not take"):
            log.produce("a", "b", b"c")
    finally:
        log.close()
