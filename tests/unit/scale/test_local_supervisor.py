"""The supervisor with a controller that is made up: it hears while a turn lasts, and no turn ends it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.patience import until

from mmcache.model.errors import ScaleError
from mmcache.scale.local import Handle
from mmcache.scale.local import supervisor as module
from mmcache.scale.local.files import Files, Told, Wanted, write
from mmcache.scale.local.locks import taken
from mmcache.scale.local.supervisor import TURN_SECONDS, Supervisor, supervise
from mmcache.scale.spec import ClusterSpec
from mmcache.scale.status import Condition, Happened, Phase, Status

STATUS = Status(
    phase=Phase.STEADY, shards=3, wanted=3, nodes=6, ready_nodes=6, qps=1.0, baseline_qps=None, hit_ratio=None, keys=0,
    used_bytes=0, max_bytes=0, reason="Steady", message="all is well",
)  # fmt: skip


class Turns:
    """Does what the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.specs: list[ClusterSpec] = []
        self.do: Callable[[Callable[[], bool]], Status] = lambda cancelled: STATUS

    def turn(self, spec: ClusterSpec, at: float, cancelled: Callable[[], bool] = lambda: False) -> Status:
        self.specs.append(spec)
        return self.do(cancelled)

    def saved(self) -> object:
        return {"turns": len(self.specs)}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path / "cluster")
    made.make()
    write(made.spec, Wanted(ClusterSpec()))
    return made


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_SECONDS", 0.05)
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.05)


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def running(files: Files, turns: Turns) -> Iterator[Supervisor]:
    supervisor = Supervisor(files.folder, turns)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        thread.join()


def told(files: Files) -> Told:
    until(lambda: files.told() is not None, "something is told")
    found = files.told()
    assert found is not None
    return found


def test_it_tells_what_a_turn_found(files: Files, running: Supervisor) -> None:
    until(lambda: told(files).generation == 1, "a turn is told of")
    assert told(files).status == STATUS
    assert told(files).trouble == ""


def test_no_turn_ends_it(files: Files, turns: Turns, running: Supervisor) -> None:
    def fails(cancelled: Callable[[], bool]) -> Status:
        raise RuntimeError(f"a bug that shows {files.password}")

    turns.do = fails
    until(lambda: "a bug" in told(files).trouble, "its failure is told")
    assert files.password not in files.status.read_text() + files.events.read_text()
    assert "***" in told(files).trouble
    turns.do = lambda cancelled: STATUS
    until(lambda: not told(files).trouble and told(files).status == STATUS, "it goes on")


def test_a_long_step_ends_when_something_else_is_wanted(files: Files, turns: Turns, running: Supervisor) -> None:
    ended = threading.Event()

    def long(cancelled: Callable[[], bool]) -> Status:
        until(cancelled, "it is cancelled")
        ended.set()
        turns.do = lambda cancelled: STATUS
        return STATUS

    turns.do = long
    seen = len(turns.specs)
    until(lambda: len(turns.specs) > seen, "the step has begun")
    write(files.spec, Wanted(ClusterSpec(4, 4), 2))
    assert ended.wait(60)
    until(lambda: told(files).generation == 2, "a turn goes by the new spec")
    assert turns.specs[-1].min_shards == 4


def test_a_damaged_spec_leaves_what_was_wanted(files: Files, turns: Turns, running: Supervisor) -> None:
    until(lambda: told(files).generation == 1, "a turn was made")
    files.spec.write_bytes(b'{"spec": {"min_shards": 2}}')
    until(lambda: "spec.json" in told(files).trouble, "it says so")
    assert turns.specs[-1] == ClusterSpec()
    assert [event.reason for event in files.last_events(9)].count("SpecIgnored") == 1
    write(files.spec, Wanted(ClusterSpec(), 3))
    until(lambda: told(files).generation == 3 and not told(files).trouble, "it reads it again")


