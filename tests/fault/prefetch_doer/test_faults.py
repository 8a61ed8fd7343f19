"""What a prefetcher survives: models that raise, a cache that closes, forks, kills, and folders full of nonsense."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.patience import PATIENCE, until

from mmcache import Cache, visit
from mmcache.cli import main
from mmcache.cli.output import Exit
from mmcache.model.event import Failed, Prefetched
from mmcache.prefetch import Cancelled
from mmcache.prefetch.behaviour import BehaviourPrefetch, BehaviourSettings
from mmcache.prefetch.status import FOLDER, MOST_BYTES, PrefetchStatus, Publisher, seen, sweep
from mmcache.testing.clock import FakeClock

PAGES = [f"page {number}" for number in range(5)]
EAGER = BehaviourSettings(
    latency_seconds=0.0, misses_a_minute=1.0, computations_per_second=1000.0, stale_seconds=600.0, lookback=1, hops=1
)


def vector(text: str) -> Any:
    return np.full(50, len(text), np.float32)


def speculative() -> bool:
    return threading.current_thread().name == "mmcache-prefetch-work"


def learn(cache: Cache, encode: Any, times: int = 3) -> None:
    for number in range(times):
        with visit(f"before {number}"):
            for page in PAGES:
                encode(page)
    prefetch = cache.prefetcher
    assert isinstance(prefetch, BehaviourPrefetch)
    until(lambda: not (prefetch._visits or prefetch.status().queued or prefetch.status().under_way))
    cache.invalidate([encode.key(page) for page in PAGES])


def walking(clock: FakeClock, cache: Cache, encode: Any, name: str) -> None:
    prefetch = cache.prefetcher
    assert isinstance(prefetch, BehaviourPrefetch)
    for page in PAGES:
        with visit(name):
            encode(page)
        for _ in range(5):
            prefetch.pump()
        clock.advance(3.0)


@pytest.mark.parametrize("error", [ValueError("secret contents"), MemoryError(), StopIteration(), Cancelled()])
def test_a_model_that_raises_is_tried_again_later_and_then_left_alone(error: BaseException) -> None:
    clock, broken = FakeClock(), [True]
    prefetch = BehaviourPrefetch(BehaviourSettings(latency_seconds=0.0), threaded=False)
    with Cache(prefetch=prefetch, clock=clock) as cache:
        real = [True]

        def model(text: str) -> Any:
            if broken[0] and not real[0]:
                raise error
            return vector(text)

        encode = cache.wrap(model, modality="text", signature="1", guard=False)
        keys = [encode.key(page) for page in PAGES]
        for number in range(4):
            walking(clock, cache, encode, f"before {number}")
            cache.invalidate(keys)
        real[0] = False
        with visit("new"):
            broken[0] = False
            encode(PAGES[0])
            broken[0] = True
        before = prefetch.status()
        for _ in range(200):
            prefetch.pump()
            clock.advance(0.1)
        after = prefetch.status()
        tried = after.failed + after.cancelled - before.failed - before.cancelled
        assert 1 <= tried <= 4 * prefetch.settings.tries
        assert after.computed == before.computed
        assert after.last_failure == ("" if isinstance(error, Cancelled) else _name(error))
        assert "secret" not in msgspec.json.encode(after).decode()
        broken[0] = False
        with visit("new"):
            assert np.array_equal(encode(PAGES[1]), vector(PAGES[1]))


def _name(error: BaseException) -> str:
    return type(error).__name__


def test_several_failures_running_stop_it_for_a_while() -> None:
    clock, broken = FakeClock(), [False]
    prefetch = BehaviourPrefetch(BehaviourSettings(latency_seconds=0.0, width=4, lookback=4, hops=1), threaded=False)
    with Cache(prefetch=prefetch, clock=clock) as cache:

        def model(text: str) -> Any:
            if broken[0]:
                raise OSError("the machine is on fire")
            return vector(text)

        encode = cache.wrap(model, modality="text", signature="1", guard=False)
        for number in range(4):
            walking(clock, cache, encode, f"before {number}")
            cache.invalidate([encode.key(page) for page in PAGES])
        with visit("new"):
            encode(PAGES[0])
        broken[0] = True
        for _ in range(20):
            prefetch.pump()
        status = prefetch.status()
        assert (status.state, status.reason) == ("idle", "failures")
        failed = status.failed
        clock.advance(20.0)
        prefetch.pump()
        assert prefetch.status().failed == failed


def test_a_cache_that_closes_under_it(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    entered, release = threading.Event(), threading.Event()
    prefetch = BehaviourPrefetch(EAGER)
    cache = Cache(prefetch=prefetch)
    held = [False]

    def model(text: str) -> Any:
        if held[0] and speculative():
            entered.set()
            assert release.wait(PATIENCE)
        return vector(text)

    encode = cache.wrap(model, modality="text", signature="1", guard=False)
    try:
        learn(cache, encode)
        held[0] = True
        with visit("new"):
            encode(PAGES[0])
        assert entered.wait(PATIENCE)
        cache.close()
        told = len([event for event in cache.events.recent() if isinstance(event, Prefetched)])
    finally:
        release.set()
    until(lambda: not any(thread.name == "mmcache-prefetch-work" for thread in threading.enumerate()))
    assert raised == []
    assert len([event for event in cache.events.recent() if isinstance(event, Prefetched)]) == told
    assert prefetch.status().state == "stopped"
    assert prefetch.pump() == 0


def test_a_failure_of_its_own_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    prefetch = BehaviourPrefetch(EAGER)
    with Cache(prefetch=prefetch) as cache:
        encode = cache.wrap(vector, modality="text", signature="1", guard=False)

        def broken(*_: Any, **__: Any) -> Any:
            raise ZeroDivisionError("secret contents")

        monkeypatch.setattr(prefetch._planner, "visited", broken)
        for page in PAGES:
            assert np.array_equal(encode(page), vector(page))
        until(lambda: any(isinstance(event, Failed) for event in cache.events.recent()))
        told = next(event for event in cache.events.recent() if isinstance(event, Failed))
        assert told.where == "prefetch"
        assert "ZeroDivisionError" in told.detail
        assert "secret" not in told.detail


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_goes_on_with_what_was_learnt(tmp_path: Path) -> None:
    prefetch = BehaviourPrefetch(EAGER)
    with Cache(tmp_path, prefetch=prefetch) as cache:
        encode = cache.wrap(vector, modality="text", signature="1", guard=False)
        learn(cache, encode)
        edges = prefetch.status().edges
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(int(2 * PATIENCE))
                with visit("new"):
                    encode(PAGES[0])
                until(lambda: cache.peek(encode.key(PAGES[1])) is not None)
                until(lambda: [one.pid for one in seen(tmp_path)].count(os.getpid()) == 1)
                cache.close()
                code = 0 if prefetch.status().edges == edges else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with visit("parent"):
            encode(PAGES[0])
        until(lambda: [one.pid for one in seen(tmp_path)] == [os.getpid()])
        cache.invalidate([encode.key(page) for page in PAGES])
        with visit("parent"):
            encode(PAGES[2])
        until(lambda: cache.peek(encode.key(PAGES[3])) is not None)


PROGRAM = """
import sys, time
from mmcache import Cache, visit
from mmcache.prefetch.behaviour import BehaviourPrefetch
cache = Cache(sys.argv[1], prefetch="behaviour")
encode = cache.wrap(lambda text: [1.0], modality="text", signature="1", guard=False)
with visit("somebody's name"):
    encode("somebody's secret")
