"""Visits: pages that sessions look at one after another, and the blocks that each page needs.

Shops and walks are generated. Conversations are read from the published Mooncake trace, which names no sessions: those
are inferred from shared prefixes.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mmcache.lab.traces.encoder_costs import CURVES
from mmcache.model.errors import AssetError

SCALE = 16
"""Blocks are kept at a sixteenth of what they weigh, and memory with them, so that a run needs no gigabytes."""
PREFILL_SECONDS = 0.008
"""For a block of 512 tokens: 64,000 tokens a second, so that one server keeps up with the trace."""
KV_BYTES = 4096
"""Of a block of 512 tokens in memory, instead of megabytes."""


@dataclass(frozen=True, slots=True)
class View:
    """A page that somebody looks at. First paint is when all its blocks are there."""

    at: float
    """Seconds."""
    session: str
    blocks: tuple[int, ...]
    """In the order in which they are asked for."""


@dataclass(frozen=True)
class Views:
    """A stream of views."""

    name: str
    views: tuple[View, ...]
    """By time."""
    costs: tuple[float, ...]
    """Seconds that computing a block takes, by block."""
    sizes: tuple[int, ...]
    """Bytes of its features, by block."""

    @property
    def footprint(self) -> int:
        """Bytes of all blocks."""
        return sum(self.sizes)

    @property
    def seconds(self) -> float:
        """From the first view to the last."""
        return self.views[-1].at - self.views[0].at


@dataclass(frozen=True)
class Shop:
    """What a generated shop is like. None of these numbers is from a real shop."""

    categories: int = 10
    products: int = 40
    """A category."""
    listed: int = 8
    """Products whose first picture a category's page shows."""
    gallery: int = 3
    """Pictures of a product, the first one apart, which is on its page."""
    popularity: float = 0.9
    """Exponent of Zipf, of categories and of a category's products."""
    views_a_second: float = 1.0
    think: float = 8.0
    """Seconds between two views of a visitor, median; log-normal."""
    spread: float = 0.8
    """Its sigma."""
    leaves: float = 0.12
    """Probability, after each view."""
    to_gallery: float = 0.55
    """From a product's page."""
    to_related: float = 0.25
    """To one of the three products that its page names; else back to the category."""
    related: tuple[float, ...] = (0.6, 0.3, 0.1)


