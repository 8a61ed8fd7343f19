"""Rows of table `placement` on the space: how well it is learned, what a deviation costs, how fast products are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mmcache.lab.measure import interleave
from mmcache.lab.placement_stream import Corpus
from mmcache.lab.table import Row, percentile
from mmcache.placement.alignment import Affine, RunningAffine, fit
from mmcache.placement.cosine import cosines, device, nearest, unit

DEVIATIONS = (0.0, 0.2, 0.35, 0.5, 0.7, 1.0)
EDGE = 0.35
"""Above which the published hit rate falls by 42 %."""
LOST_PUBLISHED = 42.0
ABSENT = 0.01
"""Lookups of what is not stored that the cut-off lets through."""
FORGET = 0.99


def alignment_rows(corpus: Corpus, seeds: Sequence[int]) -> list[Row]:
    """Pictures mapped to their texts' vectors: of the variance of held-out texts, how much is left unexplained."""
    found: dict[str, list[float]] = {}
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(corpus))
        cut = round(0.7 * len(order))
        train, test = order[:cut], order[cut:]
        running = RunningAffine(corpus.pictures.shape[1], corpus.texts["en"].shape[1])
        follows = RunningAffine(corpus.pictures.shape[1], corpus.texts["en"].shape[1], forget=FORGET)
        ahead = list[float]()
        for n, i in enumerate(train.tolist()):  # one pair at a time, as they are seen together
            x, y = corpus.pictures[i : i + 1], corpus.texts["en"][i : i + 1]
            if n >= len(train) // 2:
                ahead.append(_error(running.map, x, y, corpus.texts["en"]))
            running.learn(x, y)
            follows.learn(x, y)
        x, y = corpus.pictures[test], corpus.texts["en"][test]
        closed = fit(corpus.pictures[train], corpus.texts["en"][train])
        found.setdefault("online", []).append(_error(running.map, x, y, corpus.texts["en"]))
        found.setdefault("closed-form", []).append(_error(closed, x, y, corpus.texts["en"]))
        found.setdefault("next-pair", []).append(float(np.mean(ahead)))
        apart = float(np.abs(running.solved().matrix - closed.matrix).max() / np.abs(closed.matrix).max())
        found.setdefault("difference", []).append(apart)
        turned = np.roll(np.eye(corpus.texts["en"].shape[1]), 1, axis=0)  # as if the text model was replaced
        for i in [*train.tolist(), *train.tolist()]:
            for one in (running, follows):
                one.learn(corpus.pictures[i : i + 1], corpus.texts["en"][i : i + 1] @ turned)
        for name, one in (("after-change/all-count", running), ("after-change/forgets", follows)):
            found.setdefault(name, []).append(_error(one.map, x, y @ turned, corpus.texts["en"] @ turned))
    words = {
        "online": "variance of held-out texts not explained, learned pair by pair",
        "closed-form": "the same, least squares of all pairs at once",
        "next-pair": "the same of each next pair before it is learned, second half",
        "difference": "largest difference of both matrices, of the largest element",
        "after-change/all-count": "not explained after the text model was replaced, two rounds of pairs later",
        "after-change/forgets": f"the same where older pairs count for less ({FORGET} a pair)",
    }
    rows = []
    for name, values in found.items():
        unit_of, factor = ("x", 1.0) if name == "difference" else ("%", 100.0)
        target = 1e-6 if name == "difference" else None
        rows.append(
            Row.of(f"align/{name}", words[name], unit_of, "lower", [factor * one for one in values], target=target)
        )
    return rows


def _error(found: Affine, x: npt.NDArray[np.float32], y: npt.ArrayLike, all_of: npt.ArrayLike) -> float:
    goal = np.asarray(y, np.float64)
    spread = np.asarray(all_of, np.float64).var(axis=0).sum()
    return float(((found(x) - goal) ** 2).sum(axis=1).mean() / spread)


def deviation_rows(corpus: Corpus, seeds: Sequence[int]) -> list[Row]:
    """Near hits in the learned space when what is asked for deviates from what is stored by so much (L2, norm 1)."""
    hits: dict[float, list[float]] = {deviation: [] for deviation in DEVIATIONS}
    cuts = list[float]()
    for seed in seeds:
        random = np.random.default_rng(seed)
        order = random.permutation(len(corpus))
        placed = corpus.space(order).place("image", corpus.pictures)
        stored, absent = placed[order[: len(order) // 2]], placed[order[len(order) // 2 :]]
        cut = percentile(nearest(absent, stored, 1, "cpu")[1][:, 0].tolist(), 1.0 - ABSENT)
        cuts.append(cut)
        for deviation in DEVIATIONS:
            noise = unit(random.standard_normal(stored.shape)) * np.float32(deviation)
            numbers, found = nearest(unit(stored + noise), stored, 1, "cpu")
            hits[deviation].append(
                100 * float(((numbers[:, 0] == np.arange(len(stored))) & (found[:, 0] >= cut)).mean())
            )
    rows = [
        Row.of(f"deviation/{deviation}", "hit rate, cut-off for 1 % of absent ones", "%", "higher", values)
        for deviation, values in hits.items()
    ]
    half = [np.sqrt(1 / cut**2 - 1) for cut in cuts]
    rows.append(Row.of("deviation/edge", "deviation at which the cut-off is reached", "L2", "higher", half))
    beyond = DEVIATIONS[DEVIATIONS.index(EDGE) + 1]
    lost = [100 * (1 - after / before) for before, after in zip(hits[0.0], hits[beyond], strict=True)]
    rows.append(
        Row.of(
            "deviation/lost", f"hit rate lost at {beyond} (published: above {EDGE})", "%", "lower", lost,
            target=LOST_PUBLISHED, published=LOST_PUBLISHED,
        )
    )  # fmt: skip
    return rows


def product_rows(quick: bool) -> list[Row]:
    """All with all: BLAS here, and the GPU where there is one."""
    side, width = (2048, 512) if quick else (8192, 512)
    random = np.random.default_rng(0)
    one, other = (unit(random.standard_normal((side, width), np.float32)) for _ in range(2))
    operations = 2.0 * side * side * width
    timing = interleave({"blas": lambda: cosines(one, other, "cpu")}, rounds=3 if quick else 5, once=True)["blas"]
    speeds = [operations / seconds / 1e9 for seconds in timing.samples]
    rows = [
        Row.of("product/blas", f"cosines {side}², D = {width}, float32, BLAS, with norms", "GFLOP/s", "higher", speeds)
    ]
    if device() != "cuda":
        name = "cosines 8192², D = 512, Triton: skipped, no GPU here"
        return [*rows, Row("product/gpu", name, "TFLOP/s", "higher", None)]
    return [*rows, *_on_gpu()]


def _on_gpu() -> list[Row]:
    import torch

    from mmcache.placement.kernels import multiply

    rows = []
    for label, dtype, exact in (("fp16", torch.float16, True), ("tf32", torch.float32, False)):
        left, right = (torch.randn(8192, 512, device="cuda").to(dtype) for _ in range(2))
        samples = []
        for turn in range(25):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(10):
                multiply(left, right, exact)
            end.record()
            torch.cuda.synchronize()
            if turn >= 5:
                samples.append(2.0 * 8192 * 8192 * 512 * 10 / (begin.elapsed_time(end) / 1e3) / 1e12)
        rows.append(Row.of(f"product/gpu/{label}", "cosines 8192², D = 512, Triton", "TFLOP/s", "higher", samples))
    return rows
