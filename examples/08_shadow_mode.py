"""Prove it on your own traffic first: look up, always compute, compare, serve the computed value."""

import itertools

import numpy as np
import numpy.typing as npt

from mmcache import Cache

noise = itertools.count()


def steady(text: str) -> npt.NDArray[np.float32]:
    """The same answer each time."""
    return np.full(16, len(text), np.float32)


def shaky(text: str) -> npt.NDArray[np.float32]:
    """An encoder that is not deterministic: dropout left on, say."""
    return np.full(16, len(text) + 1e-3 * next(noise), np.float32)


with Cache(memory="64MiB", mode="shadow") as cache:
    good = cache.wrap(steady, modality="text", signature="steady-1", guard=False)
    bad = cache.wrap(shaky, modality="text", signature="shaky-1", guard=False)
    for text in ("a", "bb", "a", "bb", "a"):
        good(text)
        bad(text)
    stats = cache.stats()
    print(f"would have hit {stats.hits} of {stats.hits + stats.misses} requests")
    print(f"checked {stats.checked} hits against recomputation, {stats.differed} differed: the shaky encoder's")
    assert stats.differed == 3

    cache.switch("on")  # from here on hits are served; `switch("off")` is the kill switch
    good("a")
    assert cache.stats().checked == stats.checked
