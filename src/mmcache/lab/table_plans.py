"""Table `plans`: what a lookup takes, by the general path and by a plan compiled for its combination (B6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import thread_time
from typing import ClassVar

import numpy as np

from mmcache.attribution import attributed
from mmcache.cache import Cache
from mmcache.lab.measure import Timing, busy, interleave, machine
from mmcache.lab.plans_calls import call_rows
from mmcache.lab.plans_graphs import available
from mmcache.lab.plans_recurring import EVERY, RECURRENCES, Plans
from mmcache.lab.plans_wired import wire
from mmcache.lab.table import Progress, Result, Row, Table
from mmcache.model.errors import IntegrityError
from mmcache.model.key import Key

PARTS = (1, 2, 3, 4, 6, 8)
PUBLISHED_LAUNCHES = 37.0
"""Per cent of launch overhead that a CUDA graph saved."""
LEAST_GAIN = 1.0
"""A plan must be faster than the general path."""
MODALITIES = ("image", "text")


class PlansTable(Table):
    """General against compiled."""

    name: ClassVar[str] = "plans"
    title: ClassVar[str] = "Plans: whole calls and single lookups, by the general path and compiled for what recurs"
    remark: ClassVar[str] = (
        "**Removed from the product**: it may stay only when a whole call of hits gets 5 % faster and a call that it "
        "cannot answer loses less than 2 %. `call`: whole calls of encoders (`ratio`: with plans ÷ without; "
        "`unplanned`: plans are in, but none for this call; `misses`: nothing is known, so no plan can answer). "
        "A picture and its OCR text are two encoders, so two lookups: no plan sees the combination, and "
        "finding out what the bytes are takes most of the call. A text alone is answered faster, but loses several "
        "per cent where no plan is in. Below are lookups alone. `hit`: all parts are in memory. `miss`: the last one "
        "is nowhere, so the plan gives up and the general path does all of it: `ratio` says what that costs. "
        "`unplanned`: no plan is in, and the question whether one is costs that much. `keys/2`: making both keys, "
        "which precedes a lookup of two. All are CPU times of the calling thread. That both paths give the same "
        "values, events, counters, miss reasons and errors is a property (`tests/parity/test_plans.py`), held on what "
        "is measured here (`mmcache.lab.plans_wired`). CUDA graphs (`mmcache.lab.plans_graphs`) are captured behind a "
        "capability check and were not measured here: no GPU."
    )
    default_seeds: ClassVar[tuple[int, ...]] = (0,)

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Raises `IntegrityError` should a plan not be used where it is measured."""
        warning, rounds = busy(), 41 if quick else 301
        rows: list[Row] = call_rows(rounds)
        for done, parts in enumerate(PARTS[:3] if quick else PARTS):
            rows += _rows(parts, rounds)
            progress("lookups", done + 1, len(PARTS))
        rows += [_keys(rounds), *_launches()]
        return Result(
            self.name, quick, tuple(seeds),
            (
                "encoders and `Answers.look_up` of a real cache, alone and behind plans, interleaved in one run: "
                f"medians of {rounds} rounds of CPU time of the calling thread",
                f"plans came in by themselves, after {RECURRENCES} sightings of one lookup in {EVERY}",
                machine(),
            ),
            (
                "models give constants: float16 [257, 384] of a picture, float32 [384] of a text; of lookups alone, "
                "parts are of two models by turns, and values are arrays [4, 8]",
                *warning,
            ),
            tuple(rows),
        )  # fmt: skip


def _rows(parts: int, rounds: int) -> list[Row]:
    with Cache(memory="64MiB") as cache:
        answers = cache.answers
        plans = Plans(cache._store, cache.scopes, cache._tally, cache.events, cache.clock)
        elsewhere = Plans(cache._store, cache.scopes, cache._tally, cache.events, cache.clock, recurrences=1 << 60)
        held = [_key(cache, n) for n in range(parts)]
        absent = [*held[:-1], _key(cache, parts - 1 + 1000 * len(MODALITIES))]
        for key in held:
            cache.put(key, np.ones((4, 8), np.float32), cost=0.01)

        def planned(keys: list[Key], found: Plans = plans) -> Callable[[], object]:
            wire(answers, found)
            look_up = answers.look_up
            wire(answers, None)
            return lambda: look_up(keys)

        for _ in range(2 * RECURRENCES * EVERY):
            planned(held)()
        if plans.look_up(held) is None or plans.look_up(absent) is not None:
            raise IntegrityError("plans: the plan is not in, or answers what is not there")
        with attributed(route="/lab"):
            times = interleave(
                {
                    "hit/general": lambda: answers.look_up(held),
                    "hit/compiled": planned(held),
                    "hit/unplanned": planned(held, elsewhere),
                    "miss/general": lambda: answers.look_up(absent),
                    "miss/compiled": _giving_up(plans, absent, answers.look_up),
                },
                rounds=rounds, least_seconds=0.001, clock=thread_time,
            )  # fmt: skip
    return [*_pair(parts, "hit", "all are in memory", times), *_pair(parts, "miss", "the last one is nowhere", times)]


