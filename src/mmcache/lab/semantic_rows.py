"""Rows of table `semantic` on words: paraphrase hits at an allowed error, and traps that nearly say the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mmcache.calibration.base import Calibration
from mmcache.calibration.bounds import clopper_pearson
from mmcache.lab.data.meanings import pairs
from mmcache.lab.semantic_flow import by_flow, traps
from mmcache.lab.semantic_vectors import text_vectors
from mmcache.lab.semantic_words import Corpus, Tally, best_within, by_calibration, by_threshold, thresholds
from mmcache.lab.table import Progress, Row
from mmcache.likeness.base import WordDifference
from mmcache.likeness.words import analyse, differences

ERRORS = (0.01, 0.02, 0.05)
CURVE = 10
"""Thresholds of the curve that are shown."""
GPTCACHE_COSINE = 0.6
"""What GPTCache's default, similarity 0.8 of a squared distance of 4 at most, says of unit vectors."""
TIMES = 3.0
"""Hits that a calibrated cache should have, in hits of one global threshold at the same measured error."""

Rules = Mapping[str, Callable[[float], Calibration]]
"""Published methods by name, each made for an allowed error."""


@dataclass(frozen=True)
class Curve:
    """One order of the stream under all thresholds."""

    least: Sequence[float]
    tallies: Sequence[Tally]


def gate(corpus: Corpus) -> Callable[[int, int], WordDifference]:
    """The product's gate on words, each text analysed once."""
    analysed = [analyse(text) for text in corpus.texts]
    return lambda first, second: differences(analysed[first], analysed[second])


def blind(first: int, second: int) -> WordDifference:
    """For methods that look at nothing but the cosine."""
    return WordDifference.NONE


def paraphrases(
    crowd: str, corpus: Corpus, seeds: Sequence[int], errors: Sequence[float], rules: Rules, progress: Progress
) -> list[Row]:
    """Hits and measured errors of ours, of one global threshold chosen in hindsight, and of published methods.

    The first of `errors` is measured on all orders of the stream, the others on one.
    """
    orders = [corpus.order(seed) for seed in seeds]
    least = thresholds(corpus)
    words = gate(corpus)
    steps = len(orders) * (3 + len(rules)) + (len(errors) - 1) * (1 + len(rules))
    done = 0

    def step(what: str) -> None:
        nonlocal done
        done += 1
        progress(f"{crowd}: {what}", done, steps)

    plain: list[Curve] = []
    gated: list[Curve] = []
    for order in orders:
        plain.append(Curve(least, [by_threshold(corpus, order, one) for one in least]))
        step("global threshold")
        gated.append(Curve(least[::2], [by_threshold(corpus, order, one, words) for one in least[::2]]))
        step("global threshold, words gated")
    rows: list[Row] = []
    for error in errors:
        tried = list(zip(seeds, orders, strict=True))[: None if error == errors[0] else 1]
        ours = []
        for _, order in tried:
            ours.append(by_flow(corpus, order, error))
            step(f"ours at {error:.0%}")
        rows += _told(f"paraphrase/{crowd}/{error:.0%}/ours", ours, target=100 * error)
        rows += _against(crowd, error, ours, plain, gated)
        for name, make in rules.items():
            found = []
            for seed, order in tried:
                found.append(by_calibration(corpus, order, make(error), seed, blind, sparse=True))
                step(f"{name} at {error:.0%}")
            rows += _told(f"paraphrase/{crowd}/{error:.0%}/{name}", found)
    return rows + _curve(crowd, plain)


def _told(label: str, tallies: Sequence[Tally], target: float | None = None) -> list[Row]:
    """Hits, measured error and the upper end of its interval."""
    return [
        Row.of(f"{label}/hits", "near hits, of all requests", "%", "higher", [_share(one) for one in tallies]),
        Row.of(
            f"{label}/late", "near hits, of the second half's requests", "%", "higher",
            [200 * one.late() / one.requests for one in tallies],
        ),
        _measured(f"{label}/wrong", "wrong, of near hits", [100 * one.error for one in tallies if one.hits], target),
        _measured(
            f"{label}/wrong-high", "95 % upper limit of that (Clopper–Pearson, one order)",
            [100 * one.interval()[1] for one in tallies if one.hits],
        ),
    ]  # fmt: skip


