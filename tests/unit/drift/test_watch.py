"""Histograms in the cache's folder: over restarts, between processes, and in `mmcache drift status`."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from mmcache import Cache
from mmcache.cli import main
from mmcache.cli.output import Exit
from mmcache.keys.drift import DriftAlarm, DriftSettings, DriftWatch, FrozenStatistics
from mmcache.keys.drift.watch import saved
from mmcache.testing.clock import FakeClock

SMALL = DriftSettings(window=32, long=2, baseline=12, projections=4, bins=4)
ENOUGH = SMALL.samples


def rows(seed: int, count: int, shift: float = 0.0) -> npt.NDArray[np.float32]:
    return (np.random.default_rng(seed).normal(size=(count, 6)) + shift).astype(np.float32)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with Cache(tmp_path / "cache", memory="1MiB", disk="4MiB"):
        pass
    return tmp_path / "cache"


@pytest.fixture
def watch(root: Path) -> Callable[..., DriftWatch]:
    clock = FakeClock()

    def make(**more: Any) -> DriftWatch:
        return DriftWatch(root, settings=SMALL, clock=clock, **more)

    return make


def test_a_restart_goes_on(watch: Callable[..., DriftWatch]) -> None:
    first = watch()
    first.observe("image", rows(1, ENOUGH - 40))
    first.close()
    second = watch()
    second.observe("image", rows(2, 40 + 64))
    assert second.status()["image"].samples == 64
    before = second.status()
    second.close()
    third = watch()
    third.observe("text", rows(3, 1))
    assert third.status()["image"] == before["image"]


def test_alarms_are_told(watch: Callable[..., DriftWatch]) -> None:
    told: list[DriftAlarm] = []
    watching = watch(alarm=told.append)
    watching.observe("image", rows(1, ENOUGH))
    raised = watching.observe("image", rows(2, 64, shift=3.0))
    assert told == raised != []


def test_two_processes_have_slots_of_their_own_and_one_baseline(root: Path, watch: Callable[..., DriftWatch]) -> None:
    one, two = watch(), watch()  # flock tells descriptors apart, so two watches here are like two processes
    one.observe("image", rows(1, ENOUGH))
    two.observe("image", rows(2, 32))
    assert two.status()["image"].state == "steady"
    assert two.status()["image"].statistics == one.status()["image"].statistics
    one.close()
    two.close()
    assert sorted(path.name for path in (root / "drift").iterdir()) == ["0.lock", "0.msgpack", "1.lock", "1.msgpack"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (root / "drift").iterdir())


def test_another_embedder_has_another_baseline(watch: Callable[..., DriftWatch]) -> None:
    one, two = watch(), watch()
    one.observe("image", rows(1, ENOUGH), tag="a")
    two.observe("image", rows(2, 32), tag="b")
    assert two.status()["image"].state == "learning"


def _child(root: Path, watching: DriftWatch, seen: Any) -> None:
    watching.observe("image", rows(5, 32))
    watching.close()
    seen.put([len(monitor.stages) for monitor, _ in saved(root)])


def test_a_forked_child_takes_a_slot_of_its_own(root: Path, watch: Callable[..., DriftWatch]) -> None:
    watching = watch()
    watching.observe("image", rows(1, ENOUGH))
    context = multiprocessing.get_context("fork")
    seen = context.SimpleQueue()
    child = context.Process(target=_child, args=(root, watching, seen))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert seen.get() == [1, 1]
    watching.observe("image", rows(6, 32))
    assert watching.status()["image"].samples == 32


def _digest(watching: DriftWatch, seen: Any) -> None:
    watching.observe("image", rows(5, SMALL.window))
    seen.put(watching.status()["image"].statistics)


def test_given_statistics_are_a_forked_childs_too(watch: Callable[..., DriftWatch]) -> None:
    watching, frozen = watch(), FrozenStatistics.fit(rows(9, 100))
    watching.freeze("image", frozen)
    context = multiprocessing.get_context("fork")
    seen = context.SimpleQueue()
    child = context.Process(target=_digest, args=(watching, seen))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert seen.get() == frozen.digest


def test_a_baseline_is_adopted_where_statistics_are_given_if_they_are_its_own(watch: Callable[..., DriftWatch]) -> None:
    one, two, three, frozen = watch(), watch(), watch(), FrozenStatistics.fit(rows(9, 100))
    one.freeze("image", frozen)
    one.observe("image", rows(1, ENOUGH))
    one.close()
    keeper = watch()  # takes the slot that is left, so that the others have slots of their own
    keeper.observe("image", rows(2, 1))
    two.freeze("image", frozen)
    assert two.status()["image"].state == "steady"
    three.freeze("image", FrozenStatistics.fit(rows(8, 100)))
    assert three.status()["image"].state == "learning"


def test_threads_lose_nothing(watch: Callable[..., DriftWatch]) -> None:
    watching = watch()
    threads = [
        threading.Thread(target=lambda n=n: [watching.observe("image", row) for row in rows(n, 200)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    status = watching.status()["image"]
    assert status.learned + status.samples == 800


def test_damaged_files_are_started_anew(root: Path, watch: Callable[..., DriftWatch]) -> None:
    (root / "drift").mkdir()
    (root / "drift" / "0.msgpack").write_bytes(b"nonsense")
    watching = watch()
    watching.observe("image", rows(1, 40))
    watching.close()
    assert [monitor.status()["image"].learned for monitor, _ in saved(root)] == [40]


def test_a_folder_that_cannot_be_written_costs_only_the_memory_of_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    watching = DriftWatch(tmp_path / "file", settings=SMALL)
    watching.observe("image", rows(1, ENOUGH + 32))
    assert watching.status()["image"].state == "steady"
    nowhere = DriftWatch(settings=SMALL)
    nowhere.observe("image", rows(1, ENOUGH))
    nowhere.close()


def test_given_statistics_stay_over_a_restart(watch: Callable[..., DriftWatch]) -> None:
    frozen = FrozenStatistics.fit(rows(9, 100))
    for _ in range(2):
        watching = watch()
        watching.freeze("image", frozen)
        watching.observe("image", rows(1, ENOUGH // 2))
        watching.close()
    assert watching.status() == {} or watching.status()["image"].statistics == frozen.digest
    (monitor, _) = next(saved(Path(str(watching._folder)).parent))
    assert monitor.status()["image"].state == "steady"


def test_the_command_line_shows_it(
    root: Path, watch: Callable[..., DriftWatch], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["drift", "status", "--root", str(root)]
    assert main([*words, "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out) == []
    assert main(words) == Exit.DONE
    assert "nothing watches" in " ".join(capsys.readouterr().out.split())
    watching = watch()
    watching.observe("text", rows(1, 40))
    watching.observe("image", rows(1, ENOUGH))
    watching.observe("image", rows(2, 32))
    watching.close()
    assert main([*words, "--json"]) == Exit.DONE
    image, text = json.loads(capsys.readouterr().out)
    assert (image["stream"], image["state"], image["samples"], image["alarms"]) == ("image", "steady", 32, [])
    assert 0 < image["divergence"] < image["threshold"]
    assert (text["state"], text["learned"], text["wanted"]) == ("learning", 40, ENOUGH)
    watching = watch()
    watching.observe("image", rows(3, 64, shift=3.0))
    watching.close()
    assert main([*words, "--json"]) == Exit.NO
    image = json.loads(capsys.readouterr().out)[0]
    assert image["state"] == "drifted"
    assert image["since"] == image["alarms"][0]["when"]
    assert main(words) == Exit.NO
    said = " ".join(capsys.readouterr().out.split())
    assert "drifted" in said
    assert "Latest alarms" in said
    assert "shorter than a day" in said
