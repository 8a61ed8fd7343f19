"""A process that switches a rollout is killed: at every line, and at any moment while others read."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mmcache.rollout import files
from mmcache.rollout.board import Board
from mmcache.rollout.files import FileRecords
from mmcache.rollout.state import decode, first

OLD, NEW = b"old" * 1000, b"new" * 2000


def killed_at(step: int, records: FileRecords) -> bool:
    """Replace OLD by NEW in a child that dies before the `step`-th line of the code that does it; whether it died."""
    child = os.fork()
    if child == 0:
        left = step

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename != files.__file__:
                return trace
            if event == "line":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        done = records.swap("clip", OLD, NEW)
        sys.settrace(None)
        os._exit(0 if done else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def test_killed_before_any_line_the_record_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    records = FileRecords(tmp_path)
    assert records.swap("clip", None, OLD)
    found, step = [], 0
    while True:
        died = killed_at(step, records)
        now = records.read("clip")
        assert now in (OLD, NEW)
        found.append(now)
        assert records.swap("clip", now, OLD)  # nobody is locked out, nothing is in the way
        if not died:
            break
        step += 1
    assert step > 15
    assert found[0] == OLD
    assert found[-1] == NEW
    assert found == sorted(found, reverse=True)  # old until one line, new from there on
    assert {path.name for path in (tmp_path / "rollouts").iterdir()} <= {"clip.json", ".lock", ".clip.json.draft"}


@pytest.mark.slow
def test_killed_at_any_moment_readers_see_whole_states_in_order(tmp_path: Path) -> None:
    records, draw = FileRecords(tmp_path), random.Random(7)
    records.swap("clip", None, first("v1", 0).encode())
    body = """
        import sys
        from pathlib import Path
        from mmcache.rollout.board import Board
        from mmcache.rollout.files import FileRecords
        from mmcache.model.errors import RolloutError
        board = Board(FileRecords(Path(sys.argv[1])))
        print("ready", flush=True)
        while True:
            for change in (lambda: board.canary("clip", "v2", 5), lambda: board.promote("clip"),
                           lambda: board.rollback("clip")):
                try:
                    change()
                except RolloutError:
                    pass
    """
    revision = 0
    for _ in range(8):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(body), str(tmp_path)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        enough = revision + draw.randrange(15, 200)
        while revision < enough:
            raw = records.read("clip")
            assert raw is not None
            state = decode(raw)
            assert state.revision >= revision
            revision = state.revision
        for writer in writers:
            writer.kill()
            writer.wait()
    assert revision > 100
    board = Board(records)
    state = board.state("clip")
    assert (board.rollback("clip") if state.candidate or state.previous else state).revision >= revision
