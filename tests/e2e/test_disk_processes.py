"""The disk tier under several processes: shared reads and drops, kills in the middle of writes, forks, claims."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from mmcache.model.event import MissReason
from mmcache.model.frame import Frame
from mmcache.settings import DiskSettings
from mmcache.testing.frames import make_frame, make_key
from mmcache.tiers.base import Found
from mmcache.tiers.disk import DiskTier

SMALL = DiskSettings(limit_bytes=24 << 20, segment_bytes=1 << 20, index_map_bytes=1 << 18, free_space_floor=0)


def blob(n: int, generation: int = 0) -> Frame:
    """Every byte tells which block it belongs to; sizes differ."""
    return make_frame(make_key(n), (b"%07d.%07d|" % (n, generation)) * (n * 37 % 400 + 1))


def check(found: Found | MissReason, n: int) -> bool:
    """Whether it is a hit; a hit must be wholly block `n`."""
    if not isinstance(found, Found):
        assert found in (MissReason.ABSENT, MissReason.EVICTED)
        return False
    payload = bytes(found.frame.payload)
    assert payload == payload[:16] * (len(payload) // 16)
    assert payload.startswith(b"%07d." % n)
    return True


def start(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    """One of the functions below in a process of its own."""
    command = f"import sys; from tests.e2e.test_disk_processes import *; {program}(*sys.argv[1:])"
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", command, *map(str, arguments)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, cwd=root
    )


def write_many(folder: str, seed: str, count: str) -> None:
    """Puts of 1 to 4 blocks, some drops and reads, a flush now and then; says when it has begun."""
    rng = random.Random(int(seed))
    tier = DiskTier(Path(folder), SMALL)
    print("begun", flush=True)
    for turn in range(int(count)):
        frames = [blob(rng.randrange(4000), turn) for _ in range(rng.randint(1, 4))]
        tier.put(frames, [None] * len(frames))
        n = rng.randrange(4000)
        check(tier.get([make_key(n)])[0], n)
        if turn % 20 == 0:
            tier.drop([make_key(rng.randrange(4000))])
        if turn % 500 == 499:
            tier.flush()
    tier.close()
    print("done", flush=True)


def lead(folder: str) -> None:
    """Take the claim of key 1 and hold it until told."""
    tier = DiskTier(Path(folder), SMALL)
    print(tier.claims.acquire(make_key(1)), flush=True)
    sys.stdin.readline()


def answer(folder: str) -> None:
    """Say of each number on stdin whether it is held."""
    tier = DiskTier(Path(folder), SMALL)
    for line in sys.stdin:
        print(check(tier.get([make_key(int(line))])[0], int(line)), flush=True)


def ask(process: subprocess.Popen[bytes], n: int) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"%d\n" % n)
    process.stdin.flush()
    return process.stdout.readline().decode().strip()


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def taken(folder: Path) -> int:
    """Bytes that the files of `folder` take, while others change it."""
    size = 0
    for path in list(folder.glob("*")):
        with suppress(FileNotFoundError):
            size += path.stat().st_blocks * 512
    return size


def in_child(work: Callable[[], object]) -> None:
    """Run `work` in a fork; it must not fail."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_another_process_sees_puts_drops_and_erasures_at_its_next_lookup(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "c", SMALL)
    tier.put([blob(1)], [None])
    with start("answer", tmp_path / "c") as other:
        assert ask(other, 1) == "True"
        tier.drop([make_key(1)])
        assert ask(other, 1) == "False"
        for n in range(2, 2000):
            tier.put([blob(n)], [None])  # the index map grows meanwhile
        assert ask(other, 1999) == "True"
        assert tier.stats().detail["index_map_bytes"] > SMALL.index_map_bytes  # type: ignore[operator]
        tier.erase(lambda held: held.key == make_key(1999))
        assert ask(other, 1999) == "False"
        assert ask(other, 1998) == "True"
        other.stdin.close()  # type: ignore[union-attr]
    tier.close()


