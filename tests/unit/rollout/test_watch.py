"""One process's view of the state: lost, damaged, unreachable, older than what it knows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mmcache.model.errors import TierError
from mmcache.rollout.board import Board
from mmcache.rollout.files import FileRecords
from mmcache.rollout.records import MemoryRecords, Records
from mmcache.rollout.state import decode, first
from mmcache.rollout.watch import Watch
from mmcache.testing.clock import FakeClock


class Server(MemoryRecords):
    """Records that can be gone, and forget."""

    look_every, waits = 1.0, True

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.reads = 0

    def read(self, record: str) -> bytes | None:
        self.reads += 1
        if self.down:
            raise TierError(f"connection refused, for the {self.reads}th time")
        return super().read(record)

    def swap(self, record: str, old: bytes | None, new: bytes, *, patience: float = 1.0, durable: bool = True) -> bool:
        if self.down:
            raise TierError("connection refused")
        return super().swap(record, old, new)

    def set(self, record: str, raw: bytes | None) -> None:
        """What the server suddenly holds."""
        self._held.pop(record, None)
        if raw is not None:
            self._held[record] = raw


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def said() -> list[str]:
    return []


def watching(records: Records, clock: FakeClock, said: list[str], spare: Records | None = None) -> Watch:
    return Watch("clip", "v1", records, clock=clock, say=said.append, spare=spare)


def test_the_first_program_makes_the_record_and_others_follow(
    server: Server, clock: FakeClock, said: list[str]
) -> None:
    one = watching(server, clock, said)
    assert one.state().stable == "v1"
    other = Watch("clip", "v0", server, clock=clock, say=said.append)
    assert other.state().stable == "v1"  # whatever it lists first
    Board(server).canary("clip", "v2", 5)
    assert one.state().candidate == ""  # not asked within a second
    clock.advance(1.0)
    assert one.state().candidate == other.state().candidate == "v2"
    assert said == []


def test_the_state_is_read_at_most_once_a_second(server: Server, clock: FakeClock, said: list[str]) -> None:
    watch = watching(server, clock, said)
    for _ in range(30):
        watch.state()
        clock.advance(0.1)
    assert server.reads == 3


def test_while_the_server_is_down_the_last_known_state_goes_on(
    server: Server, clock: FakeClock, said: list[str]
) -> None:
    watch = watching(server, clock, said)
    watch.state()
    Board(server).canary("clip", "v2", 5)
    clock.advance(1.0)
    watch.state()
    server.down = True
    for _ in range(5):
        clock.advance(1.0)
        assert watch.state().candidate == "v2"
    assert len(said) == 1
    assert "the last known one goes on" in said[0]
    server.down = False
    Board(server).promote("clip")
    clock.advance(1.0)
    assert watch.state().stable == "v2"
    server.down = True
    clock.advance(1.0)
    watch.state()
    assert len(said) == 2  # another outage


def test_a_program_that_starts_meanwhile_has_what_the_folder_remembers(
    server: Server, clock: FakeClock, said: list[str], tmp_path: Path
) -> None:
    watch = watching(server, clock, said, FileRecords(tmp_path))
    watch.state()
    Board(server).canary("clip", "v2", 5)
    Board(server).promote("clip")
    clock.advance(1.0)
    assert watch.state().stable == "v2"
    server.down = True
    assert watching(server, clock, said, FileRecords(tmp_path)).state().stable == "v2"
    assert watching(server, clock, said).state().stable == "v1"  # nobody knows better


def test_what_the_server_lost_while_no_program_ran_is_put_back_from_the_folder(
    server: Server, clock: FakeClock, said: list[str], tmp_path: Path
) -> None:
    watch = watching(server, clock, said, FileRecords(tmp_path))
    watch.state()
    Board(server).canary("clip", "v2", 5)
    known = Board(server).promote("clip")
    clock.advance(1.0)
    watch.state()
    server.set("clip", None)
    assert watching(server, clock, said, FileRecords(tmp_path)).state() == known == Board(server).state("clip")
    server.set("clip", first("v1", 0.0).encode())  # another host's program came first
    assert watching(server, clock, said, FileRecords(tmp_path)).state() == known == Board(server).state("clip")
    later = Board(server).rollback("clip")
    assert watching(server, clock, said, FileRecords(tmp_path)).state() == later


def test_a_record_that_is_lost_is_put_back(server: Server, clock: FakeClock, said: list[str]) -> None:
    watch = watching(server, clock, said)
    watch.state()
    known = Board(server).canary("clip", "v2", 5)
    clock.advance(1.0)
    watch.state()
    server.set("clip", None)
    clock.advance(1.0)
    assert watch.state() == known == Board(server).state("clip")
    assert said == ["its state was lost and is put back"]


def test_a_change_that_a_failover_lost_is_put_back(server: Server, clock: FakeClock, said: list[str]) -> None:
    watch = watching(server, clock, said)
    watch.state()
    Board(server).canary("clip", "v2", 5)
    before = server.read("clip")
    known = Board(server).promote("clip")
    clock.advance(1.0)
    watch.state()
    server.set("clip", before)
    clock.advance(1.0)
    assert watch.state() == known == Board(server).state("clip")
    assert said == ["its last change was lost and is put back"]


def test_another_record_of_the_name_counts(server: Server, clock: FakeClock, said: list[str]) -> None:
    watch = watching(server, clock, said)
    watch.state()
    Board(server).canary("clip", "v2", 5)
    clock.advance(1.0)
    watch.state()
    another = first("v9", 0).canary("v10", 5, 0)
    server.set("clip", another.encode())
    clock.advance(1.0)
    assert watch.state() == another


def test_who_comes_when_the_record_was_lost_decides_nothing(server: Server, clock: FakeClock, said: list[str]) -> None:
    watch = watching(server, clock, said)
    watch.state()
    Board(server).canary("clip", "v2", 5)
    known = Board(server).promote("clip")
    clock.advance(1.0)
    watch.state()
    server.set("clip", None)
    late = watching(server, clock, said)
    assert late.state().stable == "v1"  # it is the first to look, and makes a new record
    clock.advance(1.0)
    assert watch.state() == known == Board(server).state("clip")
    assert late.state() == known


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff" * 99, b'{"stable": 1}', b"x" * (1 << 17)])
def test_a_damaged_state_is_set_aside_and_stable_goes_on(
    clock: FakeClock, said: list[str], tmp_path: Path, raw: bytes
) -> None:
    records = FileRecords(tmp_path)
    watch = watching(records, clock, said)
    watch.state()
    Board(records).canary("clip", "v2", 5)
    known = Board(records).promote("clip")
    clock.advance(1.0)
    watch.state()
    (tmp_path / "rollouts" / "clip.json").write_bytes(raw)
    clock.advance(1.0)
    assert watch.state() == known == Board(records).state("clip")
    assert "damaged" in said[0]
    assert "v2 goes on as stable" in said[0]
    kept = records.read("clip.damaged")
    assert kept is not None
    assert kept == raw[: len(kept)]
    assert records.names() == ["clip"]
    (tmp_path / "rollouts" / "clip.json").write_bytes(raw)
    assert watching(records, clock, said).state().stable == "v1"  # nobody was there who knew better


def test_a_state_of_a_newer_version_is_left_alone(server: Server, clock: FakeClock, said: list[str]) -> None:
    watch = watching(server, clock, said)
    watch.state()
    server.set("clip", b'{"format": 2}')
    clock.advance(1.0)
    assert watch.state().stable == "v1"
    assert server.read("clip") == b'{"format": 2}'
    assert "newer mmcache" in said[0]


def test_a_hold_that_could_not_be_told_is_told_later(server: Server, clock: FakeClock, said: list[str]) -> None:
    watch = watching(server, clock, said)
    watch.state()
    Board(server).canary("clip", "v2", 5)
    clock.advance(1.0)
    state = watch.state()
    server.down = True
    watch.hold(state, "it failed 5 times in a row")
    assert watch.off(watch.state())
    server.down = False
    assert Board(server).state("clip").trying
    clock.advance(1.0)
    assert watch.state().hold == "it failed 5 times in a row" == Board(server).state("clip").hold
    Board(server).canary("clip", "v2", 5)
    clock.advance(1.0)
    resumed = watch.state()
    assert resumed.trying
    assert not watch.off(resumed)


def test_a_folder_that_cannot_be_written_does_not_stop_anybody(clock: FakeClock, said: list[str]) -> None:
    watch = watching(FileRecords(Path("/proc/nothing")), clock, said)
    assert watch.state().stable == "v1"
    assert len(said) == 1


def test_a_read_that_was_overtaken_changes_nothing(server: Server, clock: FakeClock, said: list[str]) -> None:
    watch = watching(server, clock, said)
    watch.state()
    old = server.read("clip")
    known = Board(server).canary("clip", "v2", 5)
    watch.look()
    watch._take(old)  # another thread's, begun before
    assert watch.state() == known
    raw = server.read("clip")
    assert raw is not None
    assert decode(raw) == known


def test_whoever_begins_after_the_interval_sees_the_change_although_another_is_still_reading(
    clock: FakeClock, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = FileRecords(tmp_path)
    watch = watching(records, clock, said)
    watch.state()
    clock.advance(0.05)
    read = records.read

    def slow(record: str) -> bytes | None:
        """Another thread's read, which is stopped after it has the old record: meanwhile, everything happens."""
        monkeypatch.setattr(records, "read", read)
        old = read(record)
        Board(FileRecords(tmp_path)).canary("clip", "v2", 5)
        assert watch.state().candidate == "v2"
        return old

    monkeypatch.setattr(records, "read", slow)
    assert watch.state().candidate == "v2"
    assert said == []


