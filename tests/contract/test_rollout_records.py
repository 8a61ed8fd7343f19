"""What every place for a rollout's state must do: whole records, compare-and-set, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmcache.lab import servers
from mmcache.model.clock import SystemClock
from mmcache.model.errors import AssetError, RolloutConflictError, RolloutError
from mmcache.rollout.board import Board
from mmcache.rollout.files import FileRecords
from mmcache.rollout.records import MemoryRecords, Records
from mmcache.rollout.state import first
from mmcache.settings import SharedSettings


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    try:
        with servers.server(tmp_path_factory.mktemp("valkey")) as started:
            yield started.port
    except AssetError as missing:
        pytest.skip(str(missing))


@pytest.fixture(params=["memory", "file", "server"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Records]:
    if request.param == "memory":
        yield MemoryRecords()
    elif request.param == "file":
        yield FileRecords(tmp_path)
    else:
        from mmcache.rollout.server import ServerRecords
        from mmcache.tiers.valkey.client import Client

        settings = SharedSettings(f"valkey://127.0.0.1:{request.getfixturevalue('port')}", timeout_seconds=30)
        client = Client(settings, clock=SystemClock())
        yield ServerRecords(client, f"{tmp_path.name}:")
        client.close()


def test_a_record_is_absent_then_there_then_replaced(records: Records) -> None:
    assert records.read("clip") is None
    assert records.names() == []
    assert records.swap("clip", None, b"one")
    assert not records.swap("clip", None, b"two")
    assert not records.swap("clip", b"other", b"two")
    assert records.read("clip") == b"one"
    assert records.swap("clip", b"one", b"two")
    assert records.read("clip") == b"two"


def test_names_are_those_of_rollouts(records: Records) -> None:
    for record in ("whisper", "clip", "clip.report"):
        assert records.swap(record, None, record.encode())
    assert records.names() == ["clip", "whisper"]
    assert records.read("clip.report") == b"clip.report"


def test_a_long_record_is_not_read_to_its_end(records: Records) -> None:
    records.swap("clip", None, b"x" * (1 << 20))
    found = records.read("clip")
    assert found is not None
    assert len(found) > 1 << 16


def test_of_many_writers_each_change_counts(records: Records) -> None:
    records.swap("n", None, b"0")

    def add() -> None:
        done = 0
        while done < 25:
            old = records.read("n")
            assert old is not None
            done += records.swap("n", old, b"%d" % (int(old) + 1), patience=60.0, durable=False)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert records.read("n") == b"100"


def test_the_board_on_it(records: Records) -> None:
    board = Board(records)
    with pytest.raises(RolloutError, match="there is no rollout clip here \\(there are: none\\)"):
        board.state("clip")
    records.swap("clip", None, first("v1", 0).encode())
    state = board.canary("clip", "v2", 5)
    assert board.state("clip") == state
    with pytest.raises(RolloutConflictError, match="somebody else changed clip first"):
        board.promote("clip", revision=state.revision - 1)
    assert board.promote("clip", revision=state.revision).stable == "v2"
    assert board.rollback("clip").stable == "v1"
    assert board.names() == ["clip"]


def test_of_a_promotion_and_a_rollback_at_once_one_counts(records: Records) -> None:
    records.swap("clip", None, first("v1", 0).encode())

    for _ in range(10):
        tried = Board(records).canary("clip", "v2", 5)
        gate = threading.Barrier(2)
        lost: list[RolloutError] = []

        def change(decide: str, gate: threading.Barrier = gate, lost: list[RolloutError] = lost,
                   revision: int = tried.revision) -> None:  # fmt: skip
            gate.wait()
            try:
                getattr(Board(records), decide)("clip", revision=revision)
            except RolloutConflictError as error:
                lost.append(error)

        threads = [threading.Thread(target=change, args=(decide,)) for decide in ("promote", "rollback")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(lost) == 1
        state = Board(records).state("clip")
        assert state.revision == tried.revision + 1
        if state.stable == "v2":
            assert Board(records).rollback("clip").stable == "v1"
