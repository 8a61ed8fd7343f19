"""A text encoder in three versions, what an application reads from each, and a cache that knows the content only.

`v1` is multilingual-e5-small: a field `embedding` of 384 numbers. `v2` changes the schema: a field `features` of 512,
the last 128 being hashed letter trigrams, for exact words. `v1b` changes the weights only: the embedding minus the mean
of a corpus, under the same name and shape.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from mmcache.lab.models.text import TextEncoder
from mmcache.model.signature import Signature

Floats = npt.NDArray[np.float32]
Output = dict[str, Floats]

DENSE, LEXICAL = 384, 128
VERSIONS = ("v1", "v2", "v1b")
FIELDS = {"v1": ("embedding", DENSE), "v2": ("features", DENSE + LEXICAL), "v1b": ("embedding", DENSE)}
_QUERY = np.random.default_rng(20261130).normal(size=DENSE + LEXICAL).astype(np.float32)
"""What an application compares outputs with."""


def schema(version: str) -> dict[str, Any]:
    """The output as OpenAPI describes it."""
    field, length = FIELDS[version]
    items = {"type": "array", "items": {"type": "number"}, "minItems": length, "maxItems": length}
    return {"type": "object", "required": [field], "properties": {field: items}}


def signature(version: str) -> Signature:
    """As a deployment states it: the schema, and a revision that was raised for new weights but, as happens, not for
    the new schema. The function's name is fixed, so that nothing else tells versions apart."""
    revision = "text-encoder 1.1" if version == "v1b" else "text-encoder 1.0"
    return Signature.of(schema(version), version=revision, function="encode")


def trigrams(text: str) -> Floats:
    """float32 [128]: hashed letter trigrams, square roots of counts, L2-normalised."""
    found = np.zeros(LEXICAL, np.float32)
    padded = f"  {text.lower()} "
    for start in range(len(padded) - 2):
        found[blake3(padded[start : start + 3].encode()).digest(length=1)[0] % LEXICAL] += 1
    rooted = np.sqrt(found)
    return np.asarray(rooted / np.linalg.norm(rooted), np.float32)


def shaped(version: str, dense: Floats, text: str, mean: Floats) -> Output:
    """The version's output, from the encoder's vector."""
    if version == "v2":
        return {"features": np.concatenate([dense, trigrams(text)])}
    return {"embedding": np.asarray(dense - mean, np.float32) if version == "v1b" else dense}


def read(version: str, output: Output) -> float:
    """What an application of that version makes of an output. Raises `KeyError` or `ValueError` for another schema."""
    field, length = FIELDS[version]
    return float(output[field] @ _QUERY[:length])


def alike(old: Output, new: Output) -> float:
    """Cosine of what both versions mean by a text: the first 384 numbers."""
    one, other = (next(iter(output.values()))[:DENSE] for output in (old, new))
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


class Encoders:
    """The versions as functions; `ran` says which of them computed something in this thread since it was cleared."""

    def __init__(self, mean: Floats) -> None:
        self._model, self._mean = TextEncoder(), mean
        self._thread = threading.local()
        self.failing = ""
        """A version that raises."""

    def load(self) -> None:
        """Load the weights now. Raises `AssetError`."""
        self._model.load()

    @property
    def ran(self) -> set[str]:
        """Versions; clear it before a call."""
        if not hasattr(self._thread, "ran"):
            self._thread.ran = set[str]()
        found: set[str] = self._thread.ran
        return found

    def of(self, version: str) -> Callable[[str], Output]:
        """The version's function."""

        def encode(text: str) -> Output:
            self.ran.add(version)
            if version == self.failing:
                raise RuntimeError("CUDA error: out of memory")
            return shaped(version, self._model.encode(text), text, self._mean)

        return encode


class ContentKeyed:
    """A cache as it is often written: SHA-256 of the text → the output, in memory and in a folder that is shared."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: dict[str, Output] = {}
        root.mkdir(parents=True, exist_ok=True)

    def get_or_compute(self, text: str, compute: Callable[[str], Output]) -> Output:
        """The stored output, or `compute(text)`, stored."""
        name = hashlib.sha256(text.encode()).hexdigest()
        if name in self._held:
            return self._held[name]
        path = self._root / name
        try:
            stored = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, bytes])
            output = {field: np.frombuffer(raw, np.float32) for field, raw in stored.items()}
        except FileNotFoundError:
            output = compute(text)
            draft = path.with_name(f"{name}.{os.getpid()}.{threading.get_ident()}")
            draft.write_bytes(msgspec.msgpack.encode({field: array.tobytes() for field, array in output.items()}))
            draft.replace(path)
        self._held[name] = output
        return output
