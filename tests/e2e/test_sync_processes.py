"""`mmcache sync` as its user runs it: a real broker, a real shared tier, processes that are killed."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.sync_stage import Stage, stage, until

from mmcache import Cache, Row

pytest.importorskip("confluent_kafka", reason="needs mmcache[sync]")
pytest.importorskip("yaml", reason="needs mmcache[sync]")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as one:
        yield one


def test_a_change_makes_what_was_computed_unreachable(made: Stage) -> None:
    assert made.status() == (1, [])
    made.make_topic()
    runner = made.start()
    made.await_reading()
    photo, text, all_columns, other = (made.edition(*row) for row in ((1, "photo"), (1, "text"), (1,), (2,)))
    made.change(1)
    until(lambda: made.edition(1, "photo") != photo)
    assert made.edition(1) != all_columns
    assert (made.edition(1, "text"), made.edition(2)) == (text, other)

    made.produce((b'{"id": 2}', b"nonsense"))
    until(lambda: made.edition(2) != other)
    code, found = made.sync("dead")
    (letter,) = found["letters"]
    assert (letter["reason"], letter["value"], letter["whole"]) == ("poison", "nonsense", True)
    assert made.sync("dead", "--retry", letter["id"])[0] == 3
    assert made.sync("dead", "--drop", letter["id"])[0] == 0
    assert made.sync("dead") == (0, {"total": 0, "letters": []})

    before = made.edition(4, "text")
    assert made.sync("move", "public.products") == (0, {"moved": ["public.products"]})
    assert made.edition(4, "text") != before
    assert made.sync("move", "public.nothing")[0] == 3

    until(lambda: made.seen()[0].report.counts.get("poison") == 1)
    code, (report,) = made.status()
    assert (code, report["lag"], report["alive"]) == (0, 0, True)
    assert sum(report["positions"].values()) == 2
    runner.send_signal(signal.SIGTERM)
    assert runner.wait(60) == 0
    code, (report,) = made.status()
    assert (code, report["state"]) == (1, "stopped")

    made.start()
    made.await_reading()
    before = made.edition(3)
    made.change(3)
    until(lambda: made.edition(3) != before)


def test_a_cache_loads_what_changed_and_nothing_else(made: Stage, tmp_path: Path) -> None:
    made.make_topic()
    made.start()
    made.await_reading()
    loads: Counter[int] = Counter()
    photos = {1: "old", 2: "old"}

    def load(id: int) -> str:
        loads[id] += 1
        return photos[id]

    secret = (made.folder / "realm.key").read_bytes()
    with Cache(tmp_path / "cache", shared=made.url, secret=secret) as cache:
        encode = cache.wrap(len, modality="text", signature="length-1")

        def features(id: int) -> int:
            found = encode.row(Row("products", id, "photo"), lambda: load(id))
            assert isinstance(found, int)
            return found

        def warm() -> bool:
            before = dict(loads)
            assert (features(1), features(2)) == (3, 3)
            return dict(loads) == before

        until(warm)
        before = dict(loads)
        photos[1] = "changed"
        made.change(1)
        until(lambda: features(1) == 7)
        assert features(2) == 3
        assert loads[2] == before[2]


def test_a_broker_that_lost_its_log(made: Stage) -> None:
    """It comes back under the same address and name, is filled again beyond where we were, and never says a word."""
    made.make_topic()
    made.change(*range(20))
    made.start()
    made.await_reading()
    first = made.edition(5)
    made.change(5)
    until(lambda: made.edition(5) != first)

    unseen = made.edition(7)
    made.broker.kill()
    made.broker.start()
    made.make_topic()
    made.change(*([1] * 200))
    until(lambda: made.edition(7) != unseen)
    until(lambda: max(one.report.epochs for one in made.seen()) == 1)
    before = made.edition(9)
    made.change(9)
    until(lambda: made.edition(9) != before)


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_lost(made: Stage) -> None:
    made.make_topic()
    runner = made.start()
    made.await_reading()
    dice = random.Random(5)
    for _ in range(6):
        rows = dice.sample(range(500), 200)
        before = {id: made.edition(id, "photo") for id in rows}
        made.change(*rows)
        time.sleep(dice.uniform(0.0, 0.05))
        runner.kill()
        runner.wait()
        runner = made.start()
        until(lambda before=before: all(made.edition(id, "photo") != known for id, known in before.items()))  # type: ignore[misc]
    assert {one.report.epochs for one in made.seen()} == {0}, (made.folder / "runner.log").read_text()


@pytest.mark.slow
def test_runners_stand_in_for_one_another(made: Stage) -> None:
    made.make_topic()
    first, _ = made.start(), made.start()
    until(lambda: sum(one.report.state == "reading" for one in made.seen()) == 2)
    before = made.edition(1)
    made.change(1)
    until(lambda: made.edition(1) != before)
    first.kill()
    before = made.edition(1)
    made.change(1)
    until(lambda: made.edition(1) != before)


@pytest.mark.slow
def test_runners_that_share_the_partitions(made: Stage) -> None:
    made.configure(kafka="share: true,")
    made.make_topic()
    first = made.start()
    until(lambda: sum(len(one.report.positions) for one in made.seen()) == 2)
    made.start()
    until(lambda: sorted(len(one.report.positions) for one in made.seen()) == [1, 1], 120)
    rows = range(20)
    before = {id: made.edition(id, "photo") for id in rows}
    made.change(*rows)
    until(lambda: all(made.edition(id, "photo") != known for id, known in before.items()))
    first.kill()
    until(lambda: any(one.alive and len(one.report.positions) == 2 for one in made.seen()), 120)
    before = {id: made.edition(id, "photo") for id in rows}
    made.change(*rows)
    until(lambda: all(made.edition(id, "photo") != known for id, known in before.items()))


def test_a_broker_that_is_not_there_yet(made: Stage) -> None:
    made.broker.kill()
    made.start()
    until(lambda: any(one.report.state == "broker" for one in made.seen()))
    made.broker.start()
    made.make_topic()
    made.await_reading()


@pytest.mark.slow
def test_a_shared_tier_that_is_paused_and_one_that_forgets_all(made: Stage) -> None:
    made.make_topic()
    made.start()
    made.await_reading()
    before = made.edition(1)
    made.server.pause()
    made.change(1)
    made.server.resume()
    until(lambda: made.edition(1) != before)

    before = made.edition(2)
    made.server.kill()
    made.change(3)
    made.server.start()
    made.server.await_answer()
    until(lambda: any(one.report.positions for one in made.seen()))
    assert made.edition(2) != before
    before = made.edition(4)
    made.change(4)
    until(lambda: made.edition(4) != before)
