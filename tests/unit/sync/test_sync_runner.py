"""The runner, on stand-ins for the broker and the shared tier."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.unit.sync.stand_ins import PRODUCTS, TABLES, FakeLog, FakeServer, Impatient, config, event, link

from mmcache.model.errors import SettingsError, TierError
from mmcache.sync.dead import DeadLetters
from mmcache.sync.envelope import Message
from mmcache.sync.mapping import Resnapshot, Table
from mmcache.sync.positions import Position, Positions
from mmcache.sync.resnapshot import THREAD
from mmcache.sync.retry import retry
from mmcache.sync.runner import Runner
from mmcache.sync.status import OLD_SECONDS, Status
from mmcache.testing.clock import FakeClock

ROW = {"id": 1, "photo": "a", "title": "t", "body": "b"}
PLACE = (PRODUCTS, 0)
HEARTBEAT = "__debezium-heartbeat.shop"


class Bench:
    """A broker, a shared tier, and a runner that can be killed and started again."""

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        self.log, self.server, self.clock = FakeLog(topics), FakeServer(), FakeClock()
        self.lines: list[str] = []
        self.config = config()
        self.options: dict[str, Any] = {}
        self.runner = self.started()

    def started(self) -> Runner:
        """A new process: nothing of the old one is left but what is on the servers."""
        self.runner = Runner(
            self.config, self.log, link(self.server), name="me", tell=self.lines.append, clock=self.clock,
            stop=Impatient(),
            **self.options,
        )  # fmt: skip
        return self.runner

    def steps(self, count: int = 1, seconds: float = 2.0) -> None:
        for _ in range(count):
            self.clock.advance(seconds)
            self.runner.step()


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.steps()
    yield made
    made.runner.close()


def test_the_first_start_moves_all_and_goes_on_from_the_end() -> None:
    fresh = Bench()
    fresh.log.write(event(0, "d", {"id": 1}))
    fresh.steps(2)
    assert fresh.server.moves("table products") >= 1
    assert fresh.server.moves("row products 1") == 0
    assert fresh.runner.positions[PLACE].offset == 1
    assert fresh.runner.epochs == 0


def test_or_from_the_beginning() -> None:
    fresh = Bench()
    fresh.config = config(start="beginning")
    fresh.log.write(event(0, "d", {"id": 1}))
    fresh.started()
    fresh.steps(2)
    assert fresh.server.moves("row products 1") == 1


def test_changes_move_editions_and_positions_follow(bench: Bench) -> None:
    bench.log.write(event(0, "d", {"id": 1}))
    bench.steps(2)
    assert bench.server.moves("row products 1") == 1
    assert bench.runner.positions[PLACE].offset == 1
    assert Positions(link(bench.server).keeper.hash("positions"), "mmcache").load()[PLACE].offset == 1
    assert bench.log.committed == {PLACE: 1}


def test_a_death_after_the_editions_moved_repeats_them(bench: Bench) -> None:
    bench.log.write(event(0, "d", {"id": 1}))
    kept = {name: dict(fields) for name, fields in bench.server.hashes.items()}
    bench.steps()
    bench.server.hashes = kept  # the position was not saved any more
    bench.started()
    bench.steps(2)
    assert bench.server.moves("row products 1") == 1
    assert len([one for one in bench.server.applied if any(c.source == b"row products 1" for c in one)]) == 2
    assert bench.runner.epochs == 0


def test_a_restart_goes_on_where_it_was(bench: Bench) -> None:
    bench.log.write(event(0, "d", {"id": 1}))
    bench.steps()
    moves = bench.server.moves("table products")
    bench.started()
    bench.log.write(event(1, "d", {"id": 2}, lsn=1001))
    bench.steps(2)
    assert bench.server.moves("table products") == moves
    assert bench.server.moves("row products 2") == 1
    assert bench.runner.counts["messages"] == 1


@pytest.mark.parametrize("failures", [1, 2, 3, 7])
def test_while_the_shared_tier_does_not_serve_nothing_is_lost(bench: Bench, failures: int) -> None:
    bench.log.write(event(0, "d", {"id": 1}))
    bench.server.down = failures
    bench.steps(9)
    assert bench.server.moves("row products 1") == 1
    assert bench.runner.positions[PLACE].offset == 1
    assert bench.runner.last_error == "down"


def test_told_to_stop_while_it_does_not_serve(bench: Bench) -> None:
    bench.log.write(event(0, "d", {"id": 1}))
    bench.runner._next_look = bench.runner._next_beat = float("inf")
    bench.server.down = 10**6

    def stop(line: str) -> None:
        bench.runner.stop.set()

    bench.runner._tell = stop
    bench.runner.step()
    assert bench.runner.positions[PLACE].offset == 0
    bench.server.down = 0
    bench.started()
    bench.steps(2)
    assert bench.server.moves("row products 1") == 1


def test_poison_is_put_aside_once_and_the_rest_goes_on(bench: Bench) -> None:
    bench.log.write(Message(PRODUCTS, 0, 0, b'{"id": 3}', b"?"), event(1, "d", {"id": 1}))
    bench.server.down = 2
    bench.steps(6)
    assert bench.server.moves("row products 3") == 1
    assert bench.server.moves("row products 1") == 1
    (letter,) = DeadLetters(link(bench.server).keeper).latest(10)
    assert (letter.reason, letter.message.value, letter.message.offset, letter.whole) == ("poison", b"?", 0, True)
    assert "no JSON" in letter.error


class TestAnotherLog:
    """The broker lost its log, and nothing says so but its identity, its ends, and the messages themselves."""

    @pytest.fixture
    def bench(self) -> Bench:
        made = Bench()
        made.steps()
        made.log.write(event(0, "d", {"id": 1}, lsn=1001), event(1, "d", {"id": 2}, lsn=1002))
        made.steps()
        self.moves = made.server.moves("table products")
        assert made.runner.positions[PLACE].offset == 2
        return made

    def flushed(self, bench: Bench, epochs: int = 1) -> None:
        bench.steps(3)
        assert bench.server.moves("table products") == self.moves + epochs
        assert bench.runner.epochs == epochs

    @pytest.mark.parametrize("restart", [False, True])
    @pytest.mark.parametrize("refilled", [0, 1, 2, 5])
    def test_made_anew(self, bench: Bench, refilled: int, restart: bool) -> None:
        bench.log.make(PRODUCTS)
        bench.log.write(*(event(offset, "d", {"id": 9}, lsn=2000 + offset) for offset in range(refilled)))
        if restart:
            bench.started()
        self.flushed(bench)
        bench.log.write(event(refilled, "d", {"id": 7}, lsn=3000))
        bench.steps()
        assert bench.server.moves("row products 7") == 1

    @pytest.mark.parametrize("restart", [False, True])
    @pytest.mark.parametrize("refilled", [0, 1, 2, 5])
    def test_made_anew_where_topics_have_no_identity(self, restart: bool, refilled: int) -> None:
        bench = Bench()
        bench.log.make(PRODUCTS, identity=False)
        bench.steps()
        bench.log.write(event(0, "d", {"id": 1}, lsn=1001), event(1, "d", {"id": 2}, lsn=1002))
        bench.steps()
        self.moves = bench.server.moves("table products")
        bench.log.make(PRODUCTS, identity=False)
        bench.log.write(*(event(offset, "d", {"id": 9}, lsn=2000 + offset) for offset in range(refilled)))
        if restart:
            bench.started()
        bench.log.break_off()  # nobody loses a log while a connection lasts
        bench.steps(3)
        assert bench.runner.epochs == 1
        assert bench.server.moves("table products") > self.moves  # again, as long as nothing is read of the new log

    def test_made_anew_with_more_partitions(self, bench: Bench) -> None:
        bench.log.make(PRODUCTS, 3)
        self.flushed(bench)

    def test_cut_short(self, bench: Bench) -> None:
        del bench.log.logs[PLACE][1:]
        bench.log.break_off()
        self.flushed(bench)

    def test_cut_short_and_written_over(self, bench: Bench) -> None:
        del bench.log.logs[PLACE][1:]
        bench.log.write(event(1, "d", {"id": 3}, lsn=1003), event(2, "d", {"id": 4}, lsn=1004))
        bench.log.break_off()
        self.flushed(bench)

    def test_deleted_before_it_was_read(self, bench: Bench) -> None:
        bench.log.away = True
        bench.steps()
        bench.log.write(*(event(offset, "d", {"id": offset}, lsn=2000 + offset) for offset in range(2, 9)))
        bench.log.lows[PLACE] = 6
        bench.log.away = False
        self.flushed(bench)

    def test_a_connection_that_broke_is_no_reason(self, bench: Bench) -> None:
        for _ in range(3):
            bench.log.break_off()
            bench.steps(2)
        bench.log.write(event(2, "d", {"id": 5}, lsn=1005))
        bench.log.break_off()
        bench.steps(3)
        self.flushed(bench, epochs=0)
        assert bench.server.moves("row products 5") == 1
        assert bench.runner.counts["messages"] == 3

    def test_nor_is_a_broker_that_is_slow_to_answer(self, bench: Bench) -> None:
        bench.log.break_off()
        bench.log.deaf = 3
        bench.steps(3)
        assert bench.runner.state == "broker"
        bench.steps(3)
        assert bench.runner.state == "reading"
        bench.log.write(event(2, "d", {"id": 5}, lsn=1005))
        bench.steps(1)
        self.flushed(bench, epochs=0)
        assert bench.server.moves("row products 5") == 1

    def test_nor_is_a_new_leader_that_does_not_know_yet_what_it_has(self, bench: Bench) -> None:
        (last,) = bench.log.logs[PLACE][1:]
        del bench.log.logs[PLACE][1:]
        bench.log.break_off()
        bench.steps(1)
        bench.log.write(last)
        self.flushed(bench, epochs=0)

    def test_nor_is_a_message_that_was_compacted_away(self, bench: Bench) -> None:
        bench.log.write(event(2, "d", {"id": 5}, lsn=1005))
        bench.log.logs[PLACE][1] = bench.log.logs[PLACE][2]
        bench.log.break_off()
        self.flushed(bench, epochs=0)

    def test_a_topic_that_vanished_and_came_back(self, bench: Bench) -> None:
        bench.log.drop(PRODUCTS)
        bench.steps(2)
        assert bench.runner.state == "topics"
        bench.log.make(PRODUCTS)
        self.flushed(bench)

    def test_what_comes_while_it_is_in_doubt_is_not_applied(self, bench: Bench) -> None:
        bench.log.write(event(2, "d", {"id": 5}, lsn=1005))
        bench.log.break_off()
        bench.log.away = True
        bench.runner._next_look = float("inf")
        bench.log.reading = {PLACE: 2}
        bench.log.away = False
        bench.runner.step()
        assert bench.runner.positions[PLACE].offset == 2
        bench.steps(2)
        assert bench.server.moves("row products 5") == 1

    def test_the_shared_tier_is_down_while_all_must_move(self, bench: Bench) -> None:
        bench.log.make(PRODUCTS)
        bench.server.down = 4
        bench.steps(6)
        self.flushed(bench)

    def test_the_connector_is_asked_to_read_again(self, bench: Bench) -> None:
        bench.config = msgspec.structs.replace(bench.config, resnapshot=Resnapshot(topic="signals", server="shop"))
        bench.started()
        bench.steps()
        assert not bench.log.signals
        bench.log.make(PRODUCTS)
        self.flushed(bench)
        ((topic, key, value),) = bench.log.signals
        assert (topic, key) == ("signals", "shop")
        assert msgspec.json.decode(value)["data"]["data-collections"] == ["public.products"]

    def test_by_a_command_which_may_fail(self, bench: Bench) -> None:
        wanted = Resnapshot(command=("/nonexistent/program",))
        bench.config = msgspec.structs.replace(bench.config, resnapshot=wanted)
        bench.started()
        bench.log.make(PRODUCTS)
        self.flushed(bench)
        for thread in threading.enumerate():
            if thread.name == THREAD:
                thread.join()
        assert "resnapshot: /nonexistent/program did not start" in bench.runner.last_error


def test_new_partitions_are_read_and_what_was_missed_of_them_moves() -> None:
    bench = Bench({PRODUCTS: 2})
    bench.steps()
    moves = bench.server.moves("table products")
    bench.log.logs[PRODUCTS, 2] = []
    bench.steps()
    assert bench.server.moves("table products") == moves + 1
    bench.log.write(event(0, "d", {"id": 1}, partition=2))
    bench.steps()
    assert bench.server.moves("row products 1") == 1


def test_a_partition_without_a_leader_holds_up_no_other() -> None:
    bench = Bench({PRODUCTS: 2})
    bench.log.leaderless = {PLACE}
    bench.steps(2)
    assert bench.runner.state == "reading"
    bench.log.write(event(0, "d", {"id": 1}, partition=1), event(0, "d", {"id": 2}))
    bench.steps()
    assert (bench.server.moves("row products 1"), bench.server.moves("row products 2")) == (1, 0)
    moves = bench.server.moves("table products")
    bench.log.leaderless = set()
    bench.steps(2)
    assert bench.server.moves("table products") == moves + 1
    bench.log.break_off()
    bench.log.leaderless = {(PRODUCTS, 1)}
    bench.log.write(event(1, "d", {"id": 3}), event(1, "d", {"id": 4}, partition=1))
    bench.steps(2)
    assert (bench.server.moves("row products 3"), bench.server.moves("row products 4")) == (1, 0)
    bench.log.leaderless = set()
    bench.steps(2)
    assert bench.server.moves("row products 4") == 1
    assert bench.server.moves("table products") == moves + 1


def test_a_mapping_that_changed_moves_its_table(bench: Bench) -> None:
    products = bench.server.moves("table products")
    orders = bench.server.moves("table orders")
    tables = TABLES | {"public.products": Table(key=("id",), name="products", groups={"photo": ("photo", "more")})}
    bench.config = config(tables)
    bench.started()
    bench.steps(2)
    assert bench.server.moves("table products") == products + 1
    assert bench.server.moves("table orders") == orders
    bench.started()
    bench.steps(2)
    assert bench.server.moves("table products") == products + 1


def test_a_broker_that_is_away_is_waited_for(bench: Bench) -> None:
    bench.log.away = True
    bench.steps(3)
    assert bench.runner.state == "broker"
    bench.log.write(event(0, "d", {"id": 1}))
    bench.log.away = False
    bench.steps(3)
    assert bench.runner.state == "reading"
    assert bench.server.moves("row products 1") == 1


class TestStall:
    """While nothing is heard of changes, what is served is no older than the mapping allows."""

    @pytest.fixture
    def bench(self) -> Bench:
        made = Bench({PRODUCTS: 1, HEARTBEAT: 1})
        made.config = msgspec.structs.replace(made.config, stale_after=10.0)
        made.started()
        made.steps(3)
        self.moves = made.server.moves("table products")
        return made

    def moved(self, bench: Bench, times: int) -> bool:
        return bench.server.moves("table products") == self.moves + times

    def test_a_broker_that_is_away(self, bench: Bench) -> None:
        bench.log.away = True
        bench.steps(3)
        assert self.moved(bench, 0)
        bench.steps(15)
        assert self.moved(bench, 3)
        bench.log.away = False
        bench.steps(20)
        assert self.moved(bench, 3)
        assert bench.runner.report().counts["stalls"] == 3

    def test_a_database_at_rest_is_none(self, bench: Bench) -> None:
        bench.steps(20)
        assert self.moved(bench, 0)

    def test_a_connector_whose_heart_has_stopped(self, bench: Bench) -> None:
        for beat in range(10):
            bench.log.write(Message(HEARTBEAT, 0, beat, b"{}", b'{"ts_ms": %d}' % (1000 + beat)))
            bench.steps()
        assert self.moved(bench, 0)
        bench.steps(7)
        assert self.moved(bench, 1)

    def test_by_default_it_is_waited_for(self, bench: Bench) -> None:
        bench.config = msgspec.structs.replace(bench.config, stale_after=None)
        bench.started()
        bench.log.away = True
        bench.steps(50)
        assert self.moved(bench, 0)


class TestFollowing:
    """Caches serve by row only what somebody follows who has missed nothing for long."""

    def told(self, bench: Bench, steps: int) -> bool:
        before = len(bench.server.followed)
        bench.steps(steps)
        return len(bench.server.followed) > before

    def test_it_is_told_while_all_that_the_broker_has_is_applied(self, bench: Bench) -> None:
        assert self.told(bench, 3)
        assert bench.server.followed[-1]["products"] == set(bench.config.tables["public.products"].groups)

    def test_not_while_the_broker_is_away_nor_before_what_it_kept_back_is_applied(self, bench: Bench) -> None:
        assert self.told(bench, 3)
        bench.log.away = True
        bench.steps(3)  # what it had a moment ago is still known
        assert not self.told(bench, 10)
        bench.log.away = False
        assert self.told(bench, 3)

    def test_not_at_the_start_before_it_is_known_what_was_missed(self, bench: Bench) -> None:
        bench.log.away = True
        bench.started()
        assert not self.told(bench, 3)


def test_the_status_tells_how_far_it_is(bench: Bench) -> None:
    bench.log.write(event(0, "d", {"id": 1}))
    bench.steps(2)
    keeper = link(bench.server).keeper
    (seen,) = Status(keeper).seen()
    assert seen.alive
    assert seen.report.positions == {f"{PRODUCTS}/0": 1}
    assert seen.report.lag == 0
    assert seen.report.counts["applied"] == 1
    bench.log.write(event(1, "d", {"id": 2}, lsn=1001))
    assert bench.runner.report().lag == 1
    keeper.now += OLD_SECONDS + 1  # type: ignore[attr-defined]
    (seen,) = Status(keeper).seen()
    assert not seen.alive
    keeper.now += 100_000  # type: ignore[attr-defined]
    Status(keeper).tidy()
    assert not Status(keeper).seen()


def test_until_the_end(bench: Bench) -> None:
    bench.log.write(*(event(offset, "d", {"id": offset}, lsn=1000 + offset) for offset in range(20)))
    bench.runner.run(until_end=True)
    assert bench.runner.positions[PLACE].offset == 20
    assert bench.log.closed
    assert Status(link(bench.server).keeper).seen()[0].report.state == "stopped"


class TestRefresh:
    @pytest.fixture
    def bench(self) -> Bench:
        made = Bench()
        tables = {"public.products": Table(key=("id",), name="products", refresh="a:b")}
        made.config = config(tables)
        self.seen: list[object] = []
        self.editions: list[int] = []

        def refresh(change: Any) -> None:
            self.editions.append(made.server.moves("row products 1"))
            self.seen.append(change.key)
            if change.after["photo"] == "bad":
                raise ZeroDivisionError("no")

        made.options = {"refreshers": {"products": refresh}}
        made.started()
        made.steps()
        return made

    def test_it_is_called_after_the_edition_moved(self, bench: Bench) -> None:
        bench.log.write(event(0, "c", {"id": 1}, None, ROW))
        bench.steps()
        assert bench.runner._refreshes.settle(10)
        assert self.seen == [(1,)]
        assert self.editions == [1]

    def test_what_it_raises_is_put_aside(self, bench: Bench) -> None:
        bench.log.write(event(0, "c", {"id": 1}, None, ROW | {"photo": "bad"}))
        bench.steps()
        assert bench.runner._refreshes.settle(10)
        bench.steps()
        letters = DeadLetters(link(bench.server).keeper)
        (letter,) = letters.latest(5)
        assert (letter.reason, letter.error) == ("refresh", "ZeroDivisionError: no")
        assert bench.runner.counts["refresh_failed"] == 1
        with pytest.raises(Exception, match="refresh failed again"):
            retry(letter, link(bench.server), bench.config.tables, bench.options["refreshers"])
        fixed = {"products": self.seen.append}
        assert retry(letter, link(bench.server), bench.config.tables, fixed) == 1


def test_letters_that_cannot_be_done_again(bench: Bench) -> None:
    letters = DeadLetters(link(bench.server).keeper)
    letters.add("poison", "why", Message(PRODUCTS, 0, 0, b'{"id": 1}', b"?"))
    letters.add("poison", "why", Message(PRODUCTS, 0, 1, None, b"x" * (65 << 10)))
    long, short = letters.latest(2)
    for letter, why in ((long, "too long"), (short, "still not understood")):
        with pytest.raises(Exception, match=why):
            retry(letter, link(bench.server), TABLES, {})
    fixed = replace(short, message=replace(short.message, value=event(0, "d", {"id": 1}).value))
    assert retry(fixed, link(bench.server), TABLES, {}) == 1


def test_another_secret_ends_it(bench: Bench) -> None:
    def check() -> None:
        raise SettingsError("another secret")

    bench.runner = Runner(bench.config, bench.log, replace(link(bench.server), check=check), name="me")
    with pytest.raises(SettingsError, match="another secret"):
        bench.runner.run()
    assert bench.log.closed


def test_positions_that_cannot_be_read_are_unknown() -> None:
    server = FakeServer()
    kept = link(server).keeper.hash("positions")
    kept.put(
        {"mmcache|0|a": b"{", "other|0|a": msgspec.json.encode(Position(offset=5)), "x": b"", "mmcache|x|a": b"{}"}
    )
    assert Positions(kept, "mmcache").load() == {}
    assert Positions(kept, "other").load() == {("a", 0): Position(offset=5)}
    server.down = 1
    with pytest.raises(TierError):
        Positions(kept, "other").load()