def test_nothing_that_tending_meets_ends_it(
    files: Files, turns: Turns, running: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise OverflowError(f"a number that nobody has; {files.password}")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(running.platform, "tend", fails)
        until(lambda: "OverflowError" in told(files).trouble, "it is told")
    assert files.password not in files.status.read_text() + files.events.read_text()
    until(lambda: not told(files).trouble, "it goes on")


def test_it_does_not_run_on_without_turns(files: Files, turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor(files.folder, turns)

    monkeypatch.setattr(supervisor, "_turn_on", lambda: None)
    with pytest.raises(ScaleError, match="no more turns"):
        supervisor.run()


def test_a_turn_that_changes_nothing_is_not_hurried(files: Files, turns: Turns) -> None:
    supervisor = Supervisor(files.folder, turns)
    pauses = []
    for step in range(30):
        turns.do = lambda cancelled: replace(STATUS, phase=Phase.CREATING, message="starts")
        if step == 20:
            turns.do = lambda cancelled: replace(STATUS, phase=Phase.CREATING, message="meets")
        supervisor._turn(supervisor._wanted)
        pauses.append(supervisor._pause)
    assert pauses[0] == pauses[20] == min(pauses)
    assert pauses[19] > 5 * pauses[0]
    assert max(pauses) < TURN_SECONDS
    turns.do = lambda cancelled: STATUS
    supervisor._turn(supervisor._wanted)
    assert supervisor._pause == module.TURN_SECONDS


def test_what_happened_is_told_once(files: Files, turns: Turns, running: Supervisor) -> None:
    moves = tuple(Happened("MoveSlots", f"MoveSlots: batch {number}") for number in range(5))
    turns.do = lambda cancelled: replace(STATUS, happened=(*moves, Happened("Steady", "it is", warning=True)))
    until(lambda: len(files.last_events(99)) >= 2, "it is told")
    first, second = files.last_events(99)[:2]
    assert (first.reason, first.message) == ("MoveSlots", "batch 0")
    assert (second.reason, second.warning) == ("Steady", True)


def test_what_is_usual_is_kept_at_the_end(files: Files, turns: Turns) -> None:
    supervisor = Supervisor(files.folder, turns)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        until(lambda: turns.specs, "a turn was made")
    finally:
        supervisor.stop()
        thread.join()
    assert files.baseline() == {"turns": len(turns.specs)}


def test_it_ends_with_its_folder(files: Files, turns: Turns, running: Supervisor) -> None:
    import shutil

    until(lambda: turns.specs, "a turn was made")
    shutil.rmtree(files.folder)
    until(lambda: running._over.is_set(), "it ends")


def test_it_leaves_to_another_what_is_no_more_its_own(files: Files, turns: Turns) -> None:
    ours = threading.Event()
    ours.set()
    supervisor = Supervisor(files.folder, turns, still_ours=ours.is_set)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        until(lambda: turns.specs, "a turn was made")
        files.supervisor_lock.touch()  # another's
        ours.clear()
        thread.join(60)
        assert not thread.is_alive()
        assert files.baseline() is None
    finally:
        supervisor.stop()
        thread.join()


def test_a_folder_whose_lock_is_removed_first_is_one_that_is_removed(files: Files, turns: Turns) -> None:
    """What is told of it last decides, however long the rest of it takes."""
    ours, ended, looked = threading.Event(), list[str](), threading.Event()
    ours.set()
    supervisor = Supervisor(files.folder, turns, still_ours=ours.is_set)
    supervisor.platform.end_all = lambda patience=0.0: ended.append("all")  # type: ignore[method-assign]
    removed = supervisor._removed

    def looks() -> bool:
        looked.set()
        return removed()

    supervisor._removed = looks  # type: ignore[method-assign]
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        until(lambda: turns.specs, "a turn was made")
        ours.clear()
        assert looked.wait(60)
        assert not ended
        shutil.rmtree(files.folder)
        thread.join(60)
        assert ended == ["all"]
    finally:
        supervisor.stop()
        thread.join()


def test_there_is_one_a_folder(files: Files) -> None:
    descriptor = taken(files.supervisor_lock)
    assert descriptor is not None
    with open(descriptor, "rb", closefd=True):
        assert not supervise(files.folder)


def test_a_folder_without_a_spec_has_none(tmp_path: Path) -> None:
    tmp_path.joinpath("password").write_text("p")
    with pytest.raises(ScaleError, match=r"no .*spec\.json"):
        supervise(tmp_path)


def test_a_step_that_fails_is_a_trouble() -> None:
    degraded = Condition("Degraded", True, "Failed", "no valkey 99 here")
    assert Told(0.0, 1, 1, replace(STATUS, conditions=(degraded,)), "0-1: it has ended").failing == (
        "0-1: it has ended; no valkey 99 here"
    )
    assert Told(0.0, 1, 1, replace(STATUS, conditions=(replace(degraded, reason="MembersDown"),))).failing == ""
    assert Told(0.0, 1, 1).failing == ""


def settled(files: Files, generation: int = 1, looks: int = 3) -> Told | None:
    left = iter([True] * looks)
    return Handle(files.folder).settled(generation, lambda _: None, lambda _: next(left, False))


def test_waiting_ends_with_what_is_wanted_or_with_a_refusal(files: Files) -> None:
    descriptor = taken(files.supervisor_lock)
    assert descriptor is not None
    with open(descriptor, "rb", closefd=True):
        write(files.status, Told(0.0, 1, 1, replace(STATUS, shards=2)))
        assert settled(files) is None
        write(files.status, Told(0.0, 1, 1, STATUS))
        assert settled(files, generation=2) is None
        found = settled(files)
        assert found is not None
        assert found.status == STATUS
        blocked = replace(STATUS, phase=Phase.BLOCKED, message="the blocks would not fit")
        write(files.status, Told(0.0, 1, 1, blocked))
        found = settled(files)
        assert found is not None
        assert found.status == blocked
    write(files.status, Told(0.0, 1, 1, replace(STATUS, shards=2)))
    with pytest.raises(ScaleError, match="has ended"):
        settled(files)
