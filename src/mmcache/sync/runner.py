"""`Runner`: reads change events, moves editions, and only then notes how far it has come.

So a death at any moment repeats a little, and that is harmless: editions move to a version once. While the shared tier
does not serve, the batch at hand is kept and tried again. While it is not known whether the broker's log is still the
same, nothing is read; where it is another one, or has a gap, all tables of the topic move first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from threading import Event

import msgspec

from mmcache.model.clock import Clock, SystemClock
from mmcache.model.errors import TierError
from mmcache.sync import resnapshot
from mmcache.sync.batch import Batch, Interpreter, moved_from
from mmcache.sync.dead import DeadLetters
from mmcache.sync.ends import LOOK_SECONDS, ends_of, others
from mmcache.sync.link import Link
from mmcache.sync.log import Log, Topics, lag
from mmcache.sync.mapped import Mapped, marks
from mmcache.sync.mapping import SyncConfig, tables_of
from mmcache.sync.moves import Mover
from mmcache.sync.positions import (
    EXPLAINED,
    Doubt,
    Partition,
    Position,
    Positions,
    doubt,
    doubt_by_mark,
    named,
    restarted,
)
from mmcache.sync.refresh import Refresher, Refreshes
from mmcache.sync.stall import Stall
from mmcache.sync.status import BEAT_SECONDS, Report, Status
from mmcache.sync.versions import Database
from mmcache.tiers.valkey.editions import ANEW, Change
from mmcache.tiers.valkey.followed import SECONDS

MOST = 1_000
"""Messages in a batch."""
WAIT_SECONDS = 0.2
DOUBTFUL_LOOK_SECONDS = 0.1
COMMIT_SECONDS = 1.0
SHORT_SECONDS = 1.0
"""A log must be seen to end before our position for so long before that is believed."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.25


