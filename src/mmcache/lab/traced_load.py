"""A process that reads a real cache as it is told: `python -m mmcache.lab.traced_load`.

One command a line on stdin; one line of JSON on stdout when it is done. It is what table `ebpf` and the tracer's tests
look into. Keys are numbered; those below `--stored` are in memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mmcache import Cache
from mmcache.lab.traced_watch import Watcher, watcher
from mmcache.model.key import Key
from mmcache.tracer.feedback import Marks


class Load:
    """The cache, and what may be asked of it."""

    def __init__(self, stored: int) -> None:
        self.cache = Cache(memory="256MiB")
        self.stored = [
            self.cache.key(f"question {n}", modality="text", signature="traced-load-1") for n in range(stored)
        ]
        for key in self.stored:
            self.cache.put(key, np.zeros(8, np.float32))
        self.marks: Marks | None = None
        self.hot: list[str] = []
        self.watcher: Watcher | None = None
        self.connection: socket.socket | None = None

    def key(self, number: int) -> Key:
        """Beyond `--stored`: one that nobody stored."""
        if number < len(self.stored):
            return self.stored[number]
        return Key.from_bytes(hashlib.sha384(str(number).encode()).digest())

    def names(self, count: str) -> list[str]:
        """Of the first keys, whole."""
        return [str(self.key(n)) for n in range(int(count))]

    def read(self, number: str, count: str) -> float:
        """That many reads of one key, one after another: CPU nanoseconds of each."""
        peek, key = self.cache.peek, self.key(int(number))
        before = time.process_time_ns()
        for _ in range(int(count)):
            peek(key)
        return (time.process_time_ns() - before) / int(count)

    def each(self, count: str) -> None:
        """One read of each of the first keys."""
        peek = self.cache.peek
        for number in range(int(count)):
            peek(self.key(number))

    def get(self, number: str) -> bool:
        """One read that goes on to lower tiers."""
        return self.cache.get(self.key(int(number))) is not None

    def fork(self, number: str, count: str) -> None:
        """The same as `read`, by a child of this process."""
        child = os.fork()
        if child == 0:
            self.read(number, count)
            os._exit(0)
        os.waitpid(child, 0)

    def talk(self, port: str, count: str, words: str = "*1\\r\\n$4\\r\\nPING\\r\\n") -> None:
        """That many requests to a server, each of which waits for the answer."""
        self.dial(port)
        assert self.connection is not None
        with self.connection as connection:
            for _ in range(int(count)):
                connection.sendall(words.encode().decode("unicode_escape").encode())
                connection.recv(100)

    def dial(self, port: str) -> None:
        """Connect to a server of this machine."""
        self.connection = socket.create_connection(("127.0.0.1", int(port)))

    def exchange(self, count: str) -> None:
        """That many requests over it, by `write` and `read`, as TLS does."""
        assert self.connection is not None
        descriptor = self.connection.fileno()
        for _ in range(int(count)):
            os.write(descriptor, b"\x17\x03\x03")
            os.read(descriptor, 100)

    def ask(self, url: str, count: str) -> int:
        """Look up that many keys in a shared tier that has none of them: how many were found."""
        with tempfile.TemporaryDirectory() as folder, Cache(folder, secret=bytes(32), shared=url) as cache:
            keys = [cache.key(f"question {n}", modality="text", signature="traced-load-1") for n in range(int(count))]
            return sum(cache.get(key) is not None for key in keys)

    def listen(self) -> str:
        """Take marks: where."""
        load = self

        class Noted:
            def marked(self, mark: Any) -> None:
                load.hot.append(str(mark.key))

        self.marks = Marks(self.cache, [Noted()])
        return str(self.marks.path)

    def heard(self) -> list[str]:
        """Keys marked so far."""
        return self.hot

    def watch(self, name: str) -> None:
        """Let a watcher of this process's own begin; see `traced_watch`."""
        self.watcher = watcher(name, self.cache)

    def unwatch(self) -> list[tuple[str, int]]:
        """Whole keys that it marked, and when, in ns."""
        assert self.watcher is not None
        return self.watcher.end()

    def load(self, path: str) -> dict[str, float]:
        """Reads at set times; path: .npz with `due` [n] int64 (ns from now) and `key` [n] int.

        Writes `at` [n] int64 (ns, monotonic) to path + `.npy`: CPU seconds it took, seconds it took."""
        with np.load(path) as plan:
            due, numbers = plan["due"].tolist(), plan["key"].tolist()
        peek, keys, now = self.cache.peek, self.stored, time.monotonic_ns
        at = [0] * len(due)
        cpu, began = time.process_time_ns(), now()
        for n, (moment, number) in enumerate(zip(due, numbers, strict=True)):
            wait = began + moment - now()
            if wait > 50_000:  # else it is late already, or as good as
                time.sleep(wait / 1e9)
            key = keys[number]
            at[n] = now()
            peek(key)
        took = {"cpu": (time.process_time_ns() - cpu) / 1e9, "seconds": (now() - began) / 1e9}
        np.save(path + ".npy", np.array(at, np.int64))
        return took


def main() -> None:
    """Serve commands until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--stored", type=int, default=100)
    load = Load(parser.parse_args().stored)
    commands: dict[str, Callable[..., object]] = {
        name: getattr(load, name)
        for name in (
            "names",
            "read",
            "each",
            "get",
            "fork",
            "talk",
            "ask",
            "dial",
            "exchange",
            "listen",
            "heard",
            "watch",
            "unwatch",
            "load",
        )
    }
    print(json.dumps({"pid": os.getpid(), "path": str(Path(__file__))}), flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        print(json.dumps(commands[name](*words)), flush=True)
    if load.marks is not None:
        load.marks.close()
    load.cache.close()


if __name__ == "__main__":
    main()
