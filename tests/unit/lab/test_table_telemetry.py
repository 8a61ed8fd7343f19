"""Table `telemetry-cost`: its processes do what they are told, and its rows say what they measured."""

from __future__ import annotations

import pytest

from mmcache import Cache
from mmcache.lab.table_telemetry import CONTENDERS, OURS, WAYS, Process, Turn, _rows, receiver
from mmcache.lab.telemetry_worker import CHUNK, Contender, run, ways


def turn(cost: float, kept: int = 0) -> Turn:
    return Turn(hits=1000, wall=cost, cpu=2 * cost, kept=kept, made=10)


def test_ratios_are_taken_round_by_round_and_only_ours_have_a_target() -> None:
    turns = {name: [turn(1.0 + n), turn(2.0 * (1.0 + n))] for n, name in enumerate(CONTENDERS)}
    rows = {row.id: row for row in _rows("text", turns, 3)}
    assert rows["text/on-0%/time"].ours == pytest.approx(2.0)
    assert rows["text/prometheus/cpu"].ours == pytest.approx(len(CONTENDERS))
    assert {row.id.split("/")[1] for row in rows.values() if row.target == 1.05} == set(OURS)
    assert rows["text/off/kept"].met is True
    kept = {"off": [turn(1.0)]}
    assert next(row for row in _rows("text", kept, 5000) if row.id.endswith("kept")).met is False


def test_all_ways_are_hits() -> None:
    with Cache(memory="64MiB") as cache:
        calls = ways(cache)
        assert calls.keys() == WAYS.keys() == CHUNK.keys()
        contender = Contender(cache, "off", 0.0, "")
        misses = cache.stats().misses
        for way, call in calls.items():
            if way != "async":
                count, wall = run(call, contender.around, 1, 0.0)
                assert count >= 1
                assert wall > 0
        assert cache.stats().misses == misses


@pytest.mark.slow
def test_a_process_takes_its_turn_and_its_spans_arrive() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with receiver() as otlp, Process("on-100%", otlp) as process:
        process.ready()
        turns = [process.turn(way, 0.01) for way in WAYS]
        assert all(turn.hits > 0 for turn in turns)
        assert any(turn.made for turn in turns)  # not all: so many spans a second are made, and no more
        assert process.turn("report", 0.0).cpu > 0
