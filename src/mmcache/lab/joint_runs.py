"""A stream of requests through one way of keying retrievals: what hit, what was wrong, how long the cache was cold."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mmcache.cache import Cache
from mmcache.keys.joint import published_key
from mmcache.lab.joint_corpus import Embeddings, Store
from mmcache.lab.joint_stream import Request
from mmcache.retrieval import Locator, Retrieval, Tolerance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmcache.retrieval.queries import Strategy

K = 10
"""Documents a lookup asks for."""
WINDOW = 100
"""Requests over which a hit rate is taken."""
SHARE = 0.9
"""Of the rate before: when the next `WINDOW` requests reach it, the cache is no longer cold."""


@dataclass(frozen=True)
class Costs:
    """Median CPU seconds of each hop, one thread, measured in the same run: wall time on a machine that is not busy."""

    picture: float
    text: float
    search: float
    lookup: float
    """Of a lookup that hits."""


@dataclass
class Run:
    """What each request met. `seconds` are hops counted times what a hop costs: real costs, virtual time."""

    hits: list[bool] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    near: int = 0
    wrong: int = 0
    """Near hits with another first document than the store's."""
    overlap: float = 0.0
    """Sum over near hits: share of the store's documents that were served."""
    lost: int = 0
    """Near hits without the figure asked about among their documents, where the store's had it."""
    seconds: list[float] = field(default_factory=list)
    change: int = 0
    """Place of the first request after the corpus changed."""
    refresh: float = 0.0
    """Seconds that refilling took."""

    def rate(self) -> float:
        """Per cent of all requests before the change."""
        return 100.0 * float(np.mean(self.hits[: self.change]))

    def gap(self, start: int) -> float:
        """Seconds of serving from request `start` until the cache is no longer cold; `refresh` counts after a change.

        It is cold until the `WINDOW` requests that come next hit at `SHARE` of the rate before the change (that of
        the 5 windows before it).
        """
        goal = SHARE * float(np.mean(self.hits[max(0, self.change - 5 * WINDOW) : self.change]))
        sums = np.cumsum([0, *self.hits])
        last = len(self.hits) - WINDOW
        warm = next((n for n in range(start, last + 1) if (sums[n + WINDOW] - sums[n]) / WINDOW >= goal), last)
        return sum(self.seconds[start:warm]) + (self.refresh if start == self.change else 0.0)


Answer = Callable[[Request], tuple[list[int], bool, bool]]
"""Documents; whether neither key nor store was asked anew (a hit); whether it was a near one."""


class Counted:
    """Encoders whose runs are counted; what they compute comes from `Embeddings`."""

    def __init__(self, embeddings: Embeddings) -> None:
        self.embeddings = embeddings
        self.pictures = self.texts = 0

    def picture(self, picture: Any) -> Any:
        """As `Embeddings.picture`."""
        self.pictures += 1
        return self.embeddings.picture(picture)

    def words(self, text: str) -> Any:
        """As `Embeddings.words`."""
        self.texts += 1
        return self.embeddings.words(text)


@contextmanager
def retrieval(
    embeddings: Embeddings,
    store: Callable[[], Store],
    *,
    near: Tolerance | None,
    strategy: Strategy = "joint",
    observe: bool = False,
    locator: Locator | None = None,
    folder: Path | None = None,
) -> Iterator[tuple[Retrieval, Counted]]:
    """The product in front of the store: statistics of the corpus, checks left to the table; on disk with a folder."""
    counted = Counted(embeddings)
    with Cache(folder, memory="256MiB", disk="1GiB") as cache:
        yield (
            Retrieval(
                cache,
                picture=cache.wrap(
                    counted.picture, modality="image", signature=embeddings.image.signature, guard=False
                ),
                text=cache.wrap(counted.words, modality="text", signature=embeddings.text.signature, guard=False),
                search=lambda picture, text, k: store().search(picture, text, k),
                corpus="0",
                near=near,
                strategy=strategy,
                check_share=0.0,
                observe=observe,
                alignment=store().alignment,
                locator=locator,
            ),
            counted,
        )


def through_product(
    embeddings: Embeddings,
    stores: Sequence[Store],
    stream: Sequence[Request],
    costs: Costs,
    *,
    near: Tolerance | None,
    strategy: Strategy = "joint",
    refresh: bool = False,
    locator: Locator | None = None,
) -> Run:
    """Half of the stream on `stores[0]`; then the corpus changes to `stores[1]`, refilled where `refresh`."""
    run, current = Run(change=len(stream) // 2), [stores[0]]
    with retrieval(embeddings, lambda: current[0], near=near, strategy=strategy, locator=locator) as (look_up, counted):
        _serve(run, look_up, counted, stream[: run.change], current[0], costs)
        current[0] = stores[1]
        look_up.changed("1")
        if refresh:
            start = time.process_time()
            look_up.refresh()
            run.refresh = time.process_time() - start
        _serve(run, look_up, counted, stream[run.change :], current[0], costs)
    return run


def through_a_restart(
    embeddings: Embeddings, store: Store, stream: Sequence[Request], costs: Costs, near: Tolerance | None
) -> Run:
    """Half of the stream, then the process ends; the other half in a new one on the same folder."""
    run = Run(change=len(stream) // 2)
    with tempfile.TemporaryDirectory(prefix="mmcache-joint-") as folder:
        for part in (stream[: run.change], stream[run.change :]):
            start = time.process_time()
            with retrieval(embeddings, lambda: store, near=near, folder=Path(folder)) as (look_up, counted):
                run.refresh = time.process_time() - start  # opening, and taking up the remembered queries
                _serve(run, look_up, counted, part, store, costs)
                look_up.save()
    return run


def _serve(
    run: Run, look_up: Retrieval, counted: Counted, stream: Sequence[Request], store: Store, costs: Costs
) -> None:
    for request in stream:
        before = counted.pictures, counted.texts, store.searches, look_up.report().near
        documents = look_up(request.picture, request.words, K)
        searched = store.searches - before[2]
        run.hits.append(not searched)
        run.kinds.append(request.kind)
        run.seconds.append(
            costs.lookup
            + (counted.pictures - before[0]) * costs.picture
            + (counted.texts - before[1]) * costs.text
            + searched * costs.search
        )
        if look_up.report().near > before[3]:
            compare(run, documents, truth(counted.embeddings, store, request), request.figure)


def truth(embeddings: Embeddings, store: Store, request: Request) -> list[int]:
    """What the store itself says; not counted."""
    before = store.searches
    found = store.search(embeddings.picture(request.picture), embeddings.words(request.words), K)
    store.searches = before
    return found


def compare(run: Run, served: Sequence[int], right: Sequence[int], figure: int) -> None:
    """Count a near hit."""
    run.near += 1
    run.wrong += served[0] != right[0]
    run.overlap += len(set(served) & set(right)) / len(right)
    run.lost += figure in right and figure not in served


def through_published_key(
    embeddings: Embeddings, stores: Sequence[Store], stream: Sequence[Request], costs: Costs
) -> Run:
    """The published key in front of the same store: both embeddings are computed for every request."""
    run, held, store = Run(change=len(stream) // 2), dict[bytes, list[int]](), stores[0]
    for place, request in enumerate(stream):
        if place == run.change:
            store, held = stores[1], {}
        vectors = embeddings.picture(request.picture), embeddings.words(request.words)
        key = published_key(*vectors)
        hit = key in held
        if not hit:
            held[key] = store.search(*vectors, K)
        run.hits.append(hit)
        run.kinds.append(request.kind)
        run.seconds.append(costs.picture + costs.text + costs.lookup + (not hit) * costs.search)
    return run
