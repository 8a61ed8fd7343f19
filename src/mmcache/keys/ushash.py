"""US-HASH: one 64-bit code for pictures, texts and sounds of the same thing, from their encoders' features.

A linear head per modality into 128 dimensions, L2-normalised, times 64 prototypes; the signs are the code. What heads
and prototypes are is learned from paired features (`mmcache learn hash`) and kept in one safetensors file; running it
needs numpy alone. Codes are compared by Hamming distance (`mmcache.near`). They name no content: two inputs of one code
are alike, not equal, and an exact key never rests on one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mmcache.model.errors import CorruptFrameError, FormatVersionError, InvalidInputError, SettingsError

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint64]

WIDTH = 128
"""Dimensions of the space that the heads lead into."""
BITS = 64
VERSION = 1
FORMAT = "mmcache-ushash"
MOST_MODALITIES = 16
MOST_FEATURES = 1 << 16
"""Of one modality: values of a feature vector."""
MOST_BYTES = 1 << 30
"""Of a file: refused before it is read."""


@dataclass(frozen=True)
class Head:
    """The linear map of one modality."""

    weight: Floats
    """float32 [128, features]."""
    bias: Floats
    """float32 [128]."""
    encoder: str = ""
    """Signature of the encoder that its features come from, hex; empty where the pairs did not tell."""


@dataclass(frozen=True)
class USHash:
    """Learned heads and prototypes. Immutable; safe to share between threads."""

    heads: Mapping[str, Head]
    """Modality → its head."""
    prototypes: Floats
    """float32 [64, 128]."""
    seed: int = 0
    """Of the training."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """What the training says of itself: pairs, scores. Free text."""

    def __post_init__(self) -> None:
        """Raises `InvalidInputError` where shapes, dtypes or values make no hash."""
        if not 1 <= len(self.heads) <= MOST_MODALITIES:
            raise InvalidInputError(f"a hash has 1 to {MOST_MODALITIES} modalities, not {len(self.heads)}")
        _check("prototypes", self.prototypes, (BITS, WIDTH))
        for modality, head in self.heads.items():
            features = head.weight.shape[-1] if head.weight.ndim else 0
            if not 1 <= features <= MOST_FEATURES:
                raise InvalidInputError(f"head {modality!r} takes {features} features, not 1 to {MOST_FEATURES}")
            _check(f"weight of {modality!r}", head.weight, (WIDTH, features))
            _check(f"bias of {modality!r}", head.bias, (WIDTH,))

    def embed(self, modality: str, features: npt.ArrayLike) -> Floats:
        """Features [n, width] → float32 [n, 128] of norm 1; cosines compare modalities, and re-rank what codes found.

        What the head maps to nothing stays nothing: cosine 0 to everything.

        Raises `SettingsError` for a modality that it has no head for, `InvalidInputError` for other shapes and for
        values that are not finite.
        """
        head = self.heads.get(modality)
        if head is None:
            raise SettingsError(f"the hash has no head for {modality!r}; it was trained on {', '.join(self.heads)}")
        with np.errstate(over="ignore"):
            rows = np.asarray(features, np.float32)
        if rows.ndim != 2 or rows.shape[1] != head.weight.shape[1]:
            raise InvalidInputError(f"{modality} features are [n, {head.weight.shape[1]}], not {list(rows.shape)}")
        if not np.isfinite(rows).all():
            raise InvalidInputError(f"{modality} features must be finite")
        with np.errstate(over="ignore", invalid="ignore"):
            mapped = rows @ head.weight.T + head.bias
        if not np.isfinite(mapped).all():
            raise InvalidInputError(f"{modality} features are too large: they overflow float32")
        norms = np.linalg.norm(mapped, axis=1, keepdims=True)
        return np.asarray(mapped / np.maximum(norms, 1e-12), np.float32)

    def code(self, modality: str, features: npt.ArrayLike) -> Codes:
        """Features [n, width] → uint64 [n]: bit i is set where the embedding leans to prototype i. Raises as `embed`.

        A value next to a threshold may fall on its other side with another BLAS or batch: codes are for nearness.
        """
        return pack(self.embed(modality, features) @ self.prototypes.T > 0)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file, replacing `path` at once when complete. Raises `SettingsError`."""
        from safetensors.numpy import save

        tensors: dict[str, Any] = {"prototypes": np.ascontiguousarray(self.prototypes)}
        for modality, head in self.heads.items():
            tensors[f"head.{modality}.weight"] = np.ascontiguousarray(head.weight)
            tensors[f"head.{modality}.bias"] = np.ascontiguousarray(head.bias)
        encoders = {modality: head.encoder for modality, head in self.heads.items()}
        facts = {
            "format": FORMAT, "version": str(VERSION), "seed": str(self.seed), "encoders": json.dumps(encoders),
            "notes": json.dumps(dict(self.notes)),
        }  # fmt: skip
        target = Path(path)
        part = target.with_name(f".{target.name}.{os.urandom(8).hex()}")  # threads may save at once
        try:
            part.write_bytes(save(tensors, facts))
            part.replace(target)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise SettingsError(f"cannot write {target}: {error.strerror}; choose another path") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> USHash:
        """Read and check one.

        Raises `SettingsError` where there is no such file, `FormatVersionError` for one of a newer version, and
        `CorruptFrameError` for anything that is no sound hash.
        """
        from safetensors import SafetensorError, safe_open

        source = Path(path)
        try:
            size = source.stat().st_size
        except OSError as error:
            advice = "train one with `mmcache learn hash`"
            raise SettingsError(f"cannot read the hash {source}: {error.strerror}; {advice}") from error
        if size > MOST_BYTES:
            raise CorruptFrameError(f"{source} has {size} bytes, too many for a hash")
        try:
            with safe_open(source, framework="numpy") as file:
                facts = file.metadata() or {}
                _version(source, facts)
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            encoders = json.loads(facts["encoders"])
            heads = {
                modality: Head(tensors[f"head.{modality}.weight"], tensors[f"head.{modality}.bias"], str(encoder))
                for modality, encoder in encoders.items()
            }
            if len(tensors) != 1 + 2 * len(heads):
                raise CorruptFrameError(f"{source} is no sound hash: tensors without a modality")
            notes = {str(name): str(note) for name, note in json.loads(facts["notes"]).items()}
            return cls(heads, tensors["prototypes"], int(facts["seed"]), notes)
        except (SafetensorError, KeyError, ValueError, AttributeError, TypeError, OSError, RecursionError) as error:
            raise CorruptFrameError(f"{source} is no sound hash: {error}; train it again") from error


def pack(bits: npt.NDArray[np.bool_]) -> Codes:
    """bool [n, 64] → uint64 [n], bit i from column i."""
    return np.packbits(bits, axis=1, bitorder="little").view("<u8")[:, 0].astype(np.uint64)


def _version(source: Path, facts: Mapping[str, str]) -> None:
    if facts.get("format") != FORMAT:
        raise CorruptFrameError(f"{source} is a safetensors file, but no US-HASH; train one with `mmcache learn hash`")
    if (version := int(facts["version"])) > VERSION:
        raise FormatVersionError(f"{source} is of version {version}, this mmcache reads {VERSION}: update mmcache")


def _check(what: str, array: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float32 or array.shape != shape:
        raise InvalidInputError(f"{what} should be float32 {list(shape)}, not {array.dtype} {list(array.shape)}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{what} has values that are not finite")
