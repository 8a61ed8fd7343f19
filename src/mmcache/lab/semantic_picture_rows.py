"""Rows of table `semantic` on pictures, lookups and concurrent misses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import numpy.typing as npt

from mmcache.lab import semantic_serial
from mmcache.lab.peers_semantic import gptcache_filled, makers
from mmcache.lab.semantic_contender import Contender, Score, TextVector, score
from mmcache.lab.semantic_flow import CALLERS, Ours, calls, lookups
from mmcache.lab.semantic_stream import replay, stream
from mmcache.lab.semantic_vectors import picture_vectors
from mmcache.lab.table import Progress, Row, percentile
from mmcache.model.errors import AssetError

Floats = npt.NDArray[np.float32]

MAX_ERROR = 0.01
TOLERANCE_ERROR = 0.05
"""Of the rows on serial numbers, whose streams are too short for the certificate of 1 %."""
BLIND = "served from another picture, with a wrong answer"


@dataclass
class Skipped:
    """What could not be run here, and why."""

    lines: list[str] = field(default_factory=list)

    def note(self, name: str, error: AssetError) -> None:
        """`name` is left out."""
        self.lines.append(f"row of {name} left out: {error}")


def blindness(
    text: TextVector, seeds: Sequence[int], requests: int, pictures: int, names: Sequence[str] | None,
    skipped: Skipped, progress: Progress,
) -> list[Row]:  # fmt: skip
    """All contenders on the same stream of questions about pictures. names: of peers; None = all."""
    streams = [stream(seed, requests, pictures) for seed in seeds]
    known = picture_vectors([request.name for requests in streams for request in requests], progress)
    choices: dict[str, Callable[[], Contender]] = {"ours": lambda: Ours(text, MAX_ERROR)}
    choices.update((n, make) for n, make in makers(text, known.__getitem__).items() if names is None or n in names)
    rows: list[Row] = []
    for place, (name, make) in enumerate(choices.items()):
        scores: list[Score] = []
        for asked in streams:
            try:
                contender = make()
            except AssetError as error:
                skipped.note(name, error)
                break
            try:
                scores.append(score(contender, asked))
            finally:
                contender.close()
        progress("questions about pictures", place + 1, len(choices))
        if scores:
            rows += _scored(name, scores)
    return rows


def _scored(name: str, scores: Sequence[Score]) -> list[Row]:
    target = 0.0 if name == "ours" else None
    label = f"pictures/{name}"
    return [
        Row.of(f"{label}/blind", BLIND, "wrong hits", "lower", [one.blind_wrong for one in scores], target=target),
        Row.of(
            f"{label}/wrong", "wrong, of all that is served", "%", "lower",
            [100 * one.wrong / one.hits if one.hits else 0.0 for one in scores],
            target=100 * MAX_ERROR if name == "ours" else None,
        ),
        Row.of(
            f"{label}/hits", "served, of all requests", "%", "higher",
            [100 * one.hits / one.requests for one in scores],
        ),
    ]  # fmt: skip


def whole_set(text: TextVector, every: int) -> list[Row]:
    """Each `every`-th of easy-VQA's own questions, none of which comes twice about one picture, through ours."""
    ours = Ours(text, MAX_ERROR)
    try:
        found = score(ours, replay()[::every])
    finally:
        ours.close()
    asked = f"{found.requests} of easy-VQA's 38 575 questions, over all its pictures"
    return [
        Row.of("easy-vqa/ours/blind", f"{asked}: {BLIND}", "wrong hits", "lower", found.blind_wrong, target=0.0),
        Row.of("easy-vqa/ours/wrong", "wrong hits in all", "wrong hits", "lower", found.wrong),
        Row.of("easy-vqa/ours/hits", "served, of these questions", "%", "higher", 100 * found.hits / found.requests),
    ]


def serial_numbers(text: TextVector, seeds: Sequence[int], requests: int) -> list[Row]:
    """What is it, and what does its label say."""
    runs = [semantic_serial.run(semantic_serial.stream(seed, requests), text, TOLERANCE_ERROR) for seed in seeds]
    rows = []
    for topic, words in (("serial", "read the serial number"), ("kind", "what object is it")):
        found = [run["serial" if topic == "serial" else "kind"] for run in runs]
        target = 0.0 if topic == "serial" else None
        rows += [
            Row.of(
                f"tolerance/{topic}/wrong", f"“{words}”: wrong near hits", "wrong hits", "lower",
                [one.wrong for one in found], target=target,
            ),
            Row.of(
                f"tolerance/{topic}/near", f"“{words}”: near hits, of requests not stored exactly", "%", "higher",
                [100 * one.near / max(1, one.asked - one.exact) for one in found],
            ),
        ]  # fmt: skip
    return rows


def lookup_times(
    vectors: Floats, text: TextVector, texts: Sequence[str], stored: Sequence[int], peer: Sequence[int],
    skipped: Skipped, progress: Progress,
) -> list[Row]:  # fmt: skip
    """Milliseconds of a near hit without its embedding: ours, and GPTCache with what it can hold in bearable time."""
    rows: list[Row] = []
    ours: dict[int, float] = {}
    for count in stored:
        seconds = lookups(vectors, count, 1000, progress)
        if not seconds:
            skipped.lines.append(f"row of lookups among {count} left out: no near hit, the calibration stayed closed")
            continue
        ours[count] = percentile(seconds, 0.5)
        rows += _times(f"lookup/ours/{count}", seconds, 0.5 if count >= 100_000 else None)
    for count in peer:
        try:
            ask = gptcache_filled(texts[:count], text)
        except AssetError as error:
            skipped.note("gptcache's lookups", error)
            break
        seconds = []
        for place in range(100):
            start = perf_counter()
            ask(texts[place * 7 % count])
            seconds.append(perf_counter() - start)
        rows += _times(f"lookup/gptcache/{count}", seconds, None)
        for held, median in ours.items():
            rows.append(
                Row.of(
                    f"lookup/ratio/{count}-to-{held}", f"GPTCache with {count} stored ÷ ours with {held}", "x",
                    "higher", percentile(seconds, 0.5) / median,
                )
            )  # fmt: skip
    return rows


def _times(label: str, seconds: Sequence[float], target: float | None) -> list[Row]:
    return [
        Row.of(
            f"{label}/p50",
            "near hit without its embedding, P50",
            "ms",
            "lower",
            1e3 * percentile(seconds, 0.5),
            target=target,
        ),
        Row.of(f"{label}/p99", "the same, P99", "ms", "lower", 1e3 * percentile(seconds, 0.99)),
    ]


def coalescing(repeats: int) -> list[Row]:
    """How often the model is called."""
    return [
        Row.of(
            f"calls/{name}", f"model calls for {CALLERS} concurrent misses, {words}", "calls", "lower",
            calls(near, repeats), target=1.0,
        )
        for name, near, words in (
            ("identical", False, "identical"), ("near", True, "in as many wordings of a calibrated neighbourhood"),
        )
    ]  # fmt: skip
