"""In asyncio: a hundred tasks that want the same thing cause one computation, and nothing blocks the loop."""

import asyncio

import numpy as np
import numpy.typing as npt

from mmcache import Cache

calls = 0


async def embed(text: str) -> npt.NDArray[np.float32]:
    """Stands for a request to a model server."""
    global calls
    calls += 1
    await asyncio.sleep(0.05)
    return np.full(64, len(text), np.float32)


async def main() -> None:
    """A burst of equal requests."""
    with Cache(memory="64MiB") as cache:
        encode = cache.wrap(embed, modality="text", signature="toy-server-1")
        answers = await asyncio.gather(*(encode.a("breaking news") for _ in range(100)))
        assert all(np.array_equal(answer, answers[0]) for answer in answers)
        print(f"{len(answers)} tasks, {calls} computation")


asyncio.run(main())
assert calls == 1