def test_several_writers_share_one_limit(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    workers = [start("write_many", folder, seed, 1500) for seed in range(3)]
    tier = DiskTier(folder, SMALL)
    rng = random.Random(9)
    views: list[tuple[int, Found]] = []
    while any(worker.poll() is None for worker in workers):
        n = rng.randrange(4000)
        found = tier.get([make_key(n)])[0]
        if check(found, n) and isinstance(found, Found) and len(views) < 200:
            views.append((n, found))
        disk = taken(folder / "segments")
        # Not looked at in one instant: each writer may have exchanged a segment for another meanwhile.
        assert disk <= SMALL.limit_bytes + 3 * SMALL.segment_bytes
        assert tier.stats().bytes <= SMALL.limit_bytes
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.read().split() == [b"begun", b"done"]
        worker.stdout.close()
        worker.wait()
    report = tier.verify()
    assert report.ok, report
    assert report.blocks > 1000
    assert all(check(found, n) for n, found in views)
    assert tier.stats().bytes <= SMALL.limit_bytes
    tier.close()


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_kill_in_the_middle_of_writes(tmp_path: Path, rounds: int) -> None:
    """No torn or wrong block, no lost space, and views still right, however often a writer is killed."""
    folder = tmp_path / "c"
    rng = random.Random(4)
    tier = DiskTier(folder, SMALL)
    held: list[tuple[int, Found]] = []
    for turn in range(rounds):
        victim = start("write_many", folder, turn, 10_000)
        assert line_of(victim) == b"begun"
        for _ in range(rng.randrange(50, 1500)):
            n = rng.randrange(4000)
            found = tier.get([make_key(n)])[0]
            if check(found, n) and isinstance(found, Found) and rng.random() < 0.02:
                held.append((n, found))
        assert victim.poll() is None, "it was to be killed in the middle"
        os.kill(victim.pid, signal.SIGKILL)
        victim.communicate()
        report = tier.verify()
        assert report.ok, report
        assert tier.put([blob(turn)], [None]) == [None]
        fresh = start("answer", folder)
        assert ask(fresh, turn) == "True"
        fresh.communicate()
        held = held[-100:]
        assert all(check(found, n) for n, found in held)
    assert tier.verify().blocks > 0
    tier.close()
    again = DiskTier(folder, SMALL)
    assert again.verify().ok
    on_disk = sum(path.stat().st_size for path in (folder / "segments").glob("*"))
    assert on_disk == again.stats().bytes <= SMALL.limit_bytes  # what the dead had allocated was taken back
    again.close()


def test_both_sides_of_a_fork_go_on(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "c", SMALL)
    tier.put([blob(n) for n in range(50)], [None] * 50)
    view = tier.get([make_key(7)])[0]
    assert tier.claims.acquire(make_key(1))

    def child() -> None:
        assert check(view, 7)
        assert not tier.claims.acquire(make_key(1))
        assert check(tier.get([make_key(8)])[0], 8)
        assert tier.put([blob(n) for n in range(100, 150)], [None] * 50) == [None] * 50
        tier.drop([make_key(9)])
        in_child(lambda: tier.put([blob(200)], [None]))
        tier.close()

    in_child(child)
    assert tier.get([make_key(9)]) == [MissReason.ABSENT]
    assert all(check(tier.get([make_key(n)])[0], n) for n in (8, 100, 149, 200))
    assert tier.put([blob(n) for n in range(50, 99)], [None] * 49) == [None] * 49
    assert all(check(tier.get([make_key(n)])[0], n) for n in (7, 50, 98))
    tier.flush()
    assert tier.verify().ok
    tier.claims.release(make_key(1))
    in_child(lambda: os._exit(0 if tier.claims.acquire(make_key(1)) else 1))
    assert tier.claims.acquire(make_key(1))  # the child is gone, and its claim with it
    tier.close()


def test_forking_amid_busy_threads(tmp_path: Path) -> None:
    import threading

    tier = DiskTier(tmp_path / "c", SMALL)
    stop = threading.Event()

    def busy(seed: int) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            n = rng.randrange(100)
            tier.put([blob(n)], [None])
            check(tier.get([make_key(n)])[0], n)

    threads = [threading.Thread(target=busy, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for n in range(20):
            in_child(partial(tier.put, [blob(1000 + n)], [None]))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert all(check(tier.get([make_key(1000 + n)])[0], 1000 + n) for n in range(20))
    assert tier.verify().ok
    tier.close()


def test_a_dead_leaders_claim_is_free_at_once(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "c", SMALL)
    leader = start("lead", tmp_path / "c")
    assert line_of(leader) == b"True"
    assert not tier.claims.acquire(make_key(1))
    assert tier.claims.acquire(make_key(2))
    os.kill(leader.pid, signal.SIGKILL)
    leader.communicate()
    assert tier.claims.acquire(make_key(1))
    tier.close()
