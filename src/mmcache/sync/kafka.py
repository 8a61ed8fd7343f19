"""`KafkaLog`: a broker that speaks Kafka's protocol, through confluent-kafka (librdkafka)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mmcache.model.errors import SettingsError, SyncError
from mmcache.sync.envelope import Message
from mmcache.sync.log import Topic, Topics
from mmcache.sync.mapping import Kafka, Secret
from mmcache.sync.positions import Partition

LOOK_SECONDS = 1.0
_PROBE_SECONDS = 3.0
_IDENTITY_AGAIN_SECONDS = 60.0
"""A broker that did not tell the identity of topics is asked for it again after so long."""
_DEFAULTS: dict[str, str | int | float | bool] = {
    "fetch.wait.max.ms": 25,
    "fetch.error.backoff.ms": 50,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "session.timeout.ms": 10_000,
    "max.poll.interval.ms": 3_600_000,  # while the shared tier is down, nothing is polled
    "socket.timeout.ms": 10_000,
    "client.id": "mmcache-sync",
}


class KafkaLog:
    """`log.Log`. Not for several threads."""

    def __init__(self, settings: Kafka, tell: Callable[[str], None] = lambda line: None) -> None:
        """Connects in the background. Raises `SettingsError` without the client library, or for what it refuses."""
        self._kafka = _library()
        self._settings, self._tell = settings, tell
        self._patterns = [re.compile(one) for one in settings.topics if one.startswith("^")]
        self._names = {one for one in settings.topics if not one.startswith("^")}
        self._missing: set[str] = set()
        self._doubtful = False
        self._fatal: str | None = None
        self._served = False
        """Whether the broker has ever answered: then a refusal may pass, and is only told."""
        self._reading: set[Partition] = set()
        self._shared_out: set[Partition] | None = None if settings.share else set()
        self._no_identity_until = float("-inf")
        self._common = _options(settings)
        ours = {
            "group.id": settings.group, "enable.auto.commit": False, "enable.auto.offset.store": False,
            "auto.offset.reset": "error", "allow.auto.create.topics": False, "error_cb": self._on_error,
        }  # fmt: skip
        try:
            self._consumer = self._kafka.Consumer(self._common | ours)
            self._probe = self._kafka.Consumer(
                self._common | ours | {"group.id": f"{settings.group}-probe", "enable.partition.eof": True}
            )
            admin = {name: value for name, value in self._common.items() if name not in _CONSUMER_ONLY}
            self._admin = self._kafka.admin.AdminClient(admin)
            if settings.share:
                self._consumer.subscribe(
                    list(settings.topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
                )
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            raise SettingsError(f"kafka: the client does not take these options: {error}") from error

    # what is there

    def look(self) -> Topics | None:
        """See `Log.look`."""
        try:
            found = self._consumer.list_topics(timeout=LOOK_SECONDS)
        except self._kafka.KafkaException as error:
            self._refused(error.args[0])
            self._raise_fatal()
            return None
        self._served = True
        topics = {
            name: Topic(len(topic.partitions))
            for name, topic in found.topics.items()
            if topic.error is None and (name in self._names or any(one.match(name) for one in self._patterns))
        }
        missing, self._missing = self._missing, self._names - set(topics)
        if self._missing - missing:
            self._tell(f"topics that are not there (yet): {', '.join(sorted(self._missing))}")
        return Topics(found.cluster_id, self._identified(topics))

    def _identified(self, topics: dict[str, Topic]) -> dict[str, Topic]:
        if not topics or time.monotonic() < self._no_identity_until:
            return topics
        wanted = self._kafka.TopicCollection(list(topics))
        found = {}
        for name, future in self._admin.describe_topics(wanted, request_timeout=LOOK_SECONDS).items():
            try:
                identity = str(future.result().topic_id)
            except self._kafka.KafkaException as error:
                if error.args[0].code() == self._kafka.KafkaError._TIMED_OUT:
                    self._no_identity_until = time.monotonic() + _IDENTITY_AGAIN_SECONDS
                identity = ""
            found[name] = Topic(topics[name].partitions, identity if identity.strip("A=") else None)
        return found

    def ends(self, partition: Partition) -> tuple[int, int] | None:
        """See `Log.ends`."""
        try:
            found = self._consumer.get_watermark_offsets(self._place(partition), timeout=LOOK_SECONDS)
        except self._kafka.KafkaException as error:
            self._refused(error.args[0])
            return None
        return None if found is None else (int(found[0]), int(found[1]))

    def ends_known(self, partition: Partition) -> int | None:
        """See `Log.ends_known`."""
        try:
            found = self._consumer.get_watermark_offsets(self._place(partition), cached=True)
        except self._kafka.KafkaException:
            return None
        return int(found[1]) if found is not None and found[1] >= 0 else None

    def first_from(self, offsets: Mapping[Partition, int]) -> dict[Partition, Message | None]:
        """See `Log.first_from`."""
        found: dict[Partition, Message | None] = {}
        nothing = self._kafka.KafkaError._PARTITION_EOF, self._kafka.KafkaError._AUTO_OFFSET_RESET
        end = time.monotonic() + _PROBE_SECONDS
        try:
            self._probe.assign([self._place(partition, offset) for partition, offset in offsets.items()])
            while len(found) < len(offsets) and time.monotonic() < end:
                raw = self._probe.poll(0.1)
                if raw is None:
                    continue
                partition = raw.topic(), raw.partition()
                if partition not in offsets or partition in found:
                    continue
                if raw.error() is None and raw.offset() >= offsets[partition]:
                    found[partition] = _message(raw)
                elif raw.error() is not None and raw.error().code() in nothing:
                    found[partition] = None
            self._probe.unassign()
        except self._kafka.KafkaException as error:
            self._refused(error.args[0])
        return found

    # what to read

    def owned(self, topics: Topics) -> set[Partition]:
        """See `Log.owned`."""
        if self._settings.share:
            return set(self._shared_out or ())
        return {(name, number) for name, topic in topics.topics.items() for number in range(topic.partitions)}

    def begin(self, offsets: Mapping[Partition, int]) -> None:
        """See `Log.begin`."""
        self._reading = set(offsets)
        try:
            self._consumer.assign([self._place(partition, offset) for partition, offset in offsets.items()])
        except self._kafka.KafkaException as error:
            self._on_error(error.args[0])

    def _on_assign(self, consumer: Any, places: Sequence[Any]) -> None:
        """The group gave us these; they are read once their positions are known."""
        self._shared_out = {(place.topic, place.partition) for place in places}
        consumer.assign([])
        self._reading = set()
        self._doubtful = True

    def _on_revoke(self, consumer: Any, places: Sequence[Any]) -> None:
        self._shared_out = set()
        self._reading = set()
        self._doubtful = True
        consumer.unassign()

    def poll(self, most: int, seconds: float) -> list[Message]:
        """See `Log.poll`."""
        try:
            first = self._consumer.poll(seconds)
            more = self._consumer.consume(most - 1, 0) if first is not None else []
        except self._kafka.KafkaException as error:
            self._on_error(error.args[0])
            first, more = None, []
        self._raise_fatal()
        if first is None:
            return []
        found = []
        for raw in (first, *more):
            if raw.error() is not None:
                self._on_error(raw.error())
            elif (raw.topic(), raw.partition()) in self._reading:
                found.append(_message(raw))
        return found

    # faults

    def _on_error(self, error: Any) -> None:
        self._doubtful = True
        self._refused(error)

    def _refused(self, error: Any) -> None:
        """May be called from within the client: what does not pass by itself is raised by the next `poll` or `look`."""
        kinds = self._kafka.KafkaError
        refused = error.code() in (
            kinds._AUTHENTICATION, kinds._SSL, kinds.TOPIC_AUTHORIZATION_FAILED, kinds.GROUP_AUTHORIZATION_FAILED,
            kinds.SASL_AUTHENTICATION_FAILED,
        )  # fmt: skip
        if error.fatal() or (refused and not self._served):
            self._fatal = f"the broker at {self._settings.bootstrap} refuses: {error.str()}; see kafka: options"
        self._tell(f"broker: {error.str()}")

    def _raise_fatal(self) -> None:
        if self._fatal is not None:
            raise SyncError(self._fatal)

    def doubtful(self) -> bool:
        """See `Log.doubtful`."""
        was, self._doubtful = self._doubtful, False
        return was

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """See `Log.commit`."""
        try:
            self._consumer.commit(offsets=[self._place(p, offset) for p, offset in offsets.items()], asynchronous=True)
        except self._kafka.KafkaException as error:
            self._tell(f"broker: positions were not committed: {error.args[0].str()}")

    def produce(self, topic: str, key: str, value: bytes) -> None:
        """See `Log.produce`."""
        failures: list[Any] = []
        options = {name: value for name, value in self._common.items() if name not in _CONSUMER_ONLY}
        producer = self._kafka.Producer(options)
        producer.produce(topic, value, key.encode(), on_delivery=lambda error, _: failures.append(error))
        producer.flush(_PROBE_SECONDS)
        if failures != [None]:
            raise SyncError(f"the broker did not take a signal in {topic}: {failures[0] if failures else 'no answer'}")

    def close(self) -> None:
        """See `Log.close`."""
        self._consumer.close()
        self._probe.close()

    def _place(self, partition: Partition, offset: int = -1001) -> Any:
        return self._kafka.TopicPartition(partition[0], partition[1], offset)


_CONSUMER_ONLY = ("fetch.wait.max.ms", "fetch.error.backoff.ms", "session.timeout.ms", "max.poll.interval.ms")


def _message(raw: Any) -> Message:
    headers = dict(raw.headers() or ())
    return Message(raw.topic(), raw.partition(), raw.offset(), raw.key(), raw.value(), headers)


def _options(settings: Kafka) -> dict[str, Any]:
    given = {
        name: value.value() if isinstance(value, Secret) else value for name, value in settings.options.items()
    }  # fmt: skip
    return _DEFAULTS | given | {"bootstrap.servers": settings.bootstrap, "log_level": 0}


def _library() -> Any:
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise SettingsError("following a database needs a Kafka client: pip install 'mmcache[sync]'") from error
    return confluent_kafka
