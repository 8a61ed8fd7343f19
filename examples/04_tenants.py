"""Tenants never see each other's blocks, not even of the same picture; one can be erased without a trace."""

import numpy as np
import numpy.typing as npt

from mmcache import Cache

calls: list[str] = []


def embed(text: str) -> npt.NDArray[np.float32]:
    """Notes what it really computed."""
    calls.append(text)
    return np.full(8, len(text), np.float32)


with Cache(memory="64MiB") as cache:
    encode = cache.wrap(embed, modality="text", signature="toy-embedder-1")
    acme, globex = encode.options(tenant="acme"), encode.options(tenant="globex")

    acme("the quarterly figures")
    globex("the quarterly figures")  # the same words, another realm: computed again
    acme("the quarterly figures")
    assert len(calls) == 2
    assert acme.key("x") != globex.key("x"), "keys are salted with the tenant: nobody can probe another's cache"

    dropped = cache.invalidate(acme.key("the quarterly figures"))
    globex("the quarterly figures")
    assert len(calls) == 2, "the other tenant's block is untouched"
    print(f"{len(calls)} computations for 4 requests of 2 tenants; {dropped} block of acme dropped")
    print("On disk: `mmcache purge --tenant acme` erases a tenant's bytes and says how many.")
