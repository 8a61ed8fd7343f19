"""The control of table `qos`: the export's model at full blast in a process of its own, which shares nothing but cores.

What it costs the lookups is the machine's part of what the export costs them, and no slots or classes can change it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mmcache.lab import data
from mmcache.lab.models import ImageEncoder
from mmcache.model.errors import AssetError
from mmcache.niceness import giving_way


@contextmanager
def encoding_apart(nice: int) -> Iterator[None]:
    """Inside, such a process encodes pages in one thread. Raises `AssetError` where it does not start."""
    command = [sys.executable, "-m", "mmcache.lab.qos_apart", str(nice)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            if not process.stdout.readline():
                raise AssetError(f"the control of table `qos` did not start; run it to see why: {' '.join(command)}")
            yield
        finally:
            process.kill()


def encode_pages(nice: int) -> None:
    """Say that the model is loaded, and encode until killed."""
    image, pictures = ImageEncoder(threads=1), list(data.frames("bikes", 0, 64, 2))
    image.load()
    with giving_way(nice):
        print("encoding", flush=True)
        while True:
            for picture in pictures:
                image.encode(picture)


if __name__ == "__main__":
    encode_pages(int(sys.argv[1]))
