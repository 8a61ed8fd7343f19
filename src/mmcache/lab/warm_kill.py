"""A process that warms a video with plain models, and is killed in the middle (`kill -9`): for tests and table `warm`.

`python -m mmcache.lab.warm_kill ROOT VIDEO STOP` says `here` before its computation number STOP, and waits.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmcache.cache import Cache
from mmcache.encoder import Encoder
from mmcache.lab import warm_models
from mmcache.model.errors import MMCacheError
from mmcache.prefetch.media import warm_video


class Calls:
    """Counts computations; `before` is told the number of each before it begins."""

    def __init__(self, before: Callable[[int], None] | None = None) -> None:
        self.total = 0
        self._before = before

    def encoders(self, cache: Cache) -> dict[str, Encoder]:
        """Plain models that count, with the signatures that those have in every process."""
        return {name: self._wrapped(cache, plain) for name, plain in warm_models.make(cache).items()}

    def _wrapped(self, cache: Cache, plain: Encoder) -> Encoder:
        def call(given: Any) -> Any:
            self.total += 1
            if self._before is not None:
                self._before(self.total)
            return plain.__wrapped__(given)

        return cache.wrap(call, modality=plain.signature.modality, signature=plain.signature, guard=False)


def kill(root: Path, video: Path, stop: int) -> None:
    """Let a process warm `video`, and kill it before its computation number `stop`. Raises `MMCacheError`."""
    words = [sys.executable, "-m", "mmcache.lab.warm_kill", str(root), str(video), str(stop)]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        said = child.stdout.readline()
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
    if said != "here\n":
        raise MMCacheError(f"it ended before its computation number {stop}")


def main(root: str, video: str, stop: str) -> None:
    """What the process does."""

    def before(number: int) -> None:
        if number == int(stop):
            print("here", flush=True)
            sys.stdin.read()  # until it is killed

    with Cache(root) as cache:
        warm_video(cache, video, Calls(before).encoders(cache))


if __name__ == "__main__":
    main(*sys.argv[1:])
