"""`FrozenStatistics`: the mean and scale that features are normalised by before they become a key.

Fitted once, on calibration features, and never moved. A key made with running statistics (batch normalisation in
training mode, a normaliser that is updated as data comes) names the same picture differently tomorrow, so every stored
answer is lost with no error anywhere. A refit is possible at any time; it has another `digest`, which belongs into
`Signature.preprocess`, so it is another signature and never a silent change.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

from mmcache.keys.framing import framed
from mmcache.model.errors import CorruptFrameError, FormatVersionError, InvalidInputError

Floats = npt.NDArray[np.float32]

VERSION = 1
MOST_DIMENSIONS = 1 << 20
LEAST_SAMPLES = 2


class _Stored(msgspec.Struct, frozen=True):
    version: int
    name: str
    samples: int
    mean: bytes
    """Little-endian float32 [d]."""
    scale: bytes
    digest: bytes


@dataclass(frozen=True, eq=False)
class FrozenStatistics:
    """Mean and scale of each dimension, as they were on the calibration features. Equal where the digests are.

    >>> frozen = FrozenStatistics.fit(np.array([[0.0, 5.0], [2.0, 5.0]]))
    >>> frozen.normalise(np.array([[2.0, 6.0]])).tolist()
    [[1.0, 1.0]]
    """

    mean: Floats
    """float32 [d]."""
    scale: Floats
    """float32 [d], all > 0: the standard deviation; 1 where the calibration features did not vary."""
    samples: int = 0
    """How many features it was fitted on."""
    name: str = ""
    """What the features are, e.g. a model's name; part of the digest."""

    def __post_init__(self) -> None:
        mean, scale = (np.array(part, "<f4", copy=True, order="C") for part in (self.mean, self.scale))
        if mean.ndim != 1 or mean.shape != scale.shape or not 0 < mean.size <= MOST_DIMENSIONS:
            raise InvalidInputError(f"statistics are two vectors of one length, got {mean.shape} and {scale.shape}")
        if not (np.isfinite(mean).all() and np.isfinite(scale).all() and (scale > 0).all()):
            raise InvalidInputError("statistics must be finite and every scale above 0; fit them on finite features")
        for part in (mean, scale):
            part.flags.writeable = False
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "scale", scale)

    @staticmethod
    def fit(features: npt.ArrayLike, *, name: str = "") -> FrozenStatistics:
        """Of calibration features [n, d]; computed in float64. Raises `InvalidInputError` for n < 2, NaN, infinity."""
        rows = checked(features)
        if len(rows) < LEAST_SAMPLES:
            raise InvalidInputError(f"{len(rows)} features are too few for statistics; give at least {LEAST_SAMPLES}")
        wide = rows.astype(np.float64)
        mean, deviation = wide.mean(0), wide.std(0)
        flat = deviation <= 1e-7 * np.maximum(1.0, np.abs(mean))  # float32 noise must not be blown up to a signal
        return FrozenStatistics(
            mean.astype(np.float32), np.where(flat, 1.0, deviation).astype(np.float32), len(rows), name
        )

    @property
    def width(self) -> int:
        """Dimensions d."""
        return int(self.mean.size)

    @cached_property
    def digest(self) -> str:
        """32 hex digits over name, mean and scale: what keys and `Signature.preprocess` carry."""
        parts = framed("frozen statistics v1", self.name.encode(), self.mean.tobytes(), self.scale.tobytes())
        return blake3(parts).hexdigest()[:32]

    @property
    def identity(self) -> str:
        """For `Signature.preprocess`: `frozen-` and the digest."""
        return f"frozen-{self.digest}"

    def normalise(self, features: npt.ArrayLike) -> Floats:
        """float32 [n, d]: (features − mean) / scale. Row by row the same, whatever n is.

        Raises `InvalidInputError` for another width, NaN or infinity.
        """
        rows = checked(features)
        if rows.shape[1] != self.width:
            raise InvalidInputError(f"these statistics are of {self.width} dimensions, the features have {rows.shape}")
        with np.errstate(over="ignore"):
            out: Floats = (rows - self.mean) / self.scale
        if not np.isfinite(out).all():
            raise InvalidInputError("features are too large for these statistics: they overflow float32")
        return out

    def to_bytes(self) -> bytes:
        """msgpack with version and digest; see `from_bytes`."""
        parts = self.mean.tobytes(), self.scale.tobytes(), self.digest.encode()
        return msgspec.msgpack.encode(_Stored(VERSION, self.name, self.samples, *parts))

    @staticmethod
    def from_bytes(data: bytes) -> FrozenStatistics:
        """Raises `CorruptFrameError` for damaged bytes, `FormatVersionError` for those of a newer mmcache."""
        stored = decoded(data, _Stored, VERSION, "frozen statistics")
        try:
            mean, scale = (np.frombuffer(part, "<f4") for part in (stored.mean, stored.scale))
            found = FrozenStatistics(mean, scale, stored.samples, stored.name)
        except ValueError as error:
            raise CorruptFrameError(f"frozen statistics are damaged: {error}; fit them again") from error
        if found.digest.encode() != stored.digest:
            raise CorruptFrameError("frozen statistics do not have the digest they were saved with; get a fresh copy")
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`, replacing it at once."""
        write_private(Path(path), self.to_bytes())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> FrozenStatistics:
        """What `save` wrote. Raises as `from_bytes`, and `OSError`."""
        return FrozenStatistics.from_bytes(Path(path).read_bytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenStatistics) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def checked(features: npt.ArrayLike) -> Floats:
    """`features` as float32 [n, d]; one vector is one row. Raises `InvalidInputError`."""
    try:
        with np.errstate(over="ignore"):
            rows = np.atleast_2d(np.asarray(features, np.float32))
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"features are numbers [n, d]: {error}") from error
    if rows.ndim != 2 or not rows.shape[1]:
        raise InvalidInputError(f"features are [n, d], got {rows.shape}")
    if not np.isfinite(rows).all():
        raise InvalidInputError("features hold NaN or infinity; nothing can be keyed by them")
    return rows


def decoded(data: bytes, kind: Any, version: int, what: str) -> Any:
    """msgpack `data` as the struct `kind`, whose first field is its version."""
    try:
        found = msgspec.msgpack.decode(data, type=_Versioned).version
        if found > version:
            raise FormatVersionError(f"these {what} have format {found}, newer than {version}; upgrade mmcache")
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptFrameError(f"these bytes are no {what}: {error}") from error


class _Versioned(msgspec.Struct):
    version: int


def write_private(path: Path, data: bytes) -> None:
    """Replace `path` at once by a file of mode 0600."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as page:
            page.write(data)
        os.replace(draft, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
