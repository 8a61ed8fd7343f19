"""A stream of pictures and questions through vLLM, with and without the caches, for the table `vlm`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Variant = Literal["none", "prefix", "ours"]
"""`none`: neither encoder cache nor prefix cache; `prefix`: vLLM's own prefix cache only; `ours`: prefix cache and
`MMCacheConnector`."""


@dataclass(frozen=True)
class Asked:
    """One request: a picture file, and words of the little tokenizer (any text; unknown words become `<unk>`)."""

    picture: Path
    text: str


@dataclass(frozen=True)
class Served:
    """How one request was answered, in the order of the stream."""

    ms: float
    """Whole latency, one request at a time."""
    tokens: tuple[int, ...]
    encoded: int
    """How often the vision tower ran for it."""


@dataclass(frozen=True)
class StreamRun:
    """What one variant did with a stream."""

    variant: Variant
    served: tuple[Served, ...]
    peak_bytes: int
    """Largest resident set of the engine's process."""


def run_vllm(stream: Sequence[Asked], variant: Variant, *, folder: Path, tokens: int = 8) -> StreamRun:
    """Serve `stream` in order by one engine; `folder` holds the model and the cache. Raises `AssetError` where vLLM is
    not installed (`make vllm-venv`)."""
    raise NotImplementedError
