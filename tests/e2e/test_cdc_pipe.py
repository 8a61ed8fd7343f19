"""From a commit to three cache processes, through PostgreSQL, Debezium, a broker, `mmcache sync` and a cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from mmcache.lab.cdc import phases
from mmcache.lab.cdc.pipe import Pipe
from mmcache.lab.cdc.stages import missing

why = missing()
pytestmark = pytest.mark.skipif(why is not None, reason=why or "")

ROWS = 400
versions = count(1)


@pytest.fixture(scope="module")
def pipe() -> Iterator[Pipe]:
    with tempfile.TemporaryDirectory() as folder, Pipe(Path(folder), ROWS) as started:
        yield started


def test_a_changed_row_is_served_as_new_by_all_processes(pipe: Pipe) -> None:
    version = next(versions)
    pipe.each("warm", rows=[20])
    phase = phases.run(pipe, "one", [10], version, rate=1)
    assert phase.settled
    assert [list(seen) for seen in phase.seen] == [[10], [10], [10]]
    assert (phase.left, phase.wrong) == (0, 0)
    assert pipe.each("check", rows=[20], version=version) == 3 * [{"old": 1, "wrong": 0}]  # nobody changed that one


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage", ["postgres", "connector", "broker", "sync", "valkey", "valkey-emptied", "cache"]
)  # fmt: skip
def test_whoever_dies_all_processes_serve_all_rows_as_new_in_the_end(pipe: Pipe, stage: str) -> None:
    chaos = phases.stages(pipe)[stage]
    phase = phases.run(pipe, stage, range(1, ROWS + 1), next(versions), 50, chaos)
    assert phase.settled
    assert (phase.left, phase.wrong) == (0, 0)
    assert len(phase.commits) == ROWS
    assert all(len(seen) == len(phase.watched) for seen in phase.seen)
