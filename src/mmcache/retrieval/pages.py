"""Remembered queries as blocks: plain values that the cache can store, so that they outlive the process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from mmcache.keys.joint import Floats
from mmcache.retrieval.queries import Query

PAGE_FORMAT = "page 2"
"""Part of a page's key, so that what another format wrote is not found. Page 1 had no words."""
PAGE = 256
"""Queries in one block: under 1 MB for two encoders of 384 dimensions."""


def pages(queries: Iterable[Query]) -> Iterator[dict[str, Any]]:
    """Blocks of at most `PAGE` queries, in their order."""
    waiting: list[Query] = []
    for query in queries:
        waiting.append(query)
        if len(waiting) == PAGE:
            yield _page(waiting)
            waiting = []
    if waiting:
        yield _page(waiting)


def _page(queries: list[Query]) -> dict[str, Any]:
    names = [
        {
            "digest": query.digest.hex(),
            "group": query.group.hex(),
            "k": query.k,
            "arguments": dict(query.arguments),
            "words": query.words,
            "keys": [None if key is None else key.hex() for key in (query.picture, query.text)],
        }
        for query in queries
    ]
    sides = [
        [one for one in side if one is not None] for side in zip(*(query.vectors for query in queries), strict=True)
    ]
    return {"names": names, "vectors": [np.stack(side) if side else np.empty((0, 0), np.float32) for side in sides]}


def queries(page: Mapping[str, Any]) -> Iterator[Query]:
    """What `pages` packed."""
    vectors = [iter(side) for side in page["vectors"]]
    for name in page["names"]:
        keys = [None if key is None else bytes.fromhex(key) for key in name["keys"]]
        found: list[Floats | None] = [
            None if key is None else next(side) for key, side in zip(keys, vectors, strict=True)
        ]
        yield Query(
            bytes.fromhex(name["digest"]), bytes.fromhex(name["group"]), name["k"], name["arguments"],
            keys[0], keys[1], name["words"], (found[0], found[1]),
        )  # fmt: skip