class Runner:
    """One process's. `run` until `stop` is set, or `step` by hand."""

    def __init__(
        self,
        config: SyncConfig,
        log: Log,
        link: Link,
        *,
        name: str,
        refreshers: Mapping[str, Refresher] | None = None,
        tell: Callable[[str], None] = lambda line: None,
        clock: Clock | None = None,
        stop: Event | None = None,
    ) -> None:
        """name: of this process, in the status. tell: gets lines for people."""
        self._config, self._log, self._link, self._tell = config, log, link, tell
        self._clock = clock or SystemClock()
        self.stop = stop or Event()
        mover = Mover(link.ids, config.tables)
        self._mover, self._interpreter = mover, Interpreter(mover, config.tables, config.on_poison)
        self._positions_kept = Positions(link.keeper.hash("positions"), config.kafka.group, marks(config.tables))
        self._dead, self._status = DeadLetters(link.keeper), Status(link.keeper)
        self._refreshes = Refreshes(refreshers or {})
        self._stall = Stall(config.stale_after, self._clock.monotonic)
        self._name, self._started = name, self._clock.wall()
        self.positions: dict[Partition, Position] = {}
        self._databases_kept = link.keeper.hash("databases")
        self._databases: dict[str, Database] = {}
        self._reading: set[Partition] = set()
        self._silent: set[Partition] = set()
        """Of which the broker did not say enough to read them."""
        self._others: dict[Partition, int | None] = {}
        """What other runners of the group read, and where it ends."""
        self._short_since: dict[Partition, float] = {}
        self._backlog: dict[Partition, int] = {}  # where each partition ended when it began to be read
        self._latest: dict[Partition, float] = {}
        self.counts: Counter[str] = Counter()
        self.epochs = 0
        self.state = "starting"
        self.last_error = ""
        self._prepared = False
        self._doubtful = True
        self._next_look = self._next_beat = self._next_commit = self._next_follow = float("-inf")
        self._pause = 0.0
        self._uncommitted: set[Partition] = set()

    # running

    def run(self, until_end: bool = False) -> None:
        """Until `stop` is set; or until all that is there has been applied. Raises `SyncError`, `SettingsError`."""
        try:
            while not self.stop.is_set():
                self.step()
                if until_end and self.at_end():
                    break
        finally:
            self.close()

    def at_end(self) -> bool:
        """Whether nothing is left to apply, as far as is known."""
        return bool(self._reading) and not (self._doubtful or self._silent) and self._lag() == 0 and all(
            self._log.ends_known(partition) is not None for partition in self._reading
        )  # fmt: skip

    def step(self) -> None:
        """Look, poll, apply, once. Waits a moment where there is nothing to do."""
        try:
            if not self._prepared:
                self._prepare()
            now = self._clock.monotonic()
            if now >= self._next_look:
                self._look()
            self._mind_the_stall()
            if now >= self._next_beat:
                self._beat()
            self._pause = 0.0
        except TierError as error:
            self._wait_for_tier(error)
            return
        idle = self._doubtful or not self._reading
        if idle:
            self.stop.wait(DOUBTFUL_LOOK_SECONDS)
        messages = self._log.poll(MOST, 0.0 if idle else WAIT_SECONDS)
        if self._log.doubtful():
            self._doubtful, self._next_look = True, float("-inf")
        if messages and not self._doubtful:  # else they may be of another log: they are read again, from where we are
            late = SECONDS < self._stall.behind() < math.inf or any(
                message.offset < self._backlog.get((message.topic, message.partition), 0) for message in messages
            )
            self._finish(self._interpreter.interpret(messages, self.positions, self._databases, gaps=late))

    def _prepare(self) -> None:
        """Raises `TierError`, `SettingsError`."""
        self._link.check()
        self.positions = self._positions_kept.load()
        self._databases = self._databases_kept.read(Database)
        mapped = Mapped(self._link.keeper.hash("tables"))
        self._move_passed_over(mapped.unknown(self._config.tables))
        mapped.note(self._config.tables)
        self._status.tidy()
        self._prepared = True

    def _move_passed_over(self, tables: Sequence[str] = ()) -> None:
        """These, and those that a runner with another mapping has passed over. Raises `TierError`."""
        unknown = sorted({*tables, *self._positions_kept.passed_over})
        if unknown:
            self._tell(f"newly mapped, or mapped otherwise than before: {', '.join(unknown)}; moved as a whole")
            self._link.publisher.apply([change for table in unknown for change in self._whole(table)])
            self._positions_kept.save(self.positions)

    def _mind_the_stall(self) -> None:
        """Raises `TierError`."""
        ends = self._others | {partition: self._log.ends_known(partition) for partition in self._reading}
        known = {partition: end for partition, end in ends.items() if end is not None}
        if self._doubtful or self._silent or not known or len(known) < len(ends):
            self._stall.lose()
        else:
            offsets = {
                partition: self.positions[partition].offset for partition in known if partition in self.positions
            }
            self._stall.see(known, offsets, self._interpreter.heard_ts)
        if self._stall.due():
            self._link.publisher.apply([change for table in self._config.tables for change in self._whole(table)])
            self._stall.moved()
            self._next_follow = float("-inf")
            self._tell("nothing is heard of changes, so that all tables are moved, and will be until there is")
        if self._stall.behind() < SECONDS and self._clock.monotonic() >= self._next_follow:
            named = {table.name or name: table.groups for name, table in self._config.tables.items()}
            self._link.follow(named)
            self._next_follow = self._clock.monotonic() + SECONDS / 5

    # where to read

    def _look(self) -> None:
        """See what the broker has; begin to read what is new, or was in doubt. Raises `TierError`."""
        topics = self._log.look()
        if topics is None:
            self.state, self._doubtful = "broker", True
            self._next_look = self._clock.monotonic() + DOUBTFUL_LOOK_SECONDS
            return
        owned = {partition for partition in self._log.owned(topics) if partition[0] in topics.topics}
        other = {p for p in owned & self._reading if self._other_topic(p, topics)}
        if self._config.kafka.share:
            self._others, kept = others(self._log, self._positions_kept, topics, owned)
            self.positions |= kept
        fresh = owned if self._doubtful else (owned - self._reading) | other
        if fresh or owned != self._reading:
            self._silent = self._begin(owned, fresh, topics)
        self._doubtful = bool(owned) and not self._reading
        self.state = "reading" if self._reading else "broker" if owned else "topics"
        pause = DOUBTFUL_LOOK_SECONDS if self._doubtful else LOOK_SECONDS
        self._next_look = self._clock.monotonic() + pause

    def _other_topic(self, partition: Partition, topics: Topics) -> bool:
        identity = topics.topics[partition[0]].identity
        known = self.positions[partition].topic_id if partition in self.positions else None
        return identity is not None and identity != known

    def _begin(self, owned: set[Partition], fresh: set[Partition], topics: Topics) -> set[Partition]:
        """Read `owned`; `fresh` only after it is known that nothing was missed. Those that are left for later, because
        the broker does not say enough of them. Raises `TierError`.
        """
        if self._config.kafka.share:  # another runner may have read them meanwhile
            self.positions |= self._positions_kept.load()
            self._move_passed_over()
        identities = {p: topics.topics[p[0]].identity for p in fresh}
        ends = ends_of(self._log, fresh, self._silent, self._clock)
        doubts, silent = self._doubts(identities, ends)
        silent |= fresh - set(ends)
        placed: dict[Partition, Position] = {}
        for partition in fresh - silent:
            position, identity = self.positions.get(partition), identities[partition]
            if position is None or partition in doubts:
                offset = ends[partition][1 if self._config.kafka.start == "end" else 0]
                position = restarted(position, offset)
            placed[partition] = named(position, identity, topics.cluster)
        if doubts:
            self._move_all(doubts)
        self._positions_kept.save(placed)
        self.positions |= placed
        self._backlog |= {partition: ends[partition][1] for partition in placed}
        self._reading = owned - silent
        self._log.begin({partition: self.positions[partition].offset for partition in self._reading})
        return silent

    def _doubts(
        self, identities: Mapping[Partition, str | None], ends: Mapping[Partition, tuple[int, int]]
    ) -> tuple[dict[Partition, Doubt], set[Partition]]:
        """Of which partitions it is not known what was missed; and of which not even that."""
        found: dict[Partition, Doubt] = {}
        silent: set[Partition] = set()
        marks: dict[Partition, int] = {}
        for partition, (low, high) in ends.items():
            position = self.positions.get(partition)
            why = doubt(position, identities[partition], low, high)
            if why is Doubt.SHORTER:  # a new leader may not know yet what it has
                since = self._short_since.setdefault(partition, self._clock.monotonic())
                if self._clock.monotonic() < since + SHORT_SECONDS:
                    silent.add(partition)
                    continue
            self._short_since.pop(partition, None)
            if why is not None:
                found[partition] = why
            elif position is not None and position.mark is not None:
                marks[partition] = position.mark[0]
        firsts = self._log.first_from(marks) if marks else {}
        for partition, first in firsts.items():
            why = doubt_by_mark(self.positions[partition], identities[partition], first)
            if why is not None:
                found[partition] = why
        return found, silent | (set(marks) - set(firsts))

    def _move_all(self, doubts: Mapping[Partition, Doubt]) -> None:
        """What was missed is not known: all tables of these topics move. Raises `TierError`."""
        # new partitions of a topic that was made anew are unknown too: that it was says more
        topics = {p[0]: why for p, why in sorted(doubts.items(), key=lambda one: one[1] is not Doubt.UNKNOWN)}
        topics = {topic: why for topic, why in topics.items() if tables_of(topic, self._config.tables)}
        changes = moved_from(topics, self._mover, self._config.tables)
        for topic, why in topics.items():
            self._tell(f"{topic}: {EXPLAINED[why]}; all its tables are moved")
        self._link.publisher.apply(changes)
        self.counts["moved"] += len(changes)
        lost = [topic for topic, why in topics.items() if why is not Doubt.UNKNOWN]
        self._new_epoch(len(lost), [table for topic in lost for table in tables_of(topic, self._config.tables)])

    def _new_epoch(self, count: int, tables: Sequence[str]) -> None:
        """Another log, so often; the connector is asked to read `tables` again, where the mapping says how."""
        self.epochs += count
        if count and self._config.resnapshot is not None:
            resnapshot.ask(self._config.resnapshot, sorted(set(tables)), self._log, self._failed)

    def _whole(self, table: str) -> list[Change]:
        return [Change(source, ANEW) for source in self._mover.whole(table).sources]

    # applying

    def _finish(self, batch: Batch) -> None:
        """Apply a batch, however long that takes, unless told to stop."""
        while not self.stop.is_set():
            try:
                self._apply(batch)
                self._pause = 0.0
                break
            except TierError as error:
                self._wait_for_tier(error)
        else:
            return
        self.state = "reading"
        self.positions |= batch.positions
        self._databases |= batch.databases
        self._latest |= batch.latest
        self.counts += batch.counts
        self.counts["moved"] += len(batch.versions)
        for server in sorted(batch.rewound):
            self._tell(f"the log of {server}'s database began anew; all tables are moved")
        if batch.rewound:
            self._new_epoch(len(batch.rewound), list(self._config.tables))
        for change, message in batch.refresh:
            self._refreshes.add(change, message)
        self._uncommitted |= set(batch.positions)
        if self._clock.monotonic() >= self._next_commit:
            self._commit()

    def _apply(self, batch: Batch) -> None:
        """Raises `TierError`; may be done again."""
        if batch.versions:
            self._link.publisher.apply(batch.changes())
        while batch.poison:
            why, message = batch.poison[0]
            self._dead.add("poison", why, message)
            self._failed(f"{message.topic}/{message.partition} at {message.offset}: {why}")
            batch.poison.pop(0)
        self._databases_kept.put({name: msgspec.json.encode(one) for name, one in batch.databases.items()})
        self._positions_kept.save(batch.positions)

    def _commit(self) -> None:
        if self._uncommitted:
            self._log.commit({partition: self.positions[partition].offset for partition in self._uncommitted})
            self._uncommitted = set()
        self._next_commit = self._clock.monotonic() + COMMIT_SECONDS

    def _wait_for_tier(self, error: TierError) -> None:
        self.state = "shared tier"
        self._failed(str(error))
        self._pause = min(LONGEST_PAUSE, 2 * self._pause or FIRST_PAUSE)
        self.stop.wait(self._pause)

    # telling

    def _failed(self, why: str) -> None:
        self.last_error = why
        self._tell(why)

    def _lag(self) -> int:
        offsets = {partition: position.offset for partition, position in self.positions.items()}
        return lag(offsets, self._log, sorted(self._reading))

    def report(self) -> Report:
        """What there is to say now. Raises `TierError`."""
        now, behind = self._clock.wall(), self._lag()
        heard = self._interpreter.heard_ts
        counts = dict(self.counts) | {"stalls": self._stall.count, "refreshed": self._refreshes.done}
        counts["refresh_left_out"] = self._refreshes.left_out
        return Report(
            runner=self._name, group=self._config.kafka.group, state=self.state, started=self._started, counts=counts,
            positions={f"{p[0]}/{p[1]}": position.offset for p, position in sorted(self.positions.items())
                       if p in self._reading},
            lag=behind, lag_seconds=self._late(now, behind),
            heard_seconds=None if heard is None else max(0.0, now - heard), epochs=self.epochs,
            last_error=self.last_error, dead=self._dead.count(),
        )  # fmt: skip

    def _late(self, now: float, left: int) -> float:
        if self.state == "reading" and not (left or self._silent or self._doubtful):
            return 0.0
        behind = self._stall.behind()
        if math.isfinite(behind):
            return behind
        return max(0.0, now - min([self._started, *(at for p, at in self._latest.items() if p in self._reading)]))

    def _beat(self) -> None:
        """Raises `TierError`."""
        for why, message in self._refreshes.failed():
            self._dead.add("refresh", why, message)
            self._refreshes.noted()
            self.counts["refresh_failed"] += 1
            self._failed(f"refresh: {why}")
        if self._clock.monotonic() >= self._next_commit:
            self._commit()
        self._status.tell(self.report())
        self._next_beat = self._clock.monotonic() + BEAT_SECONDS

    def close(self) -> None:
        """Commit, say goodbye, leave. Idempotent."""
        if self.state == "stopped":
            return
        self._refreshes.close()
        self._commit()
        self.state = "stopped"
        try:
            self._beat()
        except TierError as error:
            self._tell(str(error))
        self._log.close()
