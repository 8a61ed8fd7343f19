"""A text embedding that needs no model: hashed words and letter groups. Other spellings are near, other words are not.

The promise holds with any embedding; a trained one only finds more. Weinberger et al., "Feature hashing for large
scale multitask learning", ICML 2009.
"""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import numpy.typing as npt
import xxhash

DIMENSIONS = 384
VERSION = "mmcache-lexical-1"

_WORD = re.compile(r"\w+")


def embed(text: str) -> npt.NDArray[np.float32]:
    """float32 [384], L2-normalised: words and their letter groups of three and four, hashed with a sign each."""
    vector = np.zeros(DIMENSIONS, np.float32)
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        padded = f" {word} "
        _add(vector, padded, 1.0)
        groups = [padded[at : at + size] for size in (3, 4) for at in range(len(padded) - size + 1)]
        for group in groups:
            _add(vector, group, 1.0 / len(groups) ** 0.5)
    length = float(np.linalg.norm(vector))
    if not length:  # no word in it: punctuation, symbols
        _add(vector, text, 1.0)
        length = 1.0
    return vector / np.float32(length)


def _add(vector: npt.NDArray[np.float32], feature: str, weight: float) -> None:
    hashed = xxhash.xxh3_64_intdigest(feature.encode("utf-8", "surrogatepass"))
    vector[hashed % DIMENSIONS] += weight if hashed >> 63 else -weight