def _giving_up(plans: Plans, keys: list[Key], general: Callable[[list[Key]], object]) -> Callable[[], object]:
    """Straight to the plan, which would otherwise be swapped out for giving up so often."""
    (swapped,) = plans._plans.values()
    run = swapped.run
    return lambda: run(keys) or general(keys)


def words_of(parts: int) -> str:
    """`1 part`, `2 parts`."""
    return f"{parts} part{'s' if parts > 1 else ''}"


def _pair(parts: int, what: str, words: str, times: dict[str, Timing]) -> list[Row]:
    general, compiled = times[f"{what}/general"], times[f"{what}/compiled"]
    rows = [
        Row.of(f"{what}/{parts}/general", f"{words_of(parts)}, {words}", "ns", "lower", general.scaled(1e9)),
        Row.of(f"{what}/{parts}/compiled", f"{words_of(parts)}, {words}", "ns", "lower", compiled.scaled(1e9)),
        Row.of(
            f"{what}/{parts}/ratio", f"{words_of(parts)}, {words}: compiled ÷ general", "x", "lower",
            compiled.over(general), target=LEAST_GAIN if what == "hit" else None,
        ),
    ]  # fmt: skip
    if what == "hit":
        unplanned = times["hit/unplanned"].over(general)
        rows.append(
            Row.of(f"hit/{parts}/unplanned", f"{words_of(parts)}, no plan in ÷ general", "x", "lower", unplanned)
        )
    return rows


def _key(cache: Cache, n: int) -> Key:
    modality = MODALITIES[n % len(MODALITIES)]
    source = np.full((8, 8, 3), n % 251, np.uint8) if modality == "image" else f"text {n}"
    return cache.key(source, modality=modality, signature=f"{modality}-model-1")


def _keys(rounds: int) -> Row:
    """What comes before a lookup, so that its time is seen in proportion."""
    with Cache(memory="8MiB") as cache:
        picture = np.random.default_rng(0).integers(0, 256, (224, 224, 3), np.uint8)
        words = "what an OCR engine reads on such a page, " * 5

        def keys() -> None:
            cache.key(picture, modality="image", signature="image-model-1")
            cache.key(words, modality="text", signature="text-model-1")

        timing = interleave({"keys": keys}, rounds=rounds, least_seconds=0.001, clock=thread_time)["keys"]
    metric = "making both keys: a picture of 224 × 224 pixels as an array, and 205 letters"
    return Row.of("keys/2", metric, "ns", "lower", timing.scaled(1e9))


def _launches() -> list[Row]:
    if why := available():
        words = f"launch overhead saved by a CUDA graph: skipped, {why}"
        return [Row("graph/launches", words, "%", "higher", None, published=PUBLISHED_LAUNCHES)]
    return [_measured()]


def _measured() -> Row:
    """CPU time of issuing a request's work: load of two blocks and a forward pass, plain against one replay."""
    import torch

    from mmcache.lab.plans_graphs import Graphed

    layers = [torch.nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True) for _ in range(4)]
    model = torch.nn.Sequential(*layers).cuda().half().eval()
    blocks = {
        "picture": torch.randn(1, 257, 384).half().pin_memory(),
        "text": torch.randn(1, 32, 384).half().pin_memory(),
    }
    inputs = {name: block.cuda() for name, block in blocks.items()}

    def forward(picture: object, text: object) -> object:
        return model(torch.cat([picture, text], 1))

    graphed = Graphed(forward)

    def plain() -> None:
        with torch.no_grad():
            for name, block in blocks.items():
                inputs[name].copy_(block, non_blocking=True)
            forward(**inputs)

    def timed(call: Callable[[], object]) -> float:
        from time import perf_counter

        torch.cuda.synchronize()
        start = perf_counter()
        for _ in range(5):
            call()
        issued = perf_counter() - start
        torch.cuda.synchronize()
        return issued

    saved = []
    for turn in range(30):
        general, replayed = timed(plain), timed(lambda: graphed(blocks))
        if turn >= 5:
            saved.append(100 * (1 - replayed / general))
    return Row.of(
        "graph/launches", "CPU time to issue a request's work, saved by a CUDA graph", "%", "higher", saved,
        target=PUBLISHED_LAUNCHES, published=PUBLISHED_LAUNCHES,
    )  # fmt: skip
