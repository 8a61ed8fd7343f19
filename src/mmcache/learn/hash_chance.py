"""Whether a hash finds the pairs that were kept back, or only what chance would: a permutation test."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import numpy.typing as npt

from mmcache.keys.ushash import USHash
from mmcache.learn.hash_scores import average_precision, hamming
from mmcache.learn.hash_train import Paired

DRAWS = 199
MOST_CONCEPTS = 200
"""That are looked at: a random choice of more."""


def by_chance(pairs: Paired, hashed: USHash, seed: int = 0) -> float:
    """The share of random pairings that score as well as the real ones; small = the hash finds pairs.

    A p-value, exact for concepts that are exchangeable (Fisher, 1935; Phipson and Smyth, 2010): mAP@10 between the
    modalities, summed over the directions, with a row a concept; against the same after concepts were dealt out anew
    within each modality. `pairs` must not have been trained on. 1.0 where nothing can be compared.
    """
    draw = np.random.default_rng(seed)
    concepts = draw.permutation(len(pairs.category))[:MOST_CONCEPTS]
    shown, codes = {}, {}
    for modality, of in pairs.concept.items():
        order = draw.permutation(len(of))
        there, first = np.unique(of[order], return_index=True)
        wanted = np.isin(there, concepts)
        if wanted.any():
            shown[modality] = there[wanted]
            codes[modality] = hashed.code(modality, pairs.rows[modality][order[first[wanted]]])
    distances = {(a, b): hamming(codes[a], codes[b]) for a, b in permutations(codes, 2)}

    def score(names: dict[str, npt.NDArray[np.int64]]) -> float:
        total = 0.0
        for (a, b), distance in distances.items():
            same = names[a][:, None] == names[b][None, :]
            if same.any():
                total += float(average_precision(distance, same, seed).mean())
        return total

    real = score(shown)
    if not real:
        return 1.0
    others = [score({modality: draw.permutation(of) for modality, of in shown.items()}) for _ in range(DRAWS)]
    return (1 + sum(other >= real for other in others)) / (1 + DRAWS)