class _Blocks:
    """Numbers blocks, with the measured cost and weight of their modality."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.sizes: list[int] = []

    def add(self, modality: str, scale: int = 0) -> int:
        curve = CURVES[modality]
        self.costs.append(curve.milliseconds[scale] / 1e3)
        self.sizes.append(max(64, curve.bytes[scale] // SCALE))
        return len(self.costs) - 1


def shop(seed: int, views: int, plan: Shop = Shop()) -> Views:
    """`views` views of visitors who go from a category to its products, their galleries, and related products.

    A category's page needs its text and the first pictures of its best products; a product's its text and first
    picture; its gallery the other pictures.
    """
    rng = np.random.default_rng(seed)
    blocks = _Blocks()
    count = plan.categories * plan.products
    texts = [blocks.add("text", 2) for _ in range(count)]
    firsts = [blocks.add("image") for _ in range(count)]
    galleries = [[blocks.add("image") for _ in range(plan.gallery)] for _ in range(count)]
    heads = [blocks.add("text", 1) for _ in range(plan.categories)]
    related = [
        [category * plan.products + int(other) for other in rng.choice(plan.products, len(plan.related), replace=False)]
        for category in range(plan.categories)
        for _ in range(plan.products)
    ]
    category_share = _zipf(plan.categories, plan.popularity)
    product_share = _zipf(plan.products, plan.popularity)

    def visitor() -> Iterator[tuple[int, ...]]:
        category = int(rng.choice(plan.categories, p=category_share))
        while True:
            first = category * plan.products
            yield (heads[category], *firsts[first : first + plan.listed])
            product = first + int(rng.choice(plan.products, p=product_share))
            while True:
                yield (texts[product], firsts[product])
                draw = rng.random()
                if draw < plan.to_gallery:
                    yield tuple(galleries[product])
                    draw = plan.to_gallery + (1 - plan.to_gallery) * rng.random()
                if draw >= plan.to_gallery + plan.to_related:
                    break
                product = related[product][int(rng.choice(len(plan.related), p=plan.related))]

    return _walked(f"shop-{seed}", rng, visitor, views, plan, blocks)


def noise(seed: int, views: int, plan: Shop = Shop()) -> Views:
    """`views` views of visitors who go from page to page by pure chance: as many pages as `shop` has products, all
    alike; nothing in it can be foreseen."""
    rng = np.random.default_rng(seed)
    blocks = _Blocks()
    pages = [(blocks.add("text", 2), blocks.add("image")) for _ in range(plan.categories * plan.products)]

    def visitor() -> Iterator[tuple[int, ...]]:
        while True:
            yield pages[int(rng.integers(len(pages)))]

    return _walked(f"noise-{seed}", rng, visitor, views, plan, blocks)


def _walked(
    name: str,
    rng: np.random.Generator,
    visitor: Callable[[], Iterator[tuple[int, ...]]],
    views: int,
    plan: Shop,
    blocks: _Blocks,
) -> Views:
    """Visitors come by chance, at the rate that makes `views_a_second`; each looks, thinks, and leaves by chance."""
    found: list[View] = []
    waiting: list[tuple[float, int, Iterator[tuple[int, ...]]]] = []
    arrival, number = 0.0, 0
    while len(found) < views:
        while not waiting or arrival <= waiting[0][0]:
            heapq.heappush(waiting, (arrival, number, visitor()))
            arrival += float(rng.exponential(1 / (plan.views_a_second * plan.leaves)))
            number += 1
        at, who, pages = heapq.heappop(waiting)
        found.append(View(at, f"visitor-{who}", next(pages)))
        if rng.random() >= plan.leaves:
            heapq.heappush(waiting, (at + float(rng.lognormal(np.log(plan.think), plan.spread)), who, pages))
    return Views(name, tuple(found), tuple(blocks.costs), tuple(blocks.sizes))


def _zipf(count: int, exponent: float) -> list[float]:
    shares = np.arange(1, count + 1) ** -exponent
    return [float(share) for share in shares / shares.sum()]


LEAST_SHARED = 2
"""Blocks that two requests of one conversation share, at least: the first one is in all requests of the trace."""


def conversations(folder: Path, requests: int) -> Views:
    """The first `requests` requests of the Mooncake conversation trace; a request is a view of its 512-token blocks.

    A block's number stands for the whole prefix up to it. So a request goes on with the conversation whose request was
    the last to hold the longest prefix that it shares, where that is at least `LEAST_SHARED` blocks long; else it
    begins one. Raises `AssetError` where the file is missing or damaged.
    """
    path = folder / "mooncake/conversation_trace.jsonl"
    if not path.is_file():
        raise AssetError(f"no trace mooncake/{path.name} in {folder}; set MMCACHE_TRACES to the folder of the traces")
    views: list[View] = []
    numbers: dict[int, int] = {}
    last: dict[int, str] = {}
    try:
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                row = json.loads(line)
                hashes: list[int] = row["hash_ids"]
                shared = next((depth for depth, one in enumerate(hashes) if one not in last), len(hashes))
                session = last[hashes[shared - 1]] if shared >= LEAST_SHARED else f"conversation-{len(views)}"
                last.update(dict.fromkeys(hashes, session))
                blocks = tuple(numbers.setdefault(one, len(numbers)) for one in hashes)
                views.append(View(row["timestamp"] / 1e3, session, blocks))
                if len(views) >= requests:
                    break
    except (ValueError, LookupError, TypeError) as error:
        raise AssetError(f"{path} is damaged or another file than the published one: {error}") from error
    count = len(numbers)
    return Views("mooncake", tuple(views), (PREFILL_SECONDS,) * count, (KV_BYTES,) * count)
