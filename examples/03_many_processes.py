"""Processes of one machine share a folder: who misses together computes once."""

import multiprocessing
import os
import time

import numpy as np
import numpy.typing as npt

from mmcache import Cache


def embed(text: str) -> npt.NDArray[np.float32]:
    """Leaves a mark each time that it really runs."""
    with open("computed.log", "a", encoding="utf-8") as log:
        log.write(f"{os.getpid()}\n")
    time.sleep(0.2)
    return np.full(256, len(text), np.float32)


def worker(number: int) -> float:
    """One process: open the same folder, ask for the same text."""
    with Cache("cache-folder", disk="1GiB") as cache:
        cached = cache.wrap(embed, modality="text", signature="toy-embedder-1")
        return float(cached("a question that everybody asks").sum())


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        answers = pool.map(worker, range(6), chunksize=1)
    with open("computed.log", encoding="utf-8") as log:
        computed = len(log.readlines())
    assert len(set(answers)) == 1
    assert computed == 1
    print(f"{len(answers)} requests from 3 processes, {computed} computation")
