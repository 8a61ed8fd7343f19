"""Whatever happens between a database and the caches, once all events are delivered nobody is served what is old.

The model: a database whose transactions overlap, a connector that repeats itself, a broker that loses its log, a runner
that dies anywhere, readers that fetch editions, load a row and store what they made of it, at any moment in between.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sync.stand_ins import PRODUCTS, FakeLog, FakeServer, Impatient, config, link

from mmcache.rows import Row
from mmcache.sync.envelope import Message
from mmcache.sync.runner import Runner
from mmcache.testing.clock import FakeClock
from mmcache.tiers.valkey.editions import ANEW, Change

PARTITIONS, ROWS = 2, 3
COLUMNS = {"photo": ("photo",), "text": ("title", "body"), None: ("photo", "title", "body", "price")}
Columns = dict[str, Any]


class Server(FakeServer):
    """Editions as they are on the server: only of what somebody asked for, and none ever comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[bytes, tuple[int, int]] = {}
        self._serial = 0

    def fetch(self, sources: Sequence[bytes]) -> tuple[tuple[int, int], ...]:
        return tuple(self.known.setdefault(source, (0, self._next())) for source in sources)

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def evict(self, source: bytes) -> None:
        self.known.pop(source, None)

    def apply(self, changes: Sequence[Change]) -> None:
        self._serve()
        for change in changes:
            found = self.known.get(change.source)
            if found is not None and (change.version == ANEW or change.version > found[0]):
                version = found[0] if change.version == ANEW else change.version
                self.known[change.source] = version, self._next()


class World:
    """See above."""

    def __init__(self, full: bool, start: str, identity: bool) -> None:
        self.full, self.identity = full, identity
        self.rows: dict[int, Columns] = {
            id: {"id": id, "photo": "a", "title": "t", "body": None, "price": 1} for id in range(1, ROWS)
        }
        self.open: dict[int, list[tuple[int, str, int, Columns | None, Columns | None]]] = {}
        self.locked: dict[int, int] = {}
        self.lsn, self.last_commit, self.now = 100, 100, 1_000_000.0
        self.unsent: list[tuple[int | None, bytes | None, bytes | None, dict[str, bytes | None]]] = []
        self.sent = list(self.unsent)
        self.backup: tuple[dict[int, Columns], int] | None = None
        self.log, self.server, self.clock = FakeLog({PRODUCTS: PARTITIONS}), Server(), FakeClock()
        self.log.make(PRODUCTS, PARTITIONS, identity)
        self.config = config(start=start)
        self.ids = link(self.server).ids
        self.cached: dict[tuple[object, ...], object] = {}
        self.loading: list[tuple[int, str | None, tuple[object, ...]]] = []
        self.crash()
        self.follow(2, 0)

    # the database

    def _log_position(self) -> int:
        self.lsn += 10
        return self.lsn

    def change(self, id: int, what: str, value: str | None) -> None:
        if id not in self.locked:
            self.write(9, id, what, value)
            self.end(9, True)

    def write(self, number: int, id: int, what: str, value: str | None) -> None:
        if self.locked.get(id, number) != number:
            return
        self.locked[id] = number
        changes = self.open.setdefault(number, [])
        mine = [after for _, _, row, _, after in changes if row == id]
        before = mine[-1] if mine else self.rows.get(id)
        if what == "delete":
            if before is not None:
                changes.append((self._log_position(), "d", id, before, None))
        elif before is None:
            after = {"id": id, "photo": value, "title": "t", "body": value, "price": 1}
            changes.append((self._log_position(), "c", id, None, after))
        else:
            after = before | ({} if what == "none" else {what: value})
            changes.append((self._log_position(), "u", id, before, after))

    def rename(self, number: int, old: int, new: int) -> None:
        if old == new or any(self.locked.get(id, number) != number for id in (old, new)) or number in self.open:
            return
        if (row := self.rows.get(old)) is None or new in self.rows:
            return
        self.locked |= {old: number, new: number}
        position = self._log_position()
        self.open[number] = [(position, "d", old, row, None), (position, "c", new, None, row | {"id": new})]

    def end(self, number: int, good: bool) -> None:
        changes = self.open.pop(number, [])
        self.locked = {id: holder for id, holder in self.locked.items() if holder != number}
        if not good or not changes:
            return
        self.now += 0.01
        renamed = [row for _, op, row, _, _ in changes if op in "dc"] if len({c[0] for c in changes}) == 1 else []
        for position, op, id, before, after in changes:
            if after is None:
                self.rows.pop(id, None)
            else:
                self.rows[id] = after
            headers: dict[str, bytes | None] = {}
            if len(renamed) == 2:
                name, other = ("newkey", renamed[1]) if op == "d" else ("oldkey", renamed[0])
                headers[f"__debezium.{name}"] = json.dumps({"id": other}).encode()
            self._send(op, id, before, after, position, headers)
            if op == "d":
                self.unsent.append((id, json.dumps({"id": id}).encode(), None, {}))
        self.last_commit = self._log_position()

    def truncate(self) -> None:
        if self.open:
            return
        self.now += 0.01
        self.rows = {}
        self._send("t", None, None, None, self._log_position(), {})
        self.last_commit = self._log_position()

    def _send(
        self, op: str, id: int | None, before: Columns | None, after: Columns | None, position: int,
        headers: dict[str, bytes | None],
    ) -> None:  # fmt: skip
        if not self.full:
            before = None if op == "u" or before is None else {"id": id} | dict.fromkeys(("photo", "title"))
        value = {"op": op, "before": before, "after": after, "source": {
            "connector": "postgresql", "name": "shop", "db": "store", "schema": "public", "table": "products",
            "lsn": position, "sequence": json.dumps([str(self.last_commit), str(position)]),
            "ts_ms": round(self.now * 1000), "snapshot": "false",
        }}  # fmt: skip
        key = None if id is None else json.dumps({"id": id}).encode()
        self.unsent.append((id, key, json.dumps(value).encode(), headers))

    def back_up(self) -> None:
        self.backup = dict(self.rows), self.lsn

    def restore(self, id: int) -> None:
        """From a backup, on a server whose log is behind; found out by the first change after it."""
        if self.backup is None:
            return
        (rows, self.lsn), self.open, self.locked = self.backup, {}, {}
        self.rows, self.last_commit = dict(rows), self.lsn
        self.now += 60.0
        self.write(1, id, "photo", "restored")
        self.write(1, id, "photo", "and changed")
        self.end(1, True)

    # the connector and the broker

    def connect(self, count: int = 1000) -> None:
        if PRODUCTS not in self.log.identities:
            self.log.make(PRODUCTS, PARTITIONS, self.identity)
        for id, key, value, headers in self.unsent[:count]:
            partition = 0 if id is None else id % PARTITIONS
            offset = len(self.log.logs[PRODUCTS, partition])
            self.log.write(Message(PRODUCTS, partition, offset, key, value, headers))
        self.sent += self.unsent[:count]
        self.unsent = self.unsent[count:]

    def connector_dies(self, count: int) -> None:
        """It begins again where it last noted how far it was."""
        self.unsent = self.sent[-count:] + self.unsent
        self.sent = self.sent[:-count]

    def broker_dies(self) -> None:
        """What it had taken is lost, whether it was read or not; the connections to it break."""
        if PRODUCTS in self.log.identities:
            self.log.drop(PRODUCTS)
        self.log.break_off()

    def connection_breaks(self) -> None:
        self.log.break_off()

    # the runner

    def follow(self, steps: int, down: int) -> None:
        self.server.down = down
        for _ in range(steps):
            self.clock.advance(2.0)
            self.runner.step()
        self.server.down = 0

    def crash(self) -> None:
        self.runner = Runner(self.config, self.log, link(self.server), name="me", clock=self.clock, stop=Impatient())

    def crash_before_it_noted(self) -> None:
        """Its last positions never reached the server."""
        kept = {name: dict(fields) for name, fields in self.server.hashes.items()}
        self.follow(2, 0)
        self.server.hashes = kept
        self.crash()

    # readers

    def _editions(self, id: int, group: str | None) -> tuple[object, ...]:
        return (id, group, *self.server.fetch(self.ids.of(Row("products", id, group))))

    def _load(self, id: int, group: str | None) -> object:
        row = self.rows.get(id)
        return None if row is None else tuple(row[column] for column in COLUMNS[group])

    def read(self) -> None:
        for id in range(1, ROWS + 1):
            for group in COLUMNS:
                self.cached.setdefault(self._editions(id, group), self._load(id, group))

    def begin_to_read(self, id: int, group: str | None) -> None:
        self.loading.append((id, group, self._editions(id, group)))

    def end_to_read(self) -> None:
        if self.loading:
            id, group, key = self.loading.pop(0)
            self.cached.setdefault(key, self._load(id, group))

    def an_edition_is_evicted(self, id: int, group: str | None, which: int) -> None:
        self.server.evict(self.ids.of(Row("products", id, group))[which])

    # what must hold

    def settle(self) -> None:
        """All is delivered, and nobody is served what is old."""
        self.connect(10_000)
        self.follow(6, 0)
        assert all(self.log.ends_known(p) == position.offset for p, position in self.runner.positions.items())
        for id in range(1, ROWS + 1):
            for group in COLUMNS:
                key = self._editions(id, group)
                if key in self.cached:
                    assert self.cached[key] == self._load(id, group), (id, group, key)


