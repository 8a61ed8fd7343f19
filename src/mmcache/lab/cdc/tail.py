"""`Tail`: all messages of some topics from their beginning, as they come. No consumer group, nothing committed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from mmcache.model.errors import AssetError

_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Message:
    """One message as the broker gave it; texts are UTF-8, None = it has no key or no value."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds, of its producer."""
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]


class Tail:
    """Reads `topics`, also those that come into being later, or again after the broker lost them. Close it."""

    def __init__(self, address: str, topics: Sequence[str]) -> None:
        try:
            from confluent_kafka import Consumer
        except ImportError as error:
            raise AssetError("no Kafka client here: pip install 'mmcache[cdc]'") from error
        self._topics = list(topics)
        self._come: deque[Any] = deque()
        """Fetched, and not yet handed out."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "tail",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def messages(self, quiet: float, longest: float) -> Iterator[Message]:
        """Until none came for `quiet` seconds, or `longest` are over (the one who iterates may leave earlier)."""
        end = time.monotonic() + longest
        last = time.monotonic()
        while time.monotonic() < min(end, last + quiet):
            self._assign()
            if not self._come:
                self._come.extend(self._consumer.consume(500, _LOOK_SECONDS))
            while self._come:
                message = self._come.popleft()
                if message.error() is None:
                    last = time.monotonic()
                    yield _of(message)

    def _assign(self) -> None:
        """Follow partitions that are new; from their beginning."""
        from confluent_kafka import KafkaException, TopicPartition

        known = {(part.topic, part.partition) for part in self._consumer.assignment()}
        try:
            topics = self._consumer.list_topics(timeout=1.0).topics
        except KafkaException:  # the broker is away
            return
        there = {(name, part) for name in self._topics if name in topics for part in topics[name].partitions}
        if fresh := [TopicPartition(name, part, 0) for name, part in sorted(there - known)]:
            self._consumer.incremental_assign(fresh)

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def __enter__(self) -> Tail:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _of(message: Any) -> Message:
    headers = tuple((name, _text(value)) for name, value in message.headers() or ())
    return Message(
        message.topic(), message.partition(), message.offset(), message.timestamp()[1], _text(message.key()),
        _text(message.value()), headers,
    )  # fmt: skip


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8")
