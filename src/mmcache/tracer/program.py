"""The kernel side's object file: the one that the package brings, or one made by clang.

`python -m mmcache.tracer.build` makes the former anew."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from mmcache.model.errors import TracerError

SOURCE = Path(__file__).with_name("reads.bpf.c")
_TARGETS = {"x86_64": "x86", "aarch64": "arm64"}


def brought(machine: str | None = None) -> Path:
    """Where the object for this machine is, if the package brings one."""
    return SOURCE.with_name(f"reads.{machine or platform.machine()}.bpf.o")


def digest() -> bytes:
    """SHA-256 of the source, which the object carries: whether it was made from this one."""
    return hashlib.sha256(SOURCE.read_bytes()).digest()


def object_file() -> bytes:
    """The object for this machine. Raises `TracerError` where the package brings none and clang is missing."""
    path = brought()
    return path.read_bytes() if path.exists() else compiled()


def compiled(machine: str | None = None) -> bytes:
    """Made from the source. Raises `TracerError`."""
    machine = machine or platform.machine()
    target = _TARGETS.get(machine)
    if target is None:
        raise TracerError(f"the tracer knows {', '.join(_TARGETS)}, not {machine}")
    missing = [tool for tool in ("clang", "llvm-strip", "llvm-objcopy") if shutil.which(tool) is None]
    if missing:
        raise TracerError(
            f"{', '.join(missing)} not found, and the package brings no tracer for {machine}; install them (Debian: "
            "apt-get install clang llvm libbpf-dev)"
        )
    with tempfile.TemporaryDirectory() as folder:
        made, stamp = Path(folder, "reads.o"), Path(folder, "digest")
        stamp.write_bytes(digest())
        _run(
            "clang", "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", f"-D__TARGET_ARCH_{target}",
            f"-I/usr/include/{machine}-linux-gnu", "-fdebug-prefix-map=" + str(SOURCE.parent) + "=.",
            "-fdebug-compilation-dir=/",  # else the object names this folder, and is another one in each
            "-c", str(SOURCE), "-o", str(made),
        )  # fmt: skip
        _run("llvm-strip", "-g", str(made))  # leaves BTF
        _run("llvm-objcopy", f"--add-section=.mmcache={stamp}", str(made))
        return made.read_bytes()


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TracerError(f"{words[0]} cannot make the tracer's program: {done.stderr.strip()[-500:]}")
