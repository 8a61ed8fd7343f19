"""Streams of requests, each for several blocks, with what a router would route them by."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mmcache.lab.traces import published
from mmcache.lab.traces.trace import Ids, Integers, renumber
from mmcache.model.errors import AssetError


@dataclass(frozen=True)
class Stream:
    """n uses of blocks, in order, by r requests."""

    name: str
    ids: Ids
    """uint32 [n]: the block, numbered by first appearance."""
    requests: Integers
    """int64 [n]: the request, not falling."""
    affinity: Integers
    """int64 [r]: what requests that share blocks have in common; a router may send them to one engine."""

    @property
    def blocks(self) -> int:
        """How many different ones."""
        return int(self.ids.max()) + 1

    def part(self, chosen: npt.NDArray[np.bool_]) -> Stream:
        """The uses by `chosen` requests, bool [r]; requests keep their numbers."""
        mine = chosen[self.requests]
        return Stream(self.name, renumber(self.ids[mine]), self.requests[mine], self.affinity)

    def first(self, uses: int) -> Stream:
        """The first `uses`, and the requests that they belong to."""
        if uses >= len(self.ids):
            return self
        requests = self.requests[:uses]
        return Stream(self.name, self.ids[:uses], requests, self.affinity[: int(requests[-1]) + 1])


def read(folder: Path | None, uses: int | None, seed: int) -> list[Stream]:
    """Mooncake's conversations and a shop's pages; made-up ones where `folder` is None. Raises `AssetError`."""
    found = [_made_up(seed)] if folder is None else [_conversations(folder), _pages(folder)]
    return [stream.first(uses) for stream in found] if uses else found


def _conversations(folder: Path) -> Stream:
    path = folder / published.PUBLISHED["mooncake"].file
    try:
        rows = [json.loads(line)["hash_ids"] for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, LookupError) as error:
        raise AssetError(f"{path} cannot be read: {error}; set MMCACHE_TRACES to the folder of the traces") from error
    counts = np.array([len(row) for row in rows])
    # All begin with one system prompt, so that the second block is the first that tells conversations apart.
    affinity = np.array([row[min(1, len(row) - 1)] for row in rows], np.int64)
    blocks = renumber(np.concatenate([np.asarray(row, np.int64) for row in rows]))
    return Stream("conversations", blocks, np.repeat(np.arange(len(rows)), counts), affinity)


def _pages(folder: Path) -> Stream:
    trace = published.read("web12", folder)
    return Stream("pages", trace.ids, np.arange(len(trace)), trace.ids.astype(np.int64))


def _made_up(seed: int, requests: int = 1500, most: int = 40) -> Stream:
    """Conversations that grow turn by turn behind one system prompt."""
    random = np.random.default_rng(seed)
    ids: list[int] = []
    owners: list[int] = []
    affinity: list[int] = []
    talks: list[list[int]] = []
    fresh = 1
    for request in range(requests):
        if not talks or random.random() < 0.4:
            talks.append([0])
        talk = talks[-1 - int(min(len(talks) - 1, random.exponential(20)))]
        grown = int(random.integers(1, 8))
        talk += range(fresh, fresh + grown)
        fresh += grown
        ids += talk[:most]
        owners += [request] * len(talk[:most])
        affinity.append(talk[1])
    return Stream("made up", renumber(np.array(ids)), np.array(owners), np.array(affinity))
