"""The product's own flow, `Cache.ask`, under the table's streams: hits, lookup times, calls of the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.cache import Cache
from mmcache.lab.semantic_contender import TextVector
from mmcache.lab.semantic_stream import Request, picture, same_answer
from mmcache.lab.semantic_words import Corpus, Tally
from mmcache.lab.table import Progress, silent
from mmcache.semantic.prompt import Prompt
from mmcache.semantic.settings import Reply, Semantic

Floats = npt.NDArray[np.float32]

MODEL = "oracle 1"
EMBEDDER = "multilingual-e5-small 4 bits"
MEMORY = 1 << 30
WARM = 1200
"""Outcomes, all right, before a neighbourhood counts as calibrated in the rows on lookups and coalescing."""
CALLERS = 16


class Ours:
    """`Cache.ask` with pictures."""

    name = "ours"

    def __init__(self, text: TextVector, max_error: float = 0.01, **settings: Any) -> None:
        self.cache = Cache(
            memory=MEMORY,
            semantic=Semantic(max_error, text=text, embedder=EMBEDDER, judge=same_answer, **settings),
        )

    def ask(self, request: Request, compute: Callable[[], str]) -> str:
        """See `Contender.ask`."""
        return str(self.reply(request, compute).value)

    def reply(self, request: Request, compute: Callable[[], str]) -> Reply:
        """With its source."""
        prompt = Prompt(request.text, pictures=[picture(request.picture, request.variant)])
        return self.cache.ask(prompt, lambda _: compute(), model=MODEL)

    def close(self) -> None:
        """Close the cache."""
        self.cache.close()


@contextmanager
def asking(vectors: Mapping[str, Floats], max_error: float, **settings: Any) -> Iterator[Callable[..., Reply]]:
    """A cache for texts whose embeddings are known: `ask(text, compute)`."""
    semantic = Semantic(max_error, text=vectors.__getitem__, embedder=EMBEDDER, **settings)
    cache = Cache(memory=MEMORY, semantic=semantic)

    def ask(text: str, compute: Callable[[], Any]) -> Reply:
        return cache.ask(Prompt(text), lambda _: compute(), model=MODEL)

    try:
        yield ask
    finally:
        cache.close()


def by_flow(corpus: Corpus, order: Sequence[int], max_error: float) -> Tally:
    """The product on a stream of words."""
    tally = Tally()
    vectors = dict(zip(corpus.texts, corpus.vectors, strict=True))
    with asking(vectors, max_error) as ask:
        for text in order:
            tally.requests += 1
            meaning = corpus.meanings[text]
            reply = ask(corpus.texts[text], lambda meaning=meaning: meaning)
            tally.exact += reply.source == "exact"
            if reply.source == "near":
                tally.hit(reply.value != meaning)
    return tally


def traps(
    corpus: Corpus, order: Sequence[int], max_error: float, pairs: Sequence[tuple[str, str]], vectors: Floats
) -> list[bool]:
    """Whether the second of each pair was served the first's answer, by a cache that has learned from another stream.

    vectors: float32 [2 × pairs, 384], first and second in turn.
    """
    known = dict(zip(corpus.texts, corpus.vectors, strict=True))
    known.update(zip([text for pair in pairs for text in pair], vectors, strict=True))
    served = []
    with asking(known, max_error) as ask:
        for text in order:
            ask(corpus.texts[text], lambda meaning=corpus.meanings[text]: meaning)
        for number, (first, second) in enumerate(pairs):
            ask(first, lambda number=number: f"first {number}")
            served.append(ask(second, lambda number=number: f"second {number}").value == f"first {number}")
    return served


# Lookups ------------------------------------------------------------------------------------------------------------


def lookups(vectors: Floats, stored: int, asked: int, progress: Progress = silent, seed: int = 0) -> list[float]:
    """Seconds of each `ask` that ends in a near hit among `stored` answers, its embedding excluded.

    Texts and vectors: real ones, varied by a made-up word and by noise; they are asked with a question mark added.
    """
    draw = np.random.default_rng(seed)
    book: dict[str, Floats] = {}
    names = [_varied(number, len(vectors)) for number in range(stored)]
    for number, name in enumerate(names):
        book[name] = _noisy(vectors[number % len(vectors)], 0.35, draw)
    picked = draw.choice(stored, WARM + asked, replace=stored < WARM + asked)
    for number in picked:
        book[f"{names[number]}?"] = _noisy(book[names[number]], 0.05, draw)
    seconds: list[float] = []
    with asking(book, 0.05, check_share=0.01, least_similarity=0.97) as ask:  # others stay below, so none is compared
        for number, name in enumerate(names):
            ask(name, lambda number=number: number)
            if number % 5000 == 4999:
                progress("store answers", number + 1, stored)
        for number in picked:
            text = f"{names[number]}?"
            start = perf_counter()
            reply = ask(text, lambda number=number: int(number))
            if reply.source == "near":
                seconds.append(perf_counter() - start)
    return seconds


def _varied(number: int, base: int) -> str:
    """A text of its own; letters, since numbers are gated."""
    letters = "".join("abcdefghijklmnopqrstuvwxyz"[number // 26**place % 26] for place in range(5))
    return f"what does the sensor {letters} in room {letters[::-1]} say of {'abcdefghij'[number % base % 10]}"


def _noisy(vector: Floats, amount: float, draw: np.random.Generator) -> Floats:
    noise = draw.standard_normal(len(vector)).astype(np.float32)
    found = vector + np.float32(amount) * noise / np.linalg.norm(noise)
    unit: Floats = (found / np.linalg.norm(found)).astype(np.float32)
    return unit


# Coalescing ---------------------------------------------------------------------------------------------------------


def calls(near: bool, repeats: int) -> list[int]:
    """How often the model is called for `CALLERS` concurrent misses: identical, or in as many wordings of one meaning.

    The neighbourhood is calibrated: a stream of nearly equal wordings has been right before. Hits are drawn for checks
    at the least share that there is, since a follower that checks is a second call.
    """
    draw = np.random.default_rng(0)
    names = [_varied(number, 7) for number in range(WARM + repeats)]
    book = {name: _noisy(draw.standard_normal(384).astype(np.float32), 0.0, draw) for name in names}
    for name in names:
        book.update({name + "?" * n: _noisy(book[name], 0.02, draw) for n in range(1, CALLERS)})
    with asking(book, 0.05, check_share=0.001) as ask:
        for name in names[:WARM]:
            for end in ("", "?", "??", "???"):
                ask(name + end, lambda name=name: name)
        return [_concurrently(ask, [name + "?" * n if near else name for n in range(CALLERS)]) for name in names[WARM:]]


def _concurrently(ask: Callable[..., Reply], texts: Sequence[str]) -> int:
    """Ask all at once; how many of them computed."""
    called = 0
    lock, ready, release = threading.Lock(), threading.Barrier(len(texts)), threading.Event()

    def compute() -> str:
        nonlocal called
        with lock:
            called += 1
        release.wait(5.0)
        return "answer"

    def caller(text: str) -> Any:
        ready.wait()
        return ask(text, compute).value

    with ThreadPoolExecutor(len(texts)) as pool:
        found = [pool.submit(caller, text) for text in texts]
        _settled(lambda: called)
        release.set()
        if {one.result() for one in found} != {"answer"}:
            raise AssertionError("callers that waited for one answer got others")
    return called


def _settled(count: Callable[[], int]) -> None:
    """Wait until no further caller begins to compute for a while, so that all who would have had the time to."""
    seen, since = count(), perf_counter()
    pause = threading.Event()
    while perf_counter() - since < 0.5:
        pause.wait(0.02)
        if count() != seen:
            seen, since = count(), perf_counter()
