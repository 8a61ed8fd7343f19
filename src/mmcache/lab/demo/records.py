"""What one pass over the stream measured. Written by the worker process, read by the parent."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One request."""

    seconds: float
    """From the file or text to the features, key and decoding included."""
    blocks: int
    """Model inputs that it consists of: 1, or the tiles of a crop."""
    computed: int
    """… of which the model ran on."""
    nbytes: int
    """Of the output."""
    digest: str
    """Of dtype, shape and bytes of the output."""


class Pass(msgspec.Struct, frozen=True):
    """One process's run over the whole stream."""

    records: tuple[Record, ...]
    load_seconds: float
    """Loading model weights; part of the requests that needed them first."""
    encoder_seconds: float
    """Inside the models."""
    open_seconds: float = 0.0
    """Opening the cache, importing it included."""
    close_seconds: float = 0.0
    """Making it durable."""
    stored_bytes: int = 0
    """On disk after the pass."""
    hits: int = 0
    misses: int = 0
    miss_reasons: dict[str, int] = {}
    by_modality: dict[str, dict[str, int]] = {}

    @property
    def wall_seconds(self) -> float:
        """Opening, all requests, closing: what the application waited for."""
        return self.open_seconds + sum(record.seconds for record in self.records) + self.close_seconds


class Lossy(msgspec.Struct, frozen=True):
    """The int4 pass: every picture stored, then read back by a freshly opened cache."""

    pictures: int
    exact_bytes: int
    """Of the features as float32."""
    stored_bytes: int
    largest_error: float
    """Largest |decoded - exact| of any element."""
    largest_share: float
    """Largest |decoded - exact| as a share of `INT4.error_bound`; above 1 breaks the promise."""
    mean_cosine: float
    """Of tokens, decoded against exact."""
    computed_again: int
    """Model runs in the second opening; must be 0."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One lookup of the newcomer."""

    page: int
    seconds: float
    warm: bool
    """Its features were there before it was asked for."""
    digest: str
    """As of a `Record`."""
    joined: bool = False
    """They were being computed ahead when it was asked for: it waited for the rest."""


class Visited(msgspec.Struct, frozen=True):
    """The newcomer's walk, in a cache without and in one with a prefetcher, after the same visitors."""

    without: tuple[Step, ...]
    foreseen: tuple[Step, ...]
    """With the prefetcher."""
    brought: int
    """Blocks that it computed ahead, in that walk."""
    used: int
    """… of which were asked for."""
    cancelled: int
    """Computations that gave way to a real one."""
    ahead_seconds: float
    """Of computing ahead, in that walk: beside the visitor, who reads."""
    brought_before: int
    """During the earlier visits, which go from page to page at once."""
    latency_seconds: float
    """Above which lookups are slow enough for it to act; its default is 0.08."""
    earlier_seconds: tuple[float, float] = (0.0, 0.0)
    """That all earlier visitors waited, without and with the prefetcher."""


def save(result: Pass | Lossy | Visited, path: Path) -> None:
    """Write as JSON."""
    path.write_bytes(msgspec.json.encode(result))


def load_pass(path: Path) -> Pass:
    """Read a pass back. Raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(path.read_bytes(), type=Pass)


def load_lossy(path: Path) -> Lossy:
    """Read the int4 pass back. Raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(path.read_bytes(), type=Lossy)


def load_visited(path: Path) -> Visited:
    """Read the scene with a prefetcher back. Raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(path.read_bytes(), type=Visited)
