"""Each way in which a process cannot be traced is one sentence that says what to do."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mmcache.cli.app import run
from mmcache.model.errors import TracerError
from mmcache.tracer import Trace, libbpf, program
from mmcache.tracer.process import Traced, addresses

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tracer is for Linux")


def _ended() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def _with_index() -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the package brings its program for x86-64")
    pytest.importorskip("mmcache.tiers._hit_index", reason="the C extension was not built here")


def test_no_such_process() -> None:
    with pytest.raises(TracerError, match="there is no process"):
        Trace(_ended())
    with pytest.raises(TracerError, match="1 or more"):
        Trace(0)


def test_a_kernel_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with pytest.raises(TracerError, match=r"has no pidfd_open\(\)"):
        Traced(os.getpid())


def test_a_process_without_mmcache() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            with pytest.raises(TracerError, match="runs no mmcache, has opened no cache yet"):
                Traced(process.pid).index()
        finally:
            process.kill()


def test_a_kernel_without_btf(tmp_path: Path) -> None:
    _with_index()
    with pytest.raises(TracerError, match="CONFIG_DEBUG_INFO_BTF"):
        Trace(os.getpid(), btf=tmp_path / "vmlinux")


def test_no_tracefs(tmp_path: Path) -> None:
    _with_index()
    (tmp_path / "vmlinux").touch()
    with pytest.raises(TracerError, match=f"mount -t tracefs tracefs {re.escape(str(tmp_path))}"):
        Trace(os.getpid(), btf=tmp_path / "vmlinux", tracefs=(tmp_path,))


def test_addresses_are_written_as_the_kernel_names_peers() -> None:
    assert addresses("127.0.0.1:6379") == {"127.0.0.1:6379"}
    assert addresses("[::1]:6379") == {"[::1]:6379"}
    assert addresses("::ffff:127.0.0.1:80") == {"127.0.0.1:80"}


@pytest.mark.parametrize("shared", ["valkey", "valkey:", ":6379", "127.0.0.1:x"])
def test_what_is_no_address(shared: str) -> None:
    with pytest.raises(TracerError, match="is no host:port"):
        Trace(os.getpid(), shared=shared)


@pytest.mark.parametrize("threshold", [0, 128])
def test_a_threshold_beyond_what_the_kernel_remembers(threshold: int) -> None:
    with pytest.raises(TracerError, match="from 1 to 127"):
        Trace(os.getpid(), threshold=threshold)


def test_no_libbpf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libbpf, "_LIBRARY", "libbpf-that-is-not-there.so.1")
    libbpf.library.cache_clear()
    try:
        with pytest.raises(TracerError, match="apt-get install libbpf1"):
            libbpf.library()
    finally:
        libbpf.library.cache_clear()


def _as_nobody(what: Callable[[], object]) -> str:
    """What a forked child says that has no rights: the message of its error."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        except OSError:
            os.write(writer, b"-")
            os._exit(0)
        try:
            what()
            os.write(writer, b"nothing")
        except TracerError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    if said == "-":
        pytest.skip("this root may not become another user")
    return said


@pytest.mark.skipif(os.geteuid() != 0, reason="dropping rights needs root")
def test_another_users_process_without_rights() -> None:
    assert "tracing needs root" in _as_nobody(lambda: Trace(os.getppid(), sockets=False))


@pytest.mark.skipif(os.geteuid() != 0, reason="dropping rights needs root")
def test_the_kernel_refuses_who_has_no_rights() -> None:
    _with_index()
    try:
        libbpf.library()
    except TracerError as error:
        pytest.skip(str(error))
    raw = program.object_file()

    def load() -> None:
        from mmcache.tracer.layout import CONFIG
        from mmcache.tracer.loaded import Loaded

        Loaded(raw, CONFIG.pack(0, 0, 1, 100, 0, 0), ["read_probe"])

    said = _as_nobody(load)
    assert "tracing needs root" in said or "has no bpf()" in said


def test_the_command_says_it_in_one_line_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    pid = _ended()
    assert run(["trace", "--pid", str(pid), "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == "TracerError"
    assert err == f"mmcache: there is no process {pid}\n"
    assert run(["trace", "--pid", str(os.getpid()), "--seconds", "0"]) == 3


def test_the_object_that_the_package_brings_was_made_from_this_source() -> None:
    brought = program.brought("x86_64").read_bytes()
    assert program.digest() in brought
    assert str(program.SOURCE.parent).encode() not in brought  # nor does it name where that was
    assert b"//./reads.bpf.c" in brought


def test_no_object_and_no_clang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program, "brought", lambda: tmp_path / "none.o")
    monkeypatch.setattr("shutil.which", lambda tool: None)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(TracerError, match="apt-get install clang llvm libbpf-dev"):
        program.object_file()
    with pytest.raises(TracerError, match="not sparc"):
        program.compiled("sparc")
