"""Keys of one request stream, made by parts that move: the naive concatenation, and ours."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from mmcache.keys.drift import QuantisedKey
from mmcache.lab.drift_cards import Card, Request
from mmcache.lab.drift_tokens import tokenizer

Floats = npt.NDArray[np.float32]
Key = bytes
Keyer = Callable[[Request], Key]

NAIVE_DIMENSIONS, NAIVE_DECIMALS = 32, 5
"""As in the published baseline: SHA-256 over the first 32 dimensions, rounded to 5 decimals."""


@dataclass(frozen=True)
class Parts:
    """What a pipeline computes of each card of the catalogue, at one moment."""

    running: Floats
    """[cards, 64]: normalised by the running statistics of the moment."""
    texts: tuple[str, ...]
    """What OCR read, cut off where it became uncertain."""
    vocabulary: str

    def naive(self) -> Keyer:
        """SHA-256 of rounded features ‖ token ids ‖ text: everything that the pipeline happens to compute."""
        rounded = np.round(self.running[:, :NAIVE_DIMENSIONS].astype(np.float64), NAIVE_DECIMALS) + 0.0
        encode = tokenizer(self.vocabulary).encode
        known: dict[str, bytes] = {}

        def key(request: Request) -> Key:
            if request.question not in known:
                known[request.question] = repr(encode(request.question)).encode()
            parts = rounded[request.card].tobytes(), known[request.question], self.texts[request.card].encode()
            return hashlib.sha256(b"\0".join(parts)).digest()

        return key

    def with_(self, **changes: object) -> Parts:
        """These, but for `changes`."""
        return replace(self, **changes)  # type: ignore[arg-type]


def frozen(key: QuantisedKey, features: Floats) -> Keyer:
    """Ours: the cells of features normalised by frozen statistics ‖ the words in Unicode NFC. No tokens, no OCR."""
    pictures = key.digests(features)
    return lambda request: pictures[request.card] + _words(request.question)


def content(catalogue: Sequence[Card]) -> Keyer:
    """Ours where nothing but equality will do: the pixels ‖ the words."""
    pictures = [blake3(card.picture().tobytes()).digest(length=16) for card in catalogue]
    return lambda request: pictures[request.card] + _words(request.question)


def _words(question: str) -> bytes:
    return unicodedata.normalize("NFC", question).encode()


@dataclass
class Store:
    """Keys seen, and the right answer that was stored under each."""

    catalogue: list[Card]
    held: dict[Key, str]
    requests: int = 0
    hits: int = 0
    wrong: int = 0

    def ask(self, wanted: Sequence[Request], keyer: Keyer) -> tuple[float, float]:
        """(hits, wrong hits) in % of these requests; misses are computed and stored."""
        hits = wrong = 0
        for request in wanted:
            key, truth = keyer(request), request.truth(self.catalogue)
            if key in self.held:
                hits += 1
                wrong += self.held[key] != truth
            else:
                self.held[key] = truth
        return 100 * hits / len(wanted), 100 * wrong / len(wanted)
