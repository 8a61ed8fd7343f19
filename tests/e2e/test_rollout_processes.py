"""One rollout, several real processes on one folder: each follows every decision, and none fails."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mmcache.rollout.board import Board
from mmcache.rollout.files import FileRecords

PROGRAM = """
    import sys
    import numpy as np
    from mmcache import Cache
    from mmcache.rollout import Rollout
    known = sys.argv[2].split(",")
    versions = {name: (lambda text, value=float(name[1:]): np.array([value])) for name in known}
    with Cache(sys.argv[1]) as cache:
        encode = Rollout(cache, "clip", versions, modality="text")
        print("ready", flush=True)
        for line in sys.stdin:
            while f"{encode.state().stable} {encode('x')[0]}\\n" != line:
                pass
            print("so it is", flush=True)
"""


@pytest.mark.slow
def test_every_process_follows_every_decision(tmp_path: Path) -> None:
    def program(known: str) -> subprocess.Popen[str]:
        started = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path), known],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        return started

    def all_see(state: str) -> None:
        for each in programs:
            assert each.stdin is not None
            each.stdin.write(state + "\n")
            each.stdin.flush()
        for each in programs:
            assert each.stdout is not None
            assert each.stdout.readline() == "so it is\n"

    board, programs = Board(FileRecords(tmp_path)), []
    try:
        programs += [program("v1,v2"), program("v1,v2"), program("v2,v1")]  # who comes first says what is stable
        all_see("v1 1.0")
        board.canary("clip", "v2", 100)
        all_see("v1 2.0")
        board.promote("clip")
        all_see("v2 2.0")
        old = program("v1")
        programs.append(old)
        board.rollback("clip")
        all_see("v1 1.0")
        board.canary("clip", "v2", 100)
        programs.remove(old)  # it stays on what it has
        all_see("v1 2.0")
        programs.append(old)
        for each in programs:
            each.communicate(timeout=60)
            assert each.returncode == 0
    finally:
        for each in programs:
            each.kill()
            each.communicate()
