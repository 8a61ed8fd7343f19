"""A stream of pictures and questions through vLLM, with and without the caches, for the table `vlm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mmcache.lab.engines.process import Engine, Kind

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


KINDS: Mapping[Variant, Kind] = {"none": "none", "prefix": "stock", "ours": "ours"}
BLOCKS = 40
"""Of 128 tokens: what the KV cache holds, about eight pictures with their questions. The little language model would
otherwise keep the KV of a thousand pictures in a gigabyte, which no real one can."""


def run_vllm(
    stream: Sequence[Asked], variant: Variant, *, folder: Path, tokens: int = 8, blocks: int | None = BLOCKS
) -> StreamRun:
    """Serve `stream` in order by one engine, one request at a time; the model is loaded and warm before it begins.

    `folder` holds the model (made where it is not there) and, by variant, what is kept; an empty one is a cold start.
    Where a text has no `<image>`, the picture stands before it. vLLM's own encoder cache, which has room for one
    picture, is part of `prefix` and `ours`. Raises `AssetError` where vLLM is not installed (`make vllm-venv`).
    """
    served, peak = [], 0
    with Engine(KINDS[variant], folder=folder, store=folder / f"stream-{variant}", blocks=blocks) as engine:
        engine.ask(None, "w0 w1")
        for one in stream:
            text = one.text if "<image>" in one.text else f"<image> {one.text}"
            answer = engine.ask(one.picture, text, tokens=tokens)
            served.append(Served(answer.ms, answer.tokens, answer.encoded))
            peak = max(peak, answer.peak)
    return StreamRun(variant, tuple(served), peak)