ids, numbers, groups = st.integers(1, ROWS), st.integers(1, 2), st.sampled_from(list(COLUMNS))
columns = st.sampled_from(["photo", "title", "body", "price", "delete", "none"])
values = st.sampled_from(["", "a", "b", None])


def step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


STEPS = st.one_of(
    step("read"),
    step("change", ids, columns, values),
    step("follow", st.integers(1, 3), st.integers(0, 2)),
    step("connect", st.integers(1, 5) | st.just(1000)),
    step("read"),
    step("change", ids, columns, values),
    step("follow", st.integers(1, 3), st.just(0)),
    step("connect", st.just(1000)),
    step("begin_to_read", ids, groups),
    step("end_to_read"),
    step("write", numbers, ids, columns, values),
    step("write", numbers, ids, columns, values),
    step("end", numbers, st.sampled_from([True, True, True, False])),
    step("rename", numbers, ids, ids),
    step("an_edition_is_evicted", ids, groups, st.integers(0, 2)),
    step("truncate"),
    step("connector_dies", st.integers(1, 8)),
    step("broker_dies"),
    step("connection_breaks"),
    step("crash"),
    step("crash_before_it_noted"),
    step("back_up"),
    step("restore", ids),
)


@given(
    st.booleans(), st.sampled_from(["end", "beginning"]), st.booleans(), st.lists(STEPS, min_size=60, max_size=120)
)  # fmt: skip
@settings(max_examples=100)
def test_whatever_happens_nobody_is_served_what_is_old(
    full: bool, start: str, identity: bool, steps: list[tuple[Any, ...]]
) -> None:
    world = World(full, start, identity)
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    world.settle()
