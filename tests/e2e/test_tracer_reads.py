"""A real process is watched by the real kernel: every read is counted, and who watches leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.e2e.tracer_stage import Reader, reader, require_tracing, until

from mmcache.model.errors import TracerError
from mmcache.model.key import Key
from mmcache.tracer import Mark, Trace
from mmcache.tracer.process import Traced
from mmcache.tracer.program import compiled


@pytest.fixture
def read() -> Iterator[Reader]:
    require_tracing()
    with reader() as one:
        yield one


def _names(read: Reader, count: int) -> list[Key]:
    return [Key.parse(text) for text in read("names", count)]


def test_every_read_is_counted_by_its_key(read: Reader) -> None:
    names = _names(read, 4)
    with Trace(read.pid, sockets=False) as trace:
        read("read", 0, 12_345)
        read("read", 1, 77)
        read("read", 1_000, 5)  # nobody stored that
        read("get", 2)
        totals = trace.totals()
        keys = {one.short: one for one in trace.hottest()}
    assert (totals.reads, totals.hits, totals.keys_lost) == (12_345 + 77 + 5 + 1, 12_345 + 77 + 1, 0)
    assert [(keys[name.short].reads, keys[name.short].hits) for name in names[:3]] == [
        (12_345,) * 2,
        (77,) * 2,
        (1,) * 2,
    ]
    assert names[3].short not in keys
    assert sorted(one.reads - one.hits for one in keys.values()) == [0, 0, 0, 5]
    assert all(0 < one.delay_mean <= one.delay_max for one in keys.values())


def test_a_key_is_marked_at_its_101st_read_in_a_second_and_carries_its_whole_name(read: Reader) -> None:
    (name, *_) = _names(read, 1)
    marks: list[Mark] = []
    with Trace(read.pid, marks.append, sockets=False) as trace:
        read("read", 0, 100_000)  # whatever the machine does meanwhile, 101 of these are within a second
        until(lambda: bool(marks), lambda: trace.poll(0.2))
    assert {mark.key for mark in marks} == {name}  # more than one where the machine stopped for a second meanwhile
    assert marks[0].reads >= 101


def test_few_reads_mark_nothing_however_close_together_they_are(read: Reader) -> None:
    marks: list[Mark] = []
    with Trace(read.pid, marks.append, sockets=False) as trace:
        for number in range(50):
            read("read", number, 100)
        trace.poll(0.2)
        assert trace.totals().reads == 5_000
        assert trace.totals().marks == 0
    assert marks == []


def test_another_threshold(read: Reader) -> None:
    marks: list[Mark] = []
    with Trace(read.pid, marks.append, sockets=False, threshold=1) as trace:
        read("read", 0, 1)
        read("read", 1, 10_000)
        until(lambda: bool(marks), lambda: trace.poll(0.2))
    assert {mark.key for mark in marks} == {_names(read, 2)[1]}


@pytest.mark.slow
def test_the_kernel_keeps_no_more_keys_than_it_has_room_for(read: Reader) -> None:
    with Trace(read.pid, sockets=False) as trace:
        read("each", 200_000)
        keys = trace.hottest()
        assert trace.totals().reads == 200_000
    assert 30_000 < len(keys) <= 65_536  # its LRU evicts a little early, from lists of each processor
    assert len({one.short for one in keys}) == len(keys)


def test_two_tracers_at_once_count_each_for_itself(read: Reader) -> None:
    with Trace(read.pid, sockets=False) as first:
        read("read", 0, 100)
        with Trace(read.pid, sockets=False) as second:
            read("read", 0, 1_000)
            assert second.totals().reads == 1_000
        read("read", 0, 10)
        assert first.totals().reads == 1_110


def test_two_processes_are_told_apart(read: Reader) -> None:
    with reader() as other, Trace(read.pid, sockets=False) as one, Trace(other.pid, sockets=False) as two:
        read("read", 0, 1_000)
        other("read", 0, 200)
        assert (one.totals().reads, two.totals().reads) == (1_000, 200)


def test_a_child_that_the_process_forks_is_not_counted_and_not_disturbed(read: Reader) -> None:
    with Trace(read.pid, sockets=False) as trace:
        read("read", 0, 10)
        read("fork", 0, 5_000)
        read("read", 0, 10)
        assert trace.totals().reads == 20


def test_who_lets_go_leaves_nothing_behind(read: Reader) -> None:
    def raised() -> bool:
        """Whether the kernel has raised the semaphore in that process."""
        process = Traced(read.pid)
        try:
            _, _, semaphore = process.index()
            with open(f"/proc/{read.pid}/maps") as lines:
                spans = [line.split() for line in lines if "_hit_index" in line]
        finally:
            process.close()
        for span, rights, offset, *_ in spans:
            start, end = (int(part, 16) for part in span.split("-"))
            place = semaphore - int(offset, 16) + start
            if "w" in rights and start <= place < end:
                with open(f"/proc/{read.pid}/mem", "rb") as memory:
                    memory.seek(place)
                    return memory.read(2) != b"\0\0"
        raise AssertionError("the semaphore is mapped writable")

    assert not raised()
    with Trace(read.pid, sockets=False):
        assert raised()
    until(lambda: not raised())
    read("read", 0, 1_000)
    if shutil.which("bpftool") is not None:
        shown = subprocess.run(
            ["bpftool", "prog", "show", "name", "read_probe"], capture_output=True, text=True, check=False
        )
        assert f"({os.getpid()})" not in shown.stdout


def test_a_process_that_ends_while_it_is_traced(read: Reader) -> None:
    with Trace(read.pid, sockets=False) as trace:
        read("read", 0, 1_000)
        assert trace.alive
        read.process.kill()
        read.process.wait()
        until(lambda: not trace.alive)
        assert trace.totals().reads == 1_000
        assert trace.poll(0.0) == trace.totals().marks
    with pytest.raises(TracerError, match="there is no process"):
        Trace(read.pid, sockets=False)


def test_a_program_that_clang_makes_here_is_as_good(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        made = compiled()
    except TracerError as error:
        pytest.skip(str(error))
    monkeypatch.setattr("mmcache.tracer.trace.object_file", lambda: made)
    with Trace(read.pid, sockets=False) as trace:
        read("read", 0, 500)
        assert trace.totals().reads == 500


def test_a_process_with_the_plain_index_has_nothing_to_look_at() -> None:
    require_tracing()
    with reader(MMCACHE_PURE="1") as one, pytest.raises(TracerError, match="MMCACHE_PURE is set"):
        Trace(one.pid, sockets=False)


def test_the_command_shows_what_was_read(read: Reader) -> None:
    command = [sys.executable, "-m", "mmcache.cli", "trace", "--pid", str(read.pid), "--no-sockets", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == f"mmcache: watching process {read.pid}\n"
            read("read", 3, 50_000)
            read.process.kill()  # which ends the trace
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert "has ended" in err
    said = json.loads(out)
    assert said["totals"]["reads"] == 50_000
    (key,) = said["keys"]
    assert key["reads"] == key["hits"] == 50_000
    assert said["marks"][0]["key"] == key["key"]
    assert Key.parse(key["key"]).short == key["short"]
