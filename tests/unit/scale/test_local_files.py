"""The folder of a local cluster: who may read it, what a crash or a stranger leaves there."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mmcache.model.errors import ScaleError, SettingsError
from mmcache.scale.binaries import Binary, binaries
from mmcache.scale.local import Handle, default_folder, processes
from mmcache.scale.local.config import config
from mmcache.scale.local.files import EVENT_BYTES, Event, Files, MemberFile, Wanted, write
from mmcache.scale.local.handle import changed
from mmcache.scale.local.locks import held_by_us, holder, is_held, taken
from mmcache.scale.local.ports import free_port, require_ports
from mmcache.scale.local.versions import can_follow, find, is_meant
from mmcache.scale.spec import ClusterSpec


def server(name: str, *version: int) -> Binary:
    major, minor, patch = (*version, 0, 0)[:3]
    return Binary(name, (major, minor, patch), Path("/nowhere/x-server"), "none", tls=False)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path / "cluster")
    made.make()
    return made


def test_nobody_else_reads_anything(files: Files) -> None:
    write(files.spec, Wanted(ClusterSpec()))
    files.append(Event(1.0, "Steady", "it is"))
    assert mode(files.folder) == mode(files.members) == 0o700
    assert {mode(path) for path in files.folder.iterdir() if path.is_file()} == {0o600}
    assert len(files.password) >= 32


def test_a_password_stays_once_made(files: Files) -> None:
    first = files.password
    files.make()
    assert files.password == first


def test_what_is_wanted_comes_back_as_it_was(files: Files) -> None:
    wanted = Wanted(ClusterSpec(4, 9, 2, 1.5, 1 << 30, "valkey 9", True), 7, 9001)
    write(files.spec, wanted)
    assert files.wanted() == wanted


@pytest.mark.parametrize(
    "damage", [b"", b"{", b'{"spec": {"min_shards": 1}}', b"\xff\xfe", b"[]", b'{"spec": {}, "first_port": -5}']
)
def test_a_damaged_spec_is_named(files: Files, damage: bytes) -> None:
    files.spec.write_bytes(damage)
    with pytest.raises(ScaleError, match=r"spec\.json"):
        files.wanted()


def test_a_damaged_status_is_as_none(files: Files) -> None:
    files.status.write_bytes(b'{"at": 1, "pi')
    assert files.told() is None
    assert files.baseline() is None


def test_strangers_among_the_members_are_left_out(files: Files) -> None:
    for name in ("10-0", "2-1", "2-0", "old", "1-x", "1-2-3", "²-0"):
        (files.members / name).mkdir()
    assert files.member_names() == ["2-0", "2-1", "10-0"]


def test_the_log_of_events_stays_small_and_keeps_the_newest(files: Files) -> None:
    for number in range(2000):
        files.append(Event(float(number), "Step", "x" * 100))
    assert files.events.stat().st_size <= EVENT_BYTES
    assert [event.at for event in files.last_events(3)] == [1997.0, 1998.0, 1999.0]


def test_an_event_that_was_cut_off_is_left_out(files: Files) -> None:
    files.append(Event(1.0, "One", "whole"))
    with files.events.open("ab") as log:
        log.write(b'{"at":2.0,"reas')
    assert [event.reason for event in files.last_events(5)] == ["One"]


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    script = (
        "import sys, pathlib, time\nfrom mmcache.scale.local.locks import taken\n"
        "held = taken(pathlib.Path(sys.argv[1]))\nprint('held', flush=True)\ntime.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        assert taken(path) is None
        assert holder(path) == child.pid
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
    assert not is_held(path)
    assert holder(path) is None
    descriptor = taken(path)
    assert descriptor is not None
    assert holder(path) == os.getpid()
    os.close(descriptor)


def test_a_lock_whose_file_was_removed_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_by_us(path, 1.0, "another"):
        path.unlink()
        second = taken(path)
        assert second is not None
        os.close(second)


def test_who_waits_for_a_lock_is_told_whose_it_is(tmp_path: Path) -> None:
    first, second = held_by_us(tmp_path / "lock", 1.0, "another"), held_by_us(tmp_path / "lock", 0.0, "the second")
    with first, pytest.raises(ScaleError, match="the second is at work"), second:
        pass


def test_a_stranger_is_not_taken_for_a_server(tmp_path: Path) -> None:
    """Neither one that works elsewhere, nor another program that works in the very folder."""
    here, elsewhere = tmp_path / "members" / "0-0", tmp_path / "other"
    here.mkdir(parents=True)
    elsewhere.mkdir()
    strangers = [subprocess.Popen(["sleep", "600"], cwd=cwd) for cwd in (here, elsewhere)]
    try:
        for stranger in strangers:
            assert not processes.send(stranger.pid, signal.SIGKILL, lambda pid: processes.works_in(pid, here))
            assert stranger.poll() is None
        assert processes.below(here.parent) == {}
        assert processes.below(here.parent, {Path("/bin/sleep").resolve().name, "sleep"}) == {"0-0": [strangers[0].pid]}
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()
    assert not processes.send(strangers[0].pid, signal.SIGKILL, lambda _: True)


def test_ports_that_are_taken_are_passed_over() -> None:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        bus = port if port <= 55_535 else port - 10_000
        assert free_port(bus, ()) != port
    assert free_port(30_000, range(30_000, 30_005)) >= 30_005
    with pytest.raises(ScaleError, match="--port"):
        free_port(55_536, ())
    with pytest.raises(ScaleError, match="--port"):
        require_ports(55_534, 3)


@pytest.mark.parametrize(
    ("new", "old", "reads"),
    [
        (server("valkey", 9, 1), server("redis", 7, 0), True),
        (server("valkey", 9, 1), server("redis", 6, 2), True),
        (server("valkey", 9, 1), server("valkey", 8, 1), True),
        (server("valkey", 8, 1), server("valkey", 9, 1), False),
        (server("redis", 7, 0), server("valkey", 9, 1), False),
        (server("redis", 6, 2), server("redis", 7, 0), False),
        (server("valkey", 9, 1), server("redis", 8, 2), False),
        (server("redis", 8, 2), server("redis", 7, 0), True),
    ],
    ids=str,
)
def test_a_server_reads_what_older_ones_of_its_kind_wrote(new: Binary, old: Binary, reads: bool) -> None:
    assert can_follow(new, old) is reads


@pytest.mark.parametrize(
    "version",
    [
        "memcached 1.6",
        "valkey nine",
        "redis 1.0",
        "/bin/true",
        "/nowhere/redis-server",
        "~nobody-is-called-so/x",
        "/\0",
    ],
    ids=repr,
)
def test_what_is_not_here_is_said_so(version: str) -> None:
    with pytest.raises(ScaleError, match=r"here|like|is no Valkey"):
        find(version)


def test_a_server_that_is_not_here_any_more_is_known_by_what_was_noted() -> None:
    told = "valkey 9.1.2", "/opt/valkey-server"
    assert all(is_meant(version, *told) for version in ("valkey", "Valkey 9", "valkey 9.1", "valkey-9.1.2", told[1]))
    assert not any(
        is_meant(version, *told) for version in ("redis", "valkey 9.2", "valkey 8", "/opt/other", "nonsense")
    )
    assert not is_meant("valkey", "", "")


def test_a_password_in_the_file_of_a_server_stays_one_word() -> None:
    text = config(server("valkey", 9, 1), 7001, 1 << 26, 'p"w\\', 2000)
    assert 'requirepass "p\\"w\\\\"' in text
    assert "bind 127.0.0.1\n" in text
    assert "cluster-allow-replica-migration no" in text
    assert "cluster-allow-replica-migration" not in config(server("redis", 6, 2), 7001, 1 << 26, "p", 2000)


def test_shards_that_are_asked_for_move_the_bounds() -> None:
    fixed, grows = ClusterSpec(3, 3), ClusterSpec(3, 6)

    def bounds(spec: ClusterSpec, **change: int) -> tuple[int, int]:
        found = changed(spec, change)
        return found.min_shards, found.max_shards

    assert bounds(fixed, min_shards=5) == (5, 5)
    assert bounds(ClusterSpec(5, 5), min_shards=3) == (3, 3)
    assert bounds(grows, min_shards=5) == (5, 6)
    assert bounds(grows, min_shards=8) == (8, 8)
    assert bounds(ClusterSpec(5, 6), max_shards=4) == (4, 4)
    assert bounds(fixed, min_shards=4, max_shards=7) == (4, 7)
    assert changed(grows, {"burst": {"factor": 3.0}}).burst.factor == 3.0
    with pytest.raises(SettingsError, match="minShards"):
        changed(fixed, {"min_shards": 2})
    assert changed(fixed, {"version": "./valkey-server"}).version == str(Path("valkey-server").absolute())


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "a b", "x" * 80])
def test_a_name_is_no_path(name: str) -> None:
    with pytest.raises(ScaleError, match="name"):
        default_folder(name)


def test_who_has_no_home_is_told_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScaleError, match="nobody-is-called-so"):
        Handle(Path("~nobody-is-called-so/x"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(ScaleError, match="--folder"):
        default_folder()


def test_a_folder_of_other_things_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ScaleError, match=r"thesis\.tex"):
        Handle(tmp_path).up({})
    with pytest.raises(ScaleError, match="no cluster"):
        Handle(tmp_path).down()
    assert mode(tmp_path) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("name", ["members/2024-1", "spec.json", "password", "members/0-0"])
def test_a_folder_that_only_looks_like_a_clusters_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    theirs = tmp_path / name / "letter" if "/" in name else tmp_path / name
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_text('{"openapi": "3.1.0"}')
    with pytest.raises(ScaleError, match="no cluster"):
        Handle(tmp_path).down()
    if name != "password":
        with pytest.raises(ScaleError, match="other things"):
            Handle(tmp_path).up({})
    assert theirs.read_text() == '{"openapi": "3.1.0"}'


def test_what_a_killed_command_left_is_no_stranger_and_goes_with_the_cluster(files: Files) -> None:
    for name in (".password.123", ".spec.json.4", ".events.jsonl.77"):
        (files.folder / name).touch()
    Handle(files.folder).up({}, 30_000, start=False)
    Handle(files.folder).down()
    assert not files.folder.exists()


def test_a_damaged_cluster_is_ended_and_what_is_not_its_own_stays(files: Files) -> None:
    Handle(files.folder).up({}, 30_000, start=False)
    files.spec.write_bytes(b"{")
    (files.members / "notes").write_text("mine")
    (files.folder / "notes").write_text("mine")
    Handle(files.folder).down()
    assert sorted(str(path.relative_to(files.folder)) for path in files.folder.rglob("*")) == [
        "members", "members/notes", "notes",
    ]  # fmt: skip


def test_no_other_users_folder_is_used_or_ended(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle(files.folder)
    handle.up({}, 30_000, start=False)
    monkeypatch.setattr(os, "geteuid", lambda: 123_456)
    for command in (lambda: handle.up({}), lambda: handle.change({"replicas": 2}), handle.down):
        with pytest.raises(ScaleError, match="another user"):
            command()
    assert files.spec.exists()


def test_servers_without_a_password_are_not_started(files: Files) -> None:
    files.password_file.write_text("\n")
    with pytest.raises(ScaleError, match="is empty"):
        _ = files.password


@pytest.mark.parametrize("name", [b"a\nb", b"\xff"], ids=repr)
def test_a_folder_that_cannot_be_told_of_is_refused(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(ScaleError, match="--folder"):
        Handle(tmp_path / os.fsdecode(name)).up({})


def test_who_only_looks_at_a_lock_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert taken(path) is None
        ends = threading.Timer(0.05, lambda: fcntl.flock(looking, fcntl.LOCK_UN))
        ends.start()
        descriptor = taken(path, 60.0)
        ends.join()
    assert descriptor is not None
    os.close(descriptor)


def test_the_address_names_the_first_places_and_no_password(files: Files) -> None:
    for shard in range(4):
        for place in range(2):
            name = f"{shard}-{place}"
            (files.members / name).mkdir()
            write(files.members / name / "member.json", MemberFile(shard, place, 7000 + 10 * shard + place))
    handle = Handle(files.folder)
    assert handle.url == "valkey://127.0.0.1:7000,127.0.0.1:7010,127.0.0.1:7020?cluster=true"
    assert handle.supervisor is None


def test_a_server_on_path_comes_last_and_not_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "valkey-server"
    program.write_text("#!/bin/sh\necho 'Valkey server v=7.2.99 sha=0:0'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    before, found = binaries(), binaries.__wrapped__()
    assert [str(one) for one in found] == [*map(str, before), "valkey 7.2.99"]
    assert found[-1].path == program
    program.write_text("#!/bin/sh\necho nonsense\n")
    assert list(map(str, binaries.__wrapped__())) == list(map(str, before))
