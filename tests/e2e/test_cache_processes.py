"""One cache folder, several real processes: one computation, takeover of a dead leader, invalidation, forks, kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mmcache import Cache, Key


def key_of(cache: Cache, name: str) -> Key:
    return cache.key(name, modality="text", signature="v1")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends, f"waited a minute for {what}"
        time.sleep(0.005)


def script(body: str, *arguments: object) -> subprocess.Popen[str]:
    """A process of its own that runs `body` with `cache`, `key_of` and `argv` at hand."""
    head = """
        import os, sys, time
        import numpy as np
        from mmcache import Cache
        argv = sys.argv[1:]
        cache = Cache(argv[0])
        def key_of(name): return cache.key(name, modality="text", signature="v1")
    """
    code = textwrap.dedent(head) + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_callers_of_all_processes_compute_once(tmp_path: Path) -> None:
    root, tally = tmp_path / "c", tmp_path / "tally"
    workers = [
        script(
            """
            import threading
            gate = threading.Barrier(20)
            key = key_of("k")
            def compute():
                with open(argv[1], "ab") as file:
                    file.write(b"x")
                time.sleep(0.1)
                return np.arange(1000.0)
            def run():
                gate.wait()
                assert cache.get_or_compute(key, compute)[999] == 999
                print("right", flush=True)
            threads = [threading.Thread(target=run) for _ in range(20)]
            print("ready", flush=True)
            sys.stdin.readline()
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            """,
            root,
            tally,
        )
        for _ in range(3)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    for worker in workers:
        assert worker.communicate(timeout=120)[0].count("right") == 20
    assert tally.read_bytes() == b"x"


@pytest.mark.slow
def test_a_killed_leader_is_replaced(tmp_path: Path) -> None:
    root, entered = tmp_path / "c", tmp_path / "entered"
    leader = script(
        """
        def hang():
            open(argv[1], "w").close()
            time.sleep(600)
        cache.get_or_compute(key_of("k"), hang)
        """,
        root,
        entered,
    )
    with Cache(root) as cache:
        wait_for(entered.exists, "the leader")
        result: list[str] = []
        follower = threading.Thread(
            target=lambda: result.append(cache.get_or_compute(key_of(cache, "k"), lambda: "new"))
        )
        follower.start()
        follower.join(0.2)
        assert result == []  # it waits for the leader
        leader.kill()
        leader.wait()
        follower.join(60)
        assert result == ["new"]


@pytest.mark.slow
def test_invalidate_reaches_a_running_process_and_its_computation(tmp_path: Path) -> None:
    root = tmp_path / "c"
    with Cache(root) as cache:
        cache.put(key_of(cache, "k"), "old")
        cache.flush()
        other = script(
            """
            print(cache.get(key_of("k")), flush=True)
            sys.stdin.readline()
            print(cache.peek(key_of("k")), cache.get(key_of("k")), flush=True)
            def compute():
                print("computing", flush=True)
                sys.stdin.readline()
                return "from the old source"
            print(cache.get_or_compute(key_of("k2"), compute), flush=True)
            print(cache.get(key_of("k2")), flush=True)
            """,
            root,
        )
        assert other.stdin is not None
        assert other.stdout is not None

        def tell() -> None:
            assert other.stdin is not None
            other.stdin.write("\n")
            other.stdin.flush()

        assert other.stdout.readline() == "old\n"
        cache.invalidate(key_of(cache, "k"))
        tell()
        assert other.stdout.readline() == "None None\n"
        assert other.stdout.readline() == "computing\n"
        cache.invalidate(key_of(cache, "k2"))
        tell()
        assert other.stdout.readline() == "from the old source\n"
        assert other.stdout.readline() == "None\n"
        assert other.wait(60) == 0
        assert cache.get(key_of(cache, "k2")) is None


def test_a_forked_child_uses_the_cache_and_leaves_the_parent_s_alone(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        before, after = key_of(cache, "before"), key_of(cache, "after")
        cache.put(before, np.arange(10))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert cache.get(before).sum() == 45
                cache.get_or_compute(after, lambda: "from the child")
                cache.flush()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert cache.get(after) == "from the child"
        cache.put(key_of(cache, "later"), 1)
        cache.flush()
        cache.check_integrity()


@pytest.mark.slow
def test_killed_writers_leave_only_whole_blocks(tmp_path: Path) -> None:
    root = tmp_path / "c"
    rounds = 5
    for seed in range(rounds):
        writer = script(
            """
            seed = int(argv[1])
            for n in range(100_000):
                cache.put(key_of(f"{seed}-{n}"), {"n": n, "data": np.full(1 + n % 5000, n, np.float32)})
                if n == 50:
                    cache.flush()
                    print("going", flush=True)
            """,
            root,
            seed,
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "going\n"
        time.sleep(0.05 * (1 + seed))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    with Cache(root) as cache:
        found = 0
        for seed in range(rounds):
            for n in range(0, 3000):
                value = cache.get(key_of(cache, f"{seed}-{n}"))
                if value is not None:
                    found += 1
                    assert value["n"] == n
                    assert value["data"].shape == (1 + n % 5000,)
                    assert (value["data"] == n).all()
                else:
                    assert n > 50, "what was flushed must be found"
        assert found >= 51 * rounds


@pytest.mark.slow
def test_no_process_ever_reads_what_was_invalidated_before_it_asked(tmp_path: Path) -> None:
    """Readers in three processes against thousands of invalidations: a value is never older than the last one."""
    root, shared = tmp_path / "c", tmp_path / "shared"
    state = np.memmap(shared, np.int64, "w+", shape=9)  # versions of four sources, versions valid, stop
    readers = [
        script(
            """
            import random
            state = np.memmap(argv[1], np.int64, "r", shape=9)
            keys = [key_of(f"k{i}") for i in range(4)]
            asked = stale = 0
            print("ready", flush=True)
            while not state[8]:
                i = random.randrange(4)
                valid = int(state[4 + i])
                found = cache.get_or_compute(keys[i], lambda: int(state[i])) if asked % 3 else cache.get(keys[i])
                asked += 1
                stale += found is not None and found < valid
            print(asked, stale, flush=True)
            cache.close()
            """,
            root,
            shared,
        )
        for _ in range(3)
    ]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    with Cache(root) as cache:
        keys = [key_of(cache, f"k{i}") for i in range(4)]
        for n in range(2000):
            i = n * 7 % 4
            state[i] += 1
            cache.invalidate(keys[i])
            state[4 + i] = state[i]
            if n % 5 == 0:
                time.sleep(0.001)  # let the readers fill what was dropped
        state[8] = 1
        for reader in readers:
            asked, stale = map(int, reader.communicate(timeout=60)[0].split())
            assert asked > 100
            assert stale == 0
