"""`mmcache bench load` on real clusters: what it measures, what it notices, how it ends; and a cluster that grows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.patience import PATIENCE, until

from mmcache.cli import main
from mmcache.cli.output import Exit
from mmcache.lab.load.crowd import Crowd, Outcome
from mmcache.lab.load.job import PREFIX, Job
from mmcache.lab.scale.reshard import reshard
from mmcache.lab.scale.rows import resharding
from mmcache.lab.scale.trial import Extent
from mmcache.lab.servers import Cluster, cluster
from mmcache.lab.servers.process import free_row
from mmcache.lab.table import silent
from mmcache.model.errors import AssetError
from mmcache.scale.local import Handle
from mmcache.scale.status import Phase
from mmcache.scale.talk import ask

SECRET = "only-for-this-test"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("servers"), 3, 0, password=SECRET) as made:
        yield made


def job_for(servers: Cluster, **changes: object) -> Job:
    wanted: dict[str, object] = {
        "qps": 400.0, "seconds": 1.0, "keys": 200, "sizes": {256: 0.9, 1_200_000: 0.1}, "reads": 0.7, "clean": True,
        "timeout_seconds": PATIENCE,
    }  # fmt: skip
    return Job(servers.url, password=SECRET, **(wanted | changes))  # type: ignore[arg-type]


def finished(crowd: Crowd) -> Outcome:
    until(lambda: not crowd.filling(0.1), "filled")
    crowd.go()
    until(lambda: not crowd.running(0.1), "ended")
    return crowd.outcome()


def test_a_load_counts_and_checks_all_that_it_asks(servers: Cluster) -> None:
    with Crowd(job_for(servers, processes=2, lanes=2)) as crowd:
        found = finished(crowd)
    counts, checked = found.counts, found.checked
    assert counts.requests + found.unasked > 200
    assert counts.hits == counts.reads > 0
    assert counts.stored == counts.writes > 0
    assert (counts.wrong, counts.stale, counts.lost, found.lost, counts.failed) == (0, 0, 0, [], 0)
    assert checked is not None
    assert (checked.keys, checked.right) == (200, 200)
    assert sum(counts.took.values()) == counts.reads
    assert sum(counts.took_writes.values()) == counts.writes
    assert not [
        name for node in servers.nodes for name in node.server.ask("KEYS", f"{PREFIX}*") if b"clock" not in name
    ]


def test_two_loads_at_once_do_not_take_each_other_for_wrong(servers: Cluster) -> None:
    small = job_for(servers, keys=20, sizes={64: 1.0}, reads=0.5, lanes=1)
    with Crowd(msgspec.structs.replace(small, run=1)) as one, Crowd(msgspec.structs.replace(small, run=2)) as other:
        until(lambda: not (one.filling(0.1) or other.filling(0.1)), "filled")
        one.go()
        other.go()
        until(lambda: not (one.running(0.1) or other.running(0.1)), "ended")
        for found in (one.outcome(), other.outcome()):
            assert (found.lost, found.counts.wrong) == ([], 0)
            assert found.checked is not None
            assert found.checked.right == 20


def test_what_is_gone_and_what_is_not_right_is_noticed(servers: Cluster) -> None:
    with Crowd(job_for(servers, qps=0.001, processes=1, lanes=1, clean=False, sizes={256: 1.0})) as crowd:
        until(lambda: not crowd.filling(0.1), "filled")
        heads = [
            (node, name)
            for node in servers.nodes
            for name in node.server.ask("KEYS", f"{PREFIX}*")
            if node.server.ask("STRLEN", name) > 300
        ]
        (_, right), (node, torn), (other, gone) = heads[0], heads[1], heads[2]
        assert right
        node.server.ask("SETRANGE", torn, node.server.ask("STRLEN", torn) - 1, b"\0\0")
        other.server.ask("DEL", gone)
        crowd.go()
        until(lambda: not crowd.running(0.1), "ended")
        checked = crowd.outcome().checked
    assert checked is not None
    assert (checked.keys, checked.right, checked.wrong, checked.lost) == (200, 198, 1, 1)
    for node in servers.nodes:
        node.server.ask("FLUSHALL")


def test_a_load_that_nobody_takes_says_why(servers: Cluster) -> None:
    job = msgspec.structs.replace(job_for(servers, keys=10, sizes={64: 1.0}), password="not-it", timeout_seconds=1.0)
    with pytest.raises(AssetError, match=r"nothing could be written: .*WRONGPASS"), Crowd(job) as crowd:
        until(lambda: not crowd.filling(0.1), "filled")


def test_the_command_prints_figures_and_no_secret(
    servers: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMCACHE_SHARED_PASSWORD", SECRET)
    words = ["bench", "load", "--to", servers.url, "--seconds", "1", "--qps", "200", "--keys", "50", "--processes", "1"]
    assert main([*words, "--timeout", str(PATIENCE), "--burst", "2@0.5", "--strict", "--json"]) == Exit.DONE
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["wrong"], found["lost"], found["failed"], found["hit_ratio"]) == (0, 0, 0, 1.0)
    assert found["asked_qps"] == pytest.approx(300, rel=0.05)
    assert SECRET not in shown.out + shown.err
    assert main([*words, "--shape", "burst"]) == Exit.FAILED
    assert main([*words, "--qps", "0"]) == Exit.USAGE


def test_an_interrupt_ends_it_with_the_summary(servers: Cluster) -> None:
    before = _reads(servers)
    words = ["--seconds", "3600", "--keys", "20", "--qps", "50", "--processes", "1", "--json"]
    process = _start("bench", "load", "--to", servers.url, *words, MMCACHE_SHARED_PASSWORD=SECRET)
    try:
        until(lambda: _reads(servers) > before, "read")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        _end(process)
    assert process.returncode == Exit.INTERRUPTED, err
    assert json.loads(out)["checked"] is None


@pytest.mark.slow
def test_a_newcomer_sees_the_cluster_grow_under_load_and_shrink_after(tmp_path: Path) -> None:
    """One command brings it up. A quiet user is there all the time, and finds all that it ever wrote at the end."""
    folder = tmp_path / "cluster"
    where = ["--folder", str(folder)]
    wishes = ["--shards", "3", "--max-shards", "5", "--replicas", "0", "--qps-threshold", "0.2", "--window", "3s",
              "--quiet", "6s", "--port", str(free_row(20))]  # fmt: skip
    handle = Handle(folder)
    try:
        assert main(["cluster", "up", *where, *wishes, "--json"]) == Exit.DONE
        quiet = Job(handle.url, 20.0, 3600.0, 500, {1024: 1.0}, handle.password, processes=1, lanes=1, refill=False,
                    timeout_seconds=PATIENCE)  # fmt: skip
        with Crowd(quiet) as crowd:
            until(lambda: not crowd.filling(0.1), "filled")
            crowd.go()
            load = _start("bench", "load", *where, "--qps", "1500", "--seconds", "3600", "--prefix", "busy:", "--json")
            try:
                until(lambda: _shards(handle) == 5, "grown to five shards")
                load.send_signal(signal.SIGINT)
                out, err = load.communicate(timeout=PATIENCE)
            finally:
                _end(load)
            found = json.loads(out)
            assert found["reads"] > 0, err
            assert (found["wrong"], found["lost"]) == (0, 0)
            until(lambda: _shards(handle) in (3, 4), "shrunk by one shard")
            until(lambda: _shards(handle) == 3, "shrunk to three shards")
            crowd.stop(check=True)
            until(lambda: not crowd.running(0.1), "ended")
            outcome = crowd.outcome()
        assert (outcome.lost, outcome.counts.wrong, outcome.counts.lost) == ([], 0, 0)
        assert outcome.checked is not None
        assert (outcome.checked.keys, outcome.checked.right) == (500, 500)
    finally:
        handle.down()
    assert not folder.exists() or not any(folder.iterdir())


@pytest.mark.slow
def test_a_trial_of_the_table_loses_nothing_though_a_primary_dies_midway(tmp_path: Path) -> None:
    """Writes that its replica did not have yet are told apart; anything else that is lost would be a fault."""
    extent = Extent(5_000_000, 200.0, 1.0, "2KiB", 64 << 20)
    trial = reshard("small", tmp_path / "cluster", "", extent, 0, silent, "primary")
    rows = {row.id: row for row in resharding(trial)}
    assert (trial.lost_before, trial.wrong) == (0, 0)
    assert rows["small/lost"].met
    assert rows["small/wrong"].met
    assert trial.killed is not None
    assert trial.killed.numbers
    assert trial.marks["killed"] <= trial.marks["served again"] <= trial.marks["out done"] <= trial.marks["in done"]
    assert trial.moved_bytes["out"] > 0


def _shards(handle: Handle) -> int | None:
    """When it is steady."""
    told = handle.files.told()
    if told is None or told.status is None or told.status.phase is not Phase.STEADY:
        return None
    return told.status.shards


def _start(*words: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mmcache.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | environment,
    )  # fmt: skip


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


def _reads(servers: Cluster) -> int:
    """Since the servers' start."""
    total = 0
    for node in servers.nodes:
        said = ask(node.port, "INFO", "stats", password=SECRET).decode()
        total += int(next(line for line in said.splitlines() if line.startswith("keyspace_hits:")).partition(":")[2])
    return total
