"""Where the training of US-HASH starts from: closed forms, in numpy.

*Multi-view CCA* (Kettenring, 1971; with labels as a further view, Gong et al., IJCV 2014) puts the modalities into one
space, directions weighted by how far the views agree on them; *ITQ* (Gong and Lazebnik, CVPR 2011) turns its first
directions so that taking signs loses least.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mmcache.keys.ushash import BITS, WIDTH

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
MOST_LABELS = 1024
"""Categories that count: the most frequent."""
LABELS = ""
"""The name of the view that categories make."""


def multi_view(
    rows: Mapping[str, Floats], concept: Mapping[str, Numbers], category: Numbers, weight: float
) -> dict[str, Doubles]:
    """Whitened rows, and the concept of each → modality → [128, width], the maps into the common space.

    `weight`: how much agreement with the categories counts beside agreement between modalities.
    """
    views = {modality: _means(rows[modality], concept[modality], len(category)) for modality in rows}
    if weight and (category >= 0).any():
        views[LABELS] = _labels(category)
    names = list(views)
    widths = [views[name][0].shape[1] for name in names]
    ends = np.cumsum([0, *widths])
    block = np.zeros((ends[-1], ends[-1]))
    for i, one in enumerate(names):
        for j, other in enumerate(names[:i]):
            (left, has), (right, also) = views[one], views[other]
            both = has & also
            if not both.any():
                continue
            shared = left[both].T @ right[both] / both.sum() * (weight if LABELS in (one, other) else 1.0)
            block[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] = shared
            block[ends[j] : ends[j + 1], ends[i] : ends[i + 1]] = shared.T
    values, vectors = np.linalg.eigh(block)
    best = np.argsort(values)[::-1][:WIDTH]
    strength = np.maximum(values[best], 0.0)
    maps = {}
    for i, name in enumerate(names):
        if name != LABELS:
            maps[name] = np.zeros((WIDTH, widths[i]))
            maps[name][: len(best)] = (vectors[ends[i] : ends[i + 1], best] * strength).T
    return maps


def _means(rows: Floats, concept: Numbers, concepts: int) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    """The mean row of each concept, and which concepts have one."""
    total = np.zeros((concepts, rows.shape[1]))
    np.add.at(total, concept, rows)
    count = np.bincount(concept, minlength=concepts)
    return total / np.maximum(count, 1)[:, None], count > 0


def _labels(category: Numbers) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    """Categories as a whitened view: one column each, centred, rare ones no weaker than common ones."""
    frequent = np.argsort(np.bincount(category[category >= 0]), kind="stable")[::-1][:MOST_LABELS]
    known = np.isin(category, frequent)
    columns = (category[:, None] == frequent[None, :]).astype(np.float64)
    share = np.maximum(columns[known].mean(axis=0), 1e-9)
    return (columns - share) / np.sqrt(share) * known[:, None], known


def rotation(points: Floats, seed: int, directions: int = BITS, rounds: int = 30) -> Floats:
    """Points [n, 128] → prototypes float32 [64, 128]: ITQ of the first `directions`, at most 64.

    With 64 they are orthonormal. With fewer, several bits look along one strong direction instead of at weak ones that
    are mostly noise: a tight frame, found by the same steps (the closest matrix with orthonormal rows).
    """
    first = points[:, :directions].astype(np.float64)
    square, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((BITS, BITS)))
    turned = square[:directions]
    for _ in range(rounds):
        u, _, v = np.linalg.svd(first.T @ np.where(first @ turned > 0, 1.0, -1.0), full_matrices=False)
        turned = u @ v
    return np.pad(turned.T, ((0, 0), (0, WIDTH - directions))).astype(np.float32)