while True:
    print("on", flush=True)
    time.sleep(0.1)
"""


def test_the_status_of_who_was_killed_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
        until(lambda: len(seen(tmp_path)) == 1)
        files = list((tmp_path / FOLDER).glob("*.json"))
        assert [path.stat().st_mode & 0o777 for path in files] == [0o600]
        assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700
        until(lambda: bool(seen(tmp_path)) and seen(tmp_path)[0].status.visits == 1)
        text = files[0].read_text()
        assert "secret" not in text
        assert "somebody" not in text
        assert main(["prefetch", "status", "--root", str(tmp_path)]) == Exit.DONE
        assert f"process {process.pid}" in capsys.readouterr().out
        assert main(["prefetch", "status", "--root", str(tmp_path), "--json"]) == Exit.DONE
        (shown,) = json.loads(capsys.readouterr().out)
        assert shown["pid"] == process.pid
        assert shown["status"]["visits"] == 1
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert seen(tmp_path) == []
    assert main(["prefetch", "status", "--root", str(tmp_path)]) == Exit.NO
    assert "no process prefetches" in capsys.readouterr().err
    with Cache(tmp_path, prefetch="behaviour"):
        assert list((tmp_path / FOLDER).glob("*.json")) == []  # swept
    assert main(["prefetch", "status", "--root", str(tmp_path / "mistyped")]) == Exit.FAILED


def test_nonsense_in_the_folder_is_neither_shown_nor_believed(tmp_path: Path) -> None:
    with Cache(tmp_path, prefetch=BehaviourPrefetch(threaded=False)) as cache:
        prefetch = cache.prefetcher
        assert isinstance(prefetch, BehaviourPrefetch)
        prefetch.pump()
        (mine,) = seen(tmp_path)
        folder = tmp_path / FOLDER
        (folder / "1.0.json").write_text("{")
        (folder / "2.0.json").write_bytes(b"\xff" * 10)
        (folder / "3.0.json").write_bytes(b" " * (MOST_BYTES + 1))
        (folder / "4.0.json").mkdir()
        lies: list[dict[str, Any]] = [
            {"pid": 0}, {"pid": -1}, {"pid": 2**60}, {"started": "1"}, {"host": "elsewhere", "at": 5.0}
        ]  # fmt: skip
        for number, change in enumerate(lies, 5):
            (folder / f"{number}.0.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(mine, **change)))
        assert [one.pid for one in seen(tmp_path)] == [os.getpid()]
        fresh = msgspec.structs.replace(mine, host="elsewhere", at=time.time())
        (folder / "9.0.json").write_bytes(msgspec.json.encode(fresh))
        assert {one.host for one in seen(tmp_path)} == {mine.host, "elsewhere"}
        sweep(tmp_path)
        assert len(seen(tmp_path)) == 2
        assert not (folder / "5.0.json").exists()
    assert [one.host for one in seen(tmp_path)] == ["elsewhere"]


def test_a_folder_full_of_traps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefetch = BehaviourPrefetch(threaded=False)
    with Cache(tmp_path, prefetch=prefetch):
        prefetch.pump()
        (mine,) = seen(tmp_path)
        (real,) = (tmp_path / FOLDER).glob("*.json")
        assert real.stat().st_mode & 0o777 == 0o600
        assert real.parent.stat().st_mode & 0o777 == 0o700
        folder, status = tmp_path / FOLDER, mine.status
        os.mkfifo(folder / "1.0.json")  # whoever opens it waits for a writer
        (folder / "2.0.json").symlink_to("/dev/zero")
        secret = tmp_path / "elsewhere.json"
        secret.write_bytes(real.read_bytes())
        (folder / "3.0.json").symlink_to(secret)
        (folder / "4.0.json").write_bytes(b"[" * 60_000)
        changed = [
            msgspec.structs.replace(mine, host="\x1b]0;owned\x07", at=time.time()),
            msgspec.structs.replace(mine, at=1e300),
            msgspec.structs.replace(mine, status=msgspec.structs.replace(status, since=-1e300)),
            msgspec.structs.replace(mine, status=msgspec.structs.replace(status, last_failure="\x1b[2J")),
        ]
        for number, one in enumerate(changed, 5):
            (folder / f"{number}.0.json").write_bytes(msgspec.json.encode(one))
        markup = msgspec.structs.replace(mine, host="[bold]elsewhere[/nonsense]", at=time.time())
        (folder / "10.0.json").write_bytes(msgspec.json.encode(markup))
        assert {one.host for one in seen(tmp_path)} == {mine.host, markup.host}
        assert main(["prefetch", "status", "--root", str(tmp_path)]) == Exit.DONE
        shown = capsys.readouterr().out
        assert "\x1b]" not in shown
        assert "[bold]elsewhere[/nonsense]" in shown
        assert main(["prefetch", "status", "--json", "--root", str(tmp_path)]) == Exit.DONE
        told = json.loads(capsys.readouterr().out)
        assert {one["host"] for one in told} == {mine.host, markup.host}
        assert set(told[0]["status"]) == set(PrefetchStatus.__struct_fields__)


def test_what_is_nobodys_status_is_never_taken_away(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / FOLDER).symlink_to(theirs)  # a link, by mistake or not
    for name in ("thesis.txt", "1.0.json", "data.json"):
        (theirs / name).write_text("{}")
        os.utime(theirs / name, (1.0, 1.0))
    with Cache(tmp_path / "root", prefetch=BehaviourPrefetch(threaded=False)) as cache:
        prefetch = cache.prefetcher
        assert isinstance(prefetch, BehaviourPrefetch)
        prefetch.pump()
    assert {path.name for path in theirs.iterdir()} == {"thesis.txt", "1.0.json", "data.json"}
    folder = tmp_path / "plain" / FOLDER
    folder.mkdir(parents=True)
    for name in ("thesis.txt", "1.0.json", "data.json", ".abc.new"):
        (folder / name).write_text("{}")
        os.utime(folder / name, (1.0, 1.0))
    sweep(tmp_path / "plain")
    assert {path.name for path in folder.iterdir()} == {"thesis.txt", "data.json"}


def test_two_caches_on_one_folder_each_say_how_they_are(tmp_path: Path) -> None:
    one, two = BehaviourPrefetch(threaded=False), BehaviourPrefetch(threaded=False)
    with Cache(tmp_path, prefetch=one):
        one.pump()
        with Cache(tmp_path, prefetch=two):
            two.pump()
            assert [status.pid for status in seen(tmp_path)] == [os.getpid()] * 2
        assert len(seen(tmp_path)) == 1
    assert seen(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_costs_the_status_only(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file, where a folder is to be")
    prefetch = BehaviourPrefetch(threaded=False)
    with Cache(tmp_path, prefetch=prefetch) as cache:
        encode = cache.wrap(vector, modality="text", signature="1", guard=False)
        encode("one")
        prefetch.pump()
        assert prefetch.status().visits == 1
        assert not Publisher(tmp_path, 7).publish(prefetch.status())
    assert seen(tmp_path) == []
