"""Arms of table `placement`: where blocks lie when nobody cares, when they were laid once, and when they are moved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mmcache.lab.measure import interleave
from mmcache.lab.placement_stream import LANGUAGES, PAGE, Block, Corpus, Request
from mmcache.placement.arena import Arena, PageList, runs, scattered
from mmcache.placement.moves import Mover, Price, ordered
from mmcache.placement.ordering import Together, chains

SPARE = 1.1
"""Pages of the arena, of those that blocks take."""
EVERY, PAGES = 32, 64
"""Requests between two ticks, and pages that a tick may copy."""


@dataclass
class Arm:
    """One arena, and what was measured of it."""

    arena: Arena
    lists: dict[Block, PageList]
    mover: Mover | None = None
    shares: list[float] = field(default_factory=list)
    """Fragmentation of each request, 0…1."""
    cuts: list[int] = field(default_factory=list)
    """Runs of each request."""
    ticks: list[float] = field(default_factory=list)
    """Seconds of CPU time."""
    copied: int = 0

    def pages(self, request: Request) -> list[int]:
        """Page numbers, as they are gathered."""
        return [page for block in request.blocks for page in self.lists[block].pages]

    def serve(self, requests: Sequence[Request]) -> None:
        """Count where each request's pages lie; move some between requests."""
        for number, request in enumerate(requests):
            pages = sorted(self.pages(request))
            self.shares.append(scattered(pages) / len(pages))
            self.cuts.append(runs(pages))
            if self.mover is not None:
                self.mover.used(request.blocks)
                if number % EVERY == EVERY - 1:
                    start = time.thread_time()
                    self.copied += self.mover.tick(PAGES).copied
                    self.ticks.append(time.thread_time() - start)

    def whole(self, corpus: Corpus) -> bool:
        """Whether every block still says what it said."""
        return all(np.array_equal(self.arena.gather(self.lists[name]), block) for name, block in corpus.blocks.items())


def arrivals(corpus: Corpus, seed: int) -> list[Block]:
    """Blocks in the order in which they came: by chance."""
    blocks = list(corpus.blocks)
    return [blocks[i] for i in np.random.default_rng(seed).permutation(len(blocks)).tolist()]


def likeness(corpus: Corpus, seed: int, share: float = 0.3) -> list[Block]:
    """All blocks, those side by side that lie near each other in the space that the first `share` of all pairs gave.

    It cannot know which language will be asked for, so each picture has its texts of both.
    """
    seen = np.random.default_rng(seed).permutation(len(corpus))[: max(8, round(share * len(corpus)))]
    space, expected = corpus.space(seen), Together()
    near = {language: corpus.near(space, language) for language in LANGUAGES}
    for picture in range(len(corpus)):
        for language in LANGUAGES:
            expected.used([("picture", picture), *((language, int(text)) for text in near[language][picture])])
    return list(ordered(chains(expected.edges()), arrivals(corpus, seed)))


def arm(corpus: Corpus, order: Sequence[Block], price: Price | None = None) -> Arm:
    """Blocks stored in that order; moved where there is a price."""
    need = sum(-(-len(block) // PAGE[0]) for block in corpus.blocks.values())
    arena = Arena(round(SPARE * need), PAGE)
    made = Arm(arena, {name: arena.store(corpus.blocks[name]) for name in order})
    if price is not None:
        made.mover = Mover(arena, Together(horizon=1024), price=price)
        for name, page_list in made.lists.items():
            made.mover.add(name, page_list)
    return made


def churned(corpus: Corpus, seed: int) -> Arm:
    """As blocks lie after a while: a third of them left and came again, three times, wherever there was room."""
    made, random = arm(corpus, arrivals(corpus, seed)), np.random.default_rng(seed)
    names = list(made.lists)
    for _ in range(3):
        leaving = [names[i] for i in random.permutation(len(names))[: len(names) // 3].tolist()]
        for name in leaving:
            made.arena.release(made.lists.pop(name))
        for i in random.permutation(len(leaving)).tolist():
            made.lists[leaving[i]] = made.arena.store(corpus.blocks[leaving[i]])
    return made


def measured_price(corpus: Corpus) -> Price:
    """What a seam costs a gather, and a move a page, on this machine: medians, seconds of CPU time."""
    arena = Arena(4096, PAGE)  # larger than the caches
    lists = [arena.store(np.zeros(PAGE, np.float16)) for _ in range(4096)]
    random, count = np.random.default_rng(0), 20
    out = np.empty((count, *PAGE), np.float16)
    starts = iter(random.integers(0, 4096 - count, 1 << 20).tolist())
    apart = iter(random.integers(0, 4096, (1 << 16, count)).tolist())

    def together() -> None:
        start = next(starts)
        arena.gather_pages(lists[start : start + count], out)

    def scattered_pages() -> None:
        arena.gather_pages([lists[i] for i in dict.fromkeys(next(apart))], out)

    spare = Arena(4096, PAGE)
    touched = [spare.store(np.zeros(PAGE, np.float16)) for _ in range(4096)]  # or the first move there pays for it
    moving = touched[0]
    for page_list in touched[1:]:
        spare.release(page_list)
    targets = iter(random.integers(0, 4096, 1 << 20).tolist())

    def move() -> None:
        spare.move(moving, 0, next(targets))

    times = interleave(
        {"together": together, "apart": scattered_pages, "move": move},
        rounds=31,
        least_seconds=0.01,
        clock=time.thread_time,
    )
    seam = (times["apart"].median - times["together"].median) / (count - 1)
    return Price(max(seam, 1e-9), times["move"].median)
