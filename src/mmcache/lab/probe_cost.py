"""What a probe costs: in a read that nobody traces, in one that is traced, and by which instruction it stands on."""

from __future__ import annotations

import importlib.util
import shutil
import statistics
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmcache.lab.traced_runs import child
from mmcache.model.key import Key
from mmcache.tiers import hit_index
from mmcache.tracer import Trace
from mmcache.tracer.elf import Elf
from mmcache.tracer.layout import CONFIG
from mmcache.tracer.loaded import Loaded
from mmcache.tracer.process import Traced
from mmcache.tracer.program import object_file

KINDS = ("nop5", "nop1", "push", "sub", "endbr64")
_PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#define PROBE(name, bytes) \
    __asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ", @function\n" #name ":\n.byte " bytes "\nret\n" \
            ".size " #name ", . - " #name "\n"); \
    void name(uint64_t hash, const void *key, uint64_t delay, uint64_t waiting, uint64_t hit);
PROBE(nop5, "0x0f, 0x1f, 0x44, 0x00, 0x00")
PROBE(nop1, "0x90")
PROBE(push, "0x55, 0x5d") /* and pop: what functions begin with */
PROBE(sub, "0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xc4, 0x08")
PROBE(endbr64, "0xf3, 0x0f, 0x1e, 0xfa")
static void (*const probes[])(uint64_t, const void *, uint64_t, uint64_t, uint64_t) = {nop5, nop1, push, sub, endbr64};
int main(void)
{
    char key[48] = {0};
    long count;
    unsigned which;
    puts("ready");
    fflush(stdout);
    while (scanf("%u %ld", &which, &count) == 2 && which < sizeof probes / sizeof *probes) {
        struct timespec before, after;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
        for (long i = 0; i < count; i++) probes[which]((uint64_t)i & 1023, key, 0, 0, 1);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
        printf("%f\n", ((after.tv_sec - before.tv_sec) * 1e9 + (after.tv_nsec - before.tv_nsec)) / count);
        fflush(stdout);
    }
    return 0;
}
"""


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def by_instruction(count: int, repeats: int) -> dict[str, tuple[float, list[float]]]:
    """Kind → (ns a call that nobody traces, ns that a trace adds to a call, each time). Needs a compiler and root."""
    cc = compiler()
    assert cc is not None
    found: dict[str, tuple[float, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "probes.c"), Path(folder, "probes")
        source.write_text(_PROGRAM)
        subprocess.run([cc, "-O2", "-rdynamic", "-o", str(program), str(source)], check=True, capture_output=True)
        offsets = Elf.parse(program.read_bytes()).offsets
        with subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

            def call(kind: str) -> float:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(f"{KINDS.index(kind)} {count}\n")
                process.stdin.flush()
                return float(process.stdout.readline())

            try:
                assert process.stdout is not None
                process.stdout.readline()
                traced = Traced(process.pid)
                config = CONFIG.pack(*traced.namespace(), 100, 0, 0)
                traced.close()
                for kind in KINDS:
                    bare = statistics.median(call(kind) for _ in range(repeats))
                    loaded = Loaded(object_file(), config, ("read_probe",))
                    try:
                        loaded.attach_probe("read_probe", process.pid, str(program), offsets[kind], 0)
                        found[kind] = bare, [call(kind) - bare for _ in range(repeats)]
                    finally:
                        loaded.close()
            finally:
                process.kill()
    return found


def traced_read(count: int, repeats: int) -> list[float]:
    """ns of CPU that a trace adds to `cache.peek` of one key, in a loop, each time."""
    added = []
    with child(10) as one:
        for _ in range(repeats):
            bare = one("read", 0, count)
            with Trace(one.pid, sockets=False):
                added.append(one("read", 0, count) - bare)
    return added


def untraced_read(count: int, repeats: int) -> list[float]:
    """ns that the probe adds to a `peek` that nobody traces: the index built with it against that built without, in
    turns. Needs a compiler and Python's headers. Raises `CalledProcessError` where these are missing."""
    with tempfile.TemporaryDirectory() as folder:
        timed = [_index(Path(folder), name, flags) for name, flags in (("with", ()), ("out", ("-DMMCACHE_NO_PROBE",)))]
        key = Key(bytes(16), bytes(16))
        entries = {key: (1, None, None, None, 1, None)}
        peeks = [made(entries, print, 1024).peek for made in timed]
        return [_loop(peeks[0], key, count) - _loop(peeks[1], key, count) for _ in range(repeats)]


def _loop(peek: Callable[[Key], object], key: Key, count: int) -> float:
    best = float("inf")
    for _ in range(5):
        before = time.process_time_ns()
        for _ in range(count):
            peek(key)
        best = min(best, (time.process_time_ns() - before) / count)
    return best


def _index(folder: Path, name: str, flags: tuple[str, ...]) -> Any:
    cc = compiler()
    assert cc is not None
    place = folder / name
    place.mkdir()
    library = place / "_hit_index.so"
    source = Path(hit_index.__file__).with_name("_hit_index.c")
    include = sysconfig.get_paths()["include"]
    words = [cc, "-O3", "-fno-math-errno", "-ffp-contract=off", "-fPIC", "-shared", f"-I{include}", *flags]
    subprocess.run([*words, str(source), "-o", str(library)], check=True, capture_output=True)
    spec = importlib.util.spec_from_file_location("_hit_index", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.HitIndex
