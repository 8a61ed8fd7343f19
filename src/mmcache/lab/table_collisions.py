"""Table `collisions`: keys cut from a millisecond clock against keys cut from content (A7).

A request's text comes first, its picture or the segments of its speech 80-120 ms later, each with a lag of its own.
Parts are stored under a key until the request is complete, then read back and answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, ClassVar, get_args

import numpy as np
from blake3 import blake3
from PIL import Image

from mmcache.cache import Cache
from mmcache.lab import data
from mmcache.lab.clock_keys import (
    Arrivals,
    Outcome,
    Part,
    by_clock,
    by_content,
    draw,
    moments,
    paired_by_clock,
)
from mmcache.lab.table import Progress, Result, Row, Table, percentile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

LOADS = (10.0, 25.0, 50.0, 75.0, 100.0, 150.0, 200.0)
SHOWN = (10.0, 50.0, 100.0, 200.0)
"""Loads with rows of their own; the others stand in the plot and the CSV."""
TICK = 0.001
PUBLISHED = {"image+text": 34.2, "speech+text": 38.6}
PUBLISHED_LOAD = 50.0
SEGMENT_SECONDS = 2.0
Curve = dict[tuple[str, str, Arrivals, float], list[float]]
"""Per cent, one a seed, by pair, scheme, arrivals and load."""


def pictures(count: int) -> list[tuple[Part, ...]]:
    """Distinct pictures, as encoded files; named by their pixels."""
    found: dict[str, Part] = {}
    for path in data.shapes()[:count]:
        name = blake3(Image.open(path).convert("RGB").tobytes()).hexdigest()[:16]
        found.setdefault(name, Part("image", path.read_bytes(), name))
    return [(part,) for part in found.values()]


def clips() -> list[tuple[Part, ...]]:
    """Clips of speech, each as its segments of two seconds."""
    found = []
    for clip in data.speech(4.0, 0.5):
        size = round(SEGMENT_SECONDS * data.RATE)
        pieces = [clip.samples[start : start + size] for start in range(0, len(clip.samples), size)]
        names = [blake3(piece.tobytes()).hexdigest()[:16] for piece in pieces]
        found.append(tuple(Part("audio", (piece, data.RATE), name) for piece, name in zip(pieces, names, strict=True)))
    return found


class CollisionsTable(Table):
    """Requests whose key was another's, and wrong answers, by load."""

    name: ClassVar[str] = "collisions"
    title: ClassVar[str] = "Key collisions: millisecond clocks against content, as load grows"
    remark: ClassVar[str] = (
        "Of the published scheme only a summary is known: keys cut from millisecond clocks, lags of 80 to 120 ms, more "
        "than 50 requests a second. `clock` is the plainest reading of it: each part is stored under the millisecond "
        "in which it arrives, and a request collides when one of its parts has another content's key. With n parts a "
        "request that is 1 − exp(−n² × load × 1 ms) for Poisson arrivals. The published figures were not fitted: the "
        "rows `clock/load` say at which load this reading gives them. `pairing` is another reading: no key, a part "
        "goes to the text nearest to the mean lag before it. Content keys pair nothing by time: a request names its "
        "parts by what they are. That they never collide is no finding about load but about what a key is made of; a "
        "collision of 128-bit digests is not to be expected in any run."
    )

    def __init__(self) -> None:
        self._curve: Curve = {}

    def run(self, quick: bool, seeds: Sequence[int], progress: Progress) -> Result:
        """Real contents, drawn arrivals. Raises `AssetError`."""
        pairs = {"image+text": pictures(400 if quick else 2000), "speech+text": clips()}
        texts = [Part("text", text, text) for text in dict.fromkeys(question for question, _ in data.questions())]
        seconds = 3.0 if quick else 20.0
        loads = SHOWN if quick else LOADS
        cells = list(product(pairs, get_args(Arrivals), loads, seeds))
        curve: Curve = {}
        served = 0
        for done, (pair, arrivals, load, seed) in enumerate(cells):
            progress(f"{pair}, {arrivals}, {load:g}/s", done, len(cells))
            random = np.random.default_rng((seed, round(load), len(pair), len(arrivals)))
            requests = draw(texts, pairs[pair], moments(load, seconds, arrivals, random), random)
            outcomes: dict[str, Outcome] = {"pairing": paired_by_clock(requests)}
            with Cache(memory="256MiB") as cache:
                outcomes["clock"] = by_clock(cache, requests, TICK)
            with Cache(memory="256MiB") as cache:
                outcomes["content"] = by_content(cache, requests)
            served += len(requests)
            for scheme, outcome in outcomes.items():
                for measure, figure in (("shared", outcome.shared), ("wrong", outcome.wrong)):
                    curve.setdefault((pair, f"{scheme}/{measure}", arrivals, load), []).append(outcome.share(figure))
        progress("done", len(cells), len(cells))
        self._curve = curve
        return Result(
            self.name,
            quick,
            tuple(seeds),
            (
                "easy-VQA's pictures and questions, recorded speech in segments of two seconds",
                f"{served} requests through the product's own cache; content keys by its own `Cache.key`",
            ),
            (
                "arrivals (Poisson; bursty: a fifth of the time has four fifths of the load) and lags (80-120 ms, "
                "uniform), in virtual time",
                "popularity of contents (Zipf 0.9)",
                "both clock schemes, after the published summary",
            ),
            tuple(rows(curve, loads)),
        )

    def pages(self, result: Result) -> Mapping[str, str]:
        """Every point of the curves."""
        lines = ["pair,scheme,measure,arrivals,requests_a_second,percent,low,high"]
        for (pair, scheme, arrivals, load), values in self._curve.items():
            low, high = percentile(values, 0.1), percentile(values, 0.9)
            name, _, measure = scheme.partition("/")
            if (name, measure) != ("pairing", "shared"):
                middle = percentile(values, 0.5)
                lines.append(f"{pair},{name},{measure},{arrivals},{load:g},{middle:.3f},{low:.3f},{high:.3f}")
        return {"csv": "\n".join(lines) + "\n"} if self._curve else {}

    def plot(self, result: Result, figure: Figure) -> None:
        """Collisions over load, a panel a pair."""
        if not self._curve:
            super().plot(result, figure)
            return
        figure.set_size_inches(8, 3.4)
        styles = {
            ("clock/shared", "poisson"): ("#b5482f", "-", "clock: key shared"),
            ("clock/shared", "bursty"): ("#b5482f", ":", "the same, bursty"),
            ("clock/wrong", "poisson"): ("#d99a3d", "-", "clock: wrong answer"),
            ("pairing/wrong", "poisson"): ("#8793a6", "-", "paired by time: wrong partner"),
            ("content/shared", "poisson"): ("#2f7d5b", "-", "content"),
        }
        for axes, pair in zip(figure.subplots(1, 2, sharey=True), PUBLISHED, strict=True):
            for (scheme, arrivals), (colour, line, label) in styles.items():
                loads = sorted({load for *_, load in self._curve})
                points = [percentile(self._curve[pair, scheme, arrivals, load], 0.5) for load in loads]  # type: ignore[index]
                axes.plot(loads, points, line, color=colour, label=label)
            axes.axhline(PUBLISHED[pair], color="black", linewidth=0.8, linestyle="--", label="published")
            axes.set_title(pair)
            axes.set_xlabel("requests a second")
            axes.spines[["top", "right"]].set_visible(False)
        figure.axes[0].set_ylabel("% of requests")
        figure.axes[0].legend(frameon=False, fontsize=7)