def _measured(id: str, metric: str, values: Sequence[float], target: float | None = None) -> Row:
    """Without near hits there is nothing to measure."""
    if not values:
        return Row(id, metric, "%", "lower", None, target=target)
    return Row.of(id, metric, "%", "lower", values, target=target)


def _share(tally: Tally) -> float:
    return 100 * tally.hits / tally.requests


def _against(
    crowd: str, error: float, ours: Sequence[Tally], plain: Sequence[Curve], gated: Sequence[Curve]
) -> list[Row]:
    same = [best_within(curve.tallies, one.error) for curve, one in zip(plain, ours, strict=False)]
    allowed = [best_within(curve.tallies, error) for curve in plain[: len(ours)]]
    worded = [best_within(curve.tallies, one.error) for curve, one in zip(gated, ours, strict=False)]
    label = f"paraphrase/{crowd}/{error:.0%}"
    target = TIMES if error == ERRORS[0] else None
    return [
        Row.of(
            f"{label}/global-same/hits", "one threshold at ours' measured error, chosen in hindsight", "%", "higher",
            [_share(one) for one in same],
        ),
        Row.of(
            f"{label}/global-allowed/hits", "one threshold at the allowed error, chosen in hindsight", "%", "higher",
            [_share(one) for one in allowed],
        ),
        Row.of(
            f"{label}/global-words/hits", "one threshold behind our gate on words, at ours' measured error", "%",
            "higher", [_share(one) for one in worded],
        ),
        Row.of(
            f"{label}/times-global", "ours ÷ one threshold at the same measured error (with one hit at least)", "x",
            "higher", [one.hits / max(1, other.hits) for one, other in zip(ours, same, strict=True)], target=target,
        ),
        Row.of(
            f"{label}/times-allowed", "ours ÷ one threshold at the allowed error (with one hit at least)", "x",
            "higher", [one.hits / max(1, other.hits) for one, other in zip(ours, allowed, strict=True)],
        ),
    ]  # fmt: skip


def _curve(crowd: str, curves: Sequence[Curve]) -> list[Row]:
    """One threshold's hits against its measured error."""
    rows: list[Row] = []
    for place in np.linspace(1, len(curves[0].least) - 1, CURVE).round().astype(int):
        label = f"threshold/{crowd}/{place:02d}"
        tallies = [curve.tallies[place] for curve in curves]
        which = f"one threshold of {curves[0].least[place]:.5f}"
        rows += [
            Row.of(
                f"{label}/hits", f"near hits, of all requests; {which}", "%", "higher", [_share(t) for t in tallies]
            ),
            Row.of(f"{label}/wrong", f"wrong, of near hits; {which}", "%", "lower", [100 * t.error for t in tallies]),
        ]
    return rows


def near_misses(corpus: Corpus, seed: int, error: float, every: int, progress: Progress) -> list[Row]:
    """Each `every`-th of fow-cache's pairs, asked of a cache that learned from another stream, and of thresholds."""
    asked = pairs()[::every]
    vectors = text_vectors([text for pair in asked for text in (pair.first, pair.second)], progress)
    cosines = (vectors[::2] * vectors[1::2]).sum(axis=1)
    order = corpus.order(seed)
    served = traps(corpus, order, error, [(pair.first, pair.second) for pair in asked], vectors)
    tallies = {least: by_threshold(corpus, order, least) for least in thresholds(corpus)}
    allowed = max((least for least in tallies if tallies[least].error <= error), key=lambda least: tallies[least].hits)
    answers = {
        "ours": served,
        "global": [bool(cosine >= allowed) for cosine in cosines],
        "gptcache-default": [bool(cosine >= GPTCACHE_COSINE) for cosine in cosines],
    }
    rows = []
    for name, hits in answers.items():
        wrong = [hit for hit, pair in zip(hits, asked, strict=True) if not pair.same]
        right = [hit for hit, pair in zip(hits, asked, strict=True) if pair.same]
        low, high = (100 * edge for edge in clopper_pearson(sum(wrong), len(wrong)))
        rows += [
            Row(
                f"pairs/{name}/trapped", "of pairs that nearly say the same, served the other's answer", "%", "lower",
                100 * sum(wrong) / len(wrong), (low, high),
            ),
            Row.of(
                f"pairs/{name}/hits", "of pairs that say the same, served", "%", "higher", 100 * sum(right) / len(right)
            ),
        ]  # fmt: skip
    return rows
