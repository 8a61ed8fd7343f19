"""What a runner says of itself when something is wrong, and what it must not have passed over."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.sync.stand_ins import PRODUCTS, TABLES, FakeLog, config, event
from tests.unit.sync.test_sync_runner import PLACE, ROW, Bench

from mmcache.keys.realm import load_secret
from mmcache.sync.link import open_link
from mmcache.sync.log import Topics
from mmcache.sync.mapping import Resnapshot
from mmcache.sync.positions import Partition
from mmcache.sync.resnapshot import THREAD, ask
from mmcache.tiers.valkey.editions import Publisher


def test_a_broker_that_is_away_is_a_growing_lag() -> None:
    bench = Bench()
    bench.steps()
    assert bench.runner.report().lag_seconds == 0.0
    bench.log.away = True
    bench.log.break_off()
    bench.steps(10, seconds=60.0)
    assert bench.runner.report().lag_seconds >= 540.0


def test_a_partition_without_a_leader_is_a_growing_lag_and_no_end() -> None:
    bench = Bench({PRODUCTS: 2})
    bench.log.leaderless = {PLACE}
    bench.steps(10, seconds=60.0)
    assert bench.runner.report().lag_seconds >= 540.0
    assert not bench.runner.at_end()
    bench.log.leaderless = set()
    bench.steps(2)
    assert bench.runner.report().lag_seconds == 0.0
    assert bench.runner.at_end()


def test_while_one_partition_has_no_leader_nobody_is_told_that_nothing_is_missed() -> None:
    bench = Bench({PRODUCTS: 2})
    bench.log.leaderless = {PLACE}
    bench.steps(10, seconds=60.0)
    assert bench.runner._stall.behind() >= 540.0


class Half(FakeLog):
    """Gives one of two partitions to each of two runners."""

    def __init__(self, number: int) -> None:
        super().__init__({PRODUCTS: 2})
        self.number = number

    def owned(self, topics: Topics) -> set[Partition]:
        return {(PRODUCTS, self.number)}


def test_a_runner_vouches_for_what_others_of_its_group_read_once_they_have_applied_it() -> None:
    benches = [Bench(), Bench()]
    for number, bench in enumerate(benches):
        bench.config, bench.log, bench.server = config(share=True), Half(number), benches[0].server
        bench.log.identities, bench.log.logs = {PRODUCTS: "id"}, benches[0].log.logs
        bench.started()
    one, other = benches
    one.log.write(event(0, "d", {"id": 1}, partition=1))
    one.steps(4)
    assert one.runner._stall.behind() == float("inf")  # nobody reads the other half
    other.steps(3)
    one.steps(4)
    assert one.runner._stall.behind() < 10.0
    one.log.write(event(1, "d", {"id": 1}, partition=1))
    one.steps(20)
    assert one.runner._stall.behind() > 30.0
    other.steps(2)
    one.steps(4)
    assert one.runner._stall.behind() < 10.0


def test_a_message_after_a_long_rest_is_no_long_lag() -> None:
    bench = Bench()
    bench.steps()
    bench.log.write(event(0, "d", {"id": 1}))
    bench.steps()
    bench.steps(1, seconds=86_400.0)
    bench.steps(2)
    bench.log.write(event(1, "d", {"id": 1}))
    report = bench.runner.report()
    assert report.lag == 1
    assert report.lag_seconds < 10.0


def test_refreshes_that_failed_while_the_shared_tier_did_not_serve_are_put_aside_later() -> None:
    bench = Bench()
    bench.steps()
    message = event(0, "c", {"id": 1}, None, ROW)
    bench.runner._refreshes._failed += [(why, message) for why in "abc"]
    bench.server.down = 2
    bench.steps(5)
    assert len(bench.server.dead) == 3
    assert bench.runner.counts["refresh_failed"] == 3


def test_an_update_read_late_moves_the_row_for_those_before_it_that_compaction_removed() -> None:
    bench = Bench()
    bench.steps(2)
    bench.log.write(event(0, "u", {"id": 1}, ROW, ROW | {"title": "y"}))
    bench.steps()
    assert (bench.server.moves("row products 1"), bench.server.moves("group text products 1")) == (0, 1)
    photo = ROW | {"photo": "new"}  # by an update that is gone
    bench.log.write(event(1, "u", {"id": 1}, photo, photo | {"title": "z"}, lsn=1001))
    bench.started()
    bench.steps()
    assert bench.server.moves("row products 1") == 1
    bench.log.write(event(2, "u", {"id": 2}, ROW | {"id": 2}, photo | {"id": 2}, lsn=1002))
    bench.steps()
    assert (bench.server.moves("row products 2"), bench.server.moves("group photo products 2")) == (0, 1)


def test_a_log_that_is_lost_before_anything_was_read_of_it() -> None:
    """By a broker that does not say which topic it is."""
    bench = Bench()
    bench.log.make(PRODUCTS, identity=False)
    bench.steps()
    before = bench.server.moves("table products")
    bench.log.write(event(0, "d", {"id": 1}))
    bench.log.make(PRODUCTS, identity=False)
    bench.log.break_off()
    bench.steps(3)
    assert bench.server.moves("table products") > before


class TestPassedOver:
    """Two runners of one group, of which one has an older mapping; or a table that is left out for a while."""

    ONE = {"public.products": TABLES["public.products"]}  # noqa: RUF012

    def orders(self, bench: Bench) -> int:
        return bench.server.moves("table orders")

    def test_what_a_runner_with_an_older_mapping_went_past_moves(self) -> None:
        bench = Bench()
        bench.steps()
        before = self.orders(bench), bench.server.moves("table products")
        bench.started()
        bench.steps()
        assert (self.orders(bench), bench.server.moves("table products")) == before
        bench.log.write(event(0, "d", {"id": 1}))
        both, bench.config = bench.config, config(self.ONE)
        bench.started()
        bench.steps(2)
        bench.config = both
        bench.started()
        bench.steps(2)
        assert (self.orders(bench), bench.server.moves("table products")) == (before[0] + 1, before[1])
        bench.started()
        bench.steps(2)
        assert self.orders(bench) == before[0] + 1

    def test_so_it_does_where_runners_share_the_partitions(self) -> None:
        bench = Bench({PRODUCTS: 2})
        bench.config = config(share=True)
        bench.started()
        bench.steps()
        before = self.orders(bench)
        other = Bench({PRODUCTS: 2})
        other.config, other.server, other.log = config(self.ONE, share=True), bench.server, FakeLog({PRODUCTS: 2})
        other.log.identities = bench.log.identities
        other.started()
        other.steps()
        other.log.write(event(0, "d", {"id": 1}))
        other.steps()
        bench.log.break_off()  # the group shares out anew
        bench.steps(2)
        assert self.orders(bench) == before + 1


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (subprocess.CalledProcessError(3, ["curl", "-H", "token"]), "curl ended with exit code 3"),
        (subprocess.TimeoutExpired(["curl", "-H", "token"], 60), "curl did not end within 60 s"),
        (FileNotFoundError(2, "No such file"), "curl did not start: No such file"),
    ],
    ids=["fails", "hangs", "absent"],
)
def test_a_command_is_not_waited_for_and_its_arguments_are_not_told(fault: Exception, why: str) -> None:
    gate, said = threading.Event(), list[str]()

    def run(command: list[str], **options: Any) -> None:
        gate.wait(10)
        raise fault

    ask(Resnapshot(command=("curl", "-H", "token")), ["public.products"], FakeLog(), said.append, run)
    assert said == []
    gate.set()
    for thread in threading.enumerate():
        if thread.name == THREAD:
            thread.join()
    assert said == [f"resnapshot: {why}"]


def test_replicas_are_waited_for_less_long_than_the_client_waits_for_an_answer(tmp_path: Path) -> None:
    load_secret(tmp_path / "realm.key")
    wanted = msgspec.structs.replace(config(), secret_file=str(tmp_path / "realm.key"), replicas=1)
    client, made = open_link(wanted)
    assert isinstance(made.publisher, Publisher)
    assert made.publisher._wait_ms < 1000 * wanted.settings.timeout_seconds
    client.close()
