"""With a folder, what was computed outlives the process."""

import subprocess
import sys
import time

import numpy as np
import numpy.typing as npt

from mmcache import Cache


def embed(text: str) -> npt.NDArray[np.float32]:
    """Stands for a text model that takes a moment."""
    time.sleep(0.1)
    return np.frombuffer(text.encode().ljust(64)[:64], np.uint8).astype(np.float32)


def main() -> None:
    """One run of a program: three texts."""
    with Cache("cache-folder", memory="64MiB", disk="1GiB") as cache:
        cached = cache.wrap(embed, modality="text", signature="toy-embedder-1")
        start = time.perf_counter()
        for text in ("a cat", "a dog", "a bird"):
            cached(text)
        computes = cache.stats().computes
        print(f"{computes} computations in {1000 * (time.perf_counter() - start):.1f} ms")


if __name__ == "__main__":
    if "again" in sys.argv:
        main()
    else:
        main()
        subprocess.run([sys.executable, __file__, "again"], check=True)  # a new process: 0 computations
