"""Table `bursts`: streams, truth, scores and costs on a handful of requests."""

from __future__ import annotations

import csv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mmcache.lab import bursts_sizing
from mmcache.lab.bursts_rules import rules
from mmcache.lab.bursts_runs import STEP, Watched, watch
from mmcache.lab.bursts_sizing import FEWEST, MOST, cost, ways
from mmcache.lab.bursts_truth import Burst, many, one, own, plant
from mmcache.lab.table import silent
from mmcache.lab.table_bursts import BurstsTable
from mmcache.lab.traces.arrivals import Arrivals, azure, mooncake, servegen
from mmcache.model.errors import AssetError


def even(seconds: float, rate: float) -> Arrivals:
    return Arrivals("even", np.arange(int(seconds * rate)) / rate, seconds)


def test_planting_multiplies_within_and_nowhere_else() -> None:
    stream = even(3600, 10)
    planted = Arrivals("p", plant(stream, [Burst(1000, 1300, 3)], 0), 3600)
    counts = planted.counts(100)
    assert counts[10:13].tolist() == [3000, 3000, 3000]
    assert counts.sum() == 36_000 + 6000
    assert (np.diff(planted.times) >= 0).all()
    assert (plant(stream, [Burst(1000, 1300, 3)], 0) == planted.times).all()


def test_places_of_bursts_repeat_and_keep_their_distance() -> None:
    assert one(even(3600, 1), 2, 900, 7) == one(even(3600, 1), 2, 900, 7)
    assert one(even(3600, 1), 2, 900, 7).end <= 3600
    bursts = many(86_400, 3 * 86_400, 1)
    assert bursts == many(86_400, 3 * 86_400, 1)
    assert len({(burst.factor, burst.seconds) for burst in bursts}) == 9
    assert all(b.start - a.end > 3600 for a, b in pairwise(bursts))


def test_bursts_of_its_own_are_seen_in_hindsight() -> None:
    stream = even(7200, 10)
    planted = Arrivals("p", plant(stream, [Burst(3000, 3300, 2), Burst(6000, 6060, 5)], 0), 7200)
    assert own(planted) == [Burst(3000, 3300)]  # one minute is none
    assert own(stream) == []


def test_alarms_are_scored() -> None:
    seen = Watched(((100.0, 200.0), (450.0, 460.0), (500.0, 600.0), (2000.0, 2100.0)), 86_400)
    assert seen.delay(Burst(90, 120)) == 10
    assert seen.delay(Burst(700, 900)) is None
    assert seen.on(Burst(550, 900))
    assert not seen.on(Burst(90, 120))
    assert seen.false_alarms([Burst(90, 120)]) == 2  # two that are close are one
    assert seen.false_alarms([]) == 2
    assert seen.false_alarms([], since=1000) == 1


def test_all_rules_find_five_times_the_rate() -> None:
    stream = even(3600, 20)
    burst = Burst(2400, 2700, 5)
    counts = Arrivals("p", plant(stream, [burst], 0), 3600).counts(STEP)
    for name, rule in rules(STEP, 600).items():
        assert watch(rule(), stream.counts(STEP)).alarms == (), name
        delay = watch(rule(), counts).delay(burst)
        assert delay is not None, name
        assert delay <= 60, name


def test_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = even(7200, 30)
    counts = Arrivals("p", plant(stream, [Burst(3600, 5400, 3)], 0), 7200).counts(STEP)
    found = {name: cost(way(), counts, 10.0, 0.0) for name, way in ways(10.0, counts).items()}
    assert found["fewest"].shard_hours_a_day == pytest.approx(24 * FEWEST)
    assert found["fewest"].over == pytest.approx(0.25, abs=0.01)
    assert found["fewest"].refused == pytest.approx(60 * 1800 / (30 * 5400 + 90 * 1800), rel=0.01)
    assert found["most"].over < 0.1  # they come one by one
    assert found["foreseen"].over == 0
    assert found["ours"].over < found["fewest"].over
    assert found["ours"].over <= found["untold"].over
    assert found["ours"].shard_hours_a_day < found["most"].shard_hours_a_day
    assert {line for one in found.values() for line in one.served.tolist()} <= set(range(FEWEST, MOST + 1))
    monkeypatch.setattr(bursts_sizing, "COMES_SECONDS", 5.0)
    assert cost(ways(10.0, counts)["ours"](), counts, 10.0, 0.0).over < found["ours"].over


def write(folder: Path) -> None:
    """An hour in Azure's form, and a day in ServeGen's."""
    (folder / "azure").mkdir()
    stamps = [f"2023-11-16 18:{minute:02}:{second:02}.5000000,1,1" for minute in range(60) for second in range(60)]
    for name in ("code", "conv"):
        text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(stamps)
        (folder / f"azure/AzureLLMInferenceTrace_{name}.csv").write_text(text)
    inner = folder / "servegen_mm_image/data/multimodal/mm-image"
    inner.mkdir(parents=True)
    with (inner / "chunk-0-trace.csv").open("w", newline="") as file:
        for place, kind in enumerate(["Gamma", "Weibull", ""] * 48):
            shape = ("2.0", "0.5") if kind else ("", "")
            csv.writer(file).writerow(
                [place * 600, 1.0 if place % 12 else 0.0, 1.0 if place % 12 else "", kind, *shape]
            )


def test_traces_are_read(tmp_path: Path) -> None:
    write(tmp_path)
    stream = azure("azure-code", tmp_path)
    assert len(stream.times) == 3600
    assert stream.seconds == pytest.approx(3599)
    drawn = servegen(tmp_path, 0, 2)
    assert drawn.seconds == 2 * 86_400
    assert (drawn.times == servegen(tmp_path, 0, 2).times).all()
    assert len(drawn.times) == pytest.approx(2 * 86_400 * 11 / 12, rel=0.03)
    assert drawn.counts(600)[[0, 12, 24]].tolist() == [0, 0, 0]


@pytest.mark.parametrize("text", ["", "TIMESTAMP\nyesterday\nnow\n", "a,b\n1,2\n"], ids=["empty", "times", "columns"])
def test_damaged_traces_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "azure").mkdir()
    (tmp_path / "azure/AzureLLMInferenceTrace_code.csv").write_text(text)
    (tmp_path / "mooncake").mkdir()
    (tmp_path / "mooncake/conversation_trace.jsonl").write_text(text)
    inner = tmp_path / "servegen_mm_image/data/multimodal/mm-image"
    inner.mkdir(parents=True)
    reads: list[Callable[[], Arrivals]] = [
        lambda: azure("azure-code", tmp_path), lambda: mooncake(tmp_path), lambda: servegen(tmp_path, 0, 1),
    ]  # fmt: skip
    for read in reads:
        with pytest.raises(AssetError):
            read()


@pytest.mark.slow
def test_the_table_runs_on_small_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.setenv("MMCACHE_TRACES", str(tmp_path))
    table = BurstsTable()
    result = table.run(True, (0,), silent)
    ids = {row.id for row in result.rows}
    assert {
        "azure-code/found/ours",
        "servegen/false/plain",
        "sized/over/hpa",
        "azure-code/refused-x5/untold",
        "servegen/false-first-day/ours",
    } <= ids
    assert all(row.ours is not None for row in result.rows)


def test_without_traces_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMCACHE_TRACES", str(tmp_path))
    with pytest.raises(AssetError, match="MMCACHE_TRACES"):
        BurstsTable().run(True, (0,), silent)