def test_a_look_that_waits_for_a_server_is_one_callers(server: Server, clock: FakeClock, said: list[str]) -> None:
    watch = watching(server, clock, said)
    watch.state()
    clock.advance(1.0)
    read, reads = server.read, server.reads

    def waiting(record: str) -> bytes | None:
        watch.state()  # another thread's call
        return read(record)

    server.read = waiting  # type: ignore[method-assign]
    watch.state()
    assert server.reads == reads + 1


def test_after_a_rest_nobody_goes_on_with_what_is_that_old(server: Server, clock: FakeClock, said: list[str]) -> None:
    watch = watching(server, clock, said)
    watch.state()
    Board(server).canary("clip", "v2", 5)
    clock.advance(600.0)
    read = server.read

    def waiting(record: str) -> bytes | None:
        server.read = read  # type: ignore[method-assign]
        assert watch.state().candidate == "v2"  # another thread's call
        return read(record)

    server.read = waiting  # type: ignore[method-assign]
    assert watch.state().candidate == "v2"


def test_a_pipe_in_the_place_of_a_record_keeps_nobody_waiting(
    clock: FakeClock, said: list[str], tmp_path: Path
) -> None:
    records = FileRecords(tmp_path)
    watching(records, clock, said).state()
    (tmp_path / "rollouts" / "clip.json").unlink()
    os.mkfifo(tmp_path / "rollouts" / "clip.json")
    assert watching(records, clock, said).state().stable == "v1"
    assert "damaged" in said[0]
    assert Board(records).state("clip").stable == "v1"
