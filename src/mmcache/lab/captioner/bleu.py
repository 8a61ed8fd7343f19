"""BLEU-4 of a set of sentences (Papineni et al., 2002): no smoothing, brevity penalty, one reference each."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

LONGEST = 4


def words(text: str) -> list[str]:
    """Lower-case words."""
    return re.findall(r"[^\W_]+", text.lower())


def bleu4(said: Sequence[str], meant: Sequence[str]) -> float:
    """0…100. Sentences of fewer than four words count for the shorter n-grams alone."""
    if len(said) != len(meant) or not said:
        raise ValueError("BLEU compares as many sentences as there are references, and at least one")
    found, total = [0] * LONGEST, [0] * LONGEST
    ours = theirs = 0
    for one, other in zip(map(words, said), map(words, meant), strict=True):
        ours, theirs = ours + len(one), theirs + len(other)
        for n in range(LONGEST):
            mine, given = _grams(one, n + 1), _grams(other, n + 1)
            found[n] += sum((mine & given).values())
            total[n] += sum(mine.values())
    if not all(found):
        return 0.0
    precision = math.exp(sum(math.log(hits / all_) for hits, all_ in zip(found, total, strict=True)) / LONGEST)
    return 100 * precision * min(1.0, math.exp(1 - theirs / ours))


def _grams(of: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(of[i : i + n]) for i in range(len(of) - n + 1))