def rows(curve: Curve, loads: Sequence[float]) -> Iterator[Row]:
    """Ours must be nought everywhere; the clock's figures stand beside."""
    for pair, published in PUBLISHED.items():
        for arrivals in get_args(Arrivals):
            for load in (one for one in SHOWN if one in loads):
                place = f"{pair}/{arrivals}/{load:g}"
                there = published if load == PUBLISHED_LOAD else None
                yield Row.of(
                    f"{place}/clock", f"requests with another's key, millisecond clock, {load:g}/s", "%", "lower",
                    curve[pair, "clock/shared", arrivals, load], published=there,
                )  # fmt: skip
                yield Row.of(
                    f"{place}/clock-wrong", "the same: answered about something else", "%", "lower",
                    curve[pair, "clock/wrong", arrivals, load],
                )  # fmt: skip
                yield Row.of(
                    f"{place}/pairing", "requests paired by time: wrong partner", "%", "lower",
                    curve[pair, "pairing/wrong", arrivals, load],
                )  # fmt: skip
        for measure, words in (("shared", "requests with another's key"), ("wrong", "answered about something else")):
            worst = [
                max(percentile(curve[pair, f"content/{measure}", arrivals, load], 1.0) for load in loads)
                for arrivals in get_args(Arrivals)
            ]
            yield Row.of(
                f"{pair}/content-{measure}", f"{words}, content keys, worst of all loads", "%", "lower", max(worst),
                target=0.0, published=published if measure == "shared" else None,
            )  # fmt: skip
        for arrivals in get_args(Arrivals):
            points = [(load, percentile(curve[pair, "clock/shared", arrivals, load], 0.5)) for load in loads]
            yield Row(
                f"{pair}/{arrivals}/clock/load", f"load at which the clock's keys give {published} %", "1/s", "higher",
                crossing(points, published),
            )  # fmt: skip


def crossing(points: Sequence[tuple[float, float]], level: float) -> float | None:
    """Where the line through `points` first reaches `level`; None where it never does."""
    for (x, y), (next_x, next_y) in pairwise(points):
        if y <= level <= next_y and next_y > y:
            return x + (next_x - x) * (level - y) / (next_y - y)
    return None
