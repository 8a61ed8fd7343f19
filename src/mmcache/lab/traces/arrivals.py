"""When requests came, without what they asked for: published traces as counts of equal steps of time."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from mmcache.lab.traces.trace import Floats
from mmcache.model.errors import AssetError

AZURE = {"azure-code": "AzureLLMInferenceTrace_code.csv", "azure-conv": "AzureLLMInferenceTrace_conv.csv"}
MOONCAKE = "mooncake/conversation_trace.jsonl"
SERVEGEN = "servegen_mm_image/data/multimodal/mm-image"
SERVEGEN_WINDOW_SECONDS = 600.0
DAY_SECONDS = 86_400.0


@dataclass(frozen=True)
class Arrivals:
    """Sorted seconds since the beginning of the stream."""

    name: str
    times: Floats
    seconds: float
    """How long the stream is."""

    def counts(self, step: float) -> Floats:
        """Requests of each `step` seconds."""
        edges = np.arange(int(self.seconds // step) + 1) * step
        return np.histogram(self.times, edges)[0].astype(np.float64)


def azure(name: str, folder: Path) -> Arrivals:
    """Of `AZURE`: an hour of an LLM service (Patel et al., Splitwise, ISCA 2024). Raises `AssetError`."""
    path = folder / "azure" / AZURE[name]
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            stamps = [_seconds(row["TIMESTAMP"]) for row in csv.DictReader(lines)]
    except (OSError, ValueError, KeyError) as error:
        raise AssetError(f"{path} is no trace of Azure's: {error}") from error
    return _of(name, stamps, path)


def mooncake(folder: Path) -> Arrivals:
    """An hour of conversations (Qin et al., Mooncake, FAST 2025). Raises `AssetError`.

    Its times are given in steps of three seconds: within one, requests are spread evenly.
    """
    path = folder / MOONCAKE
    try:
        with path.open(encoding="utf-8") as lines:
            stamps = [json.loads(line)["timestamp"] / 1e3 for line in lines]
    except (OSError, ValueError, KeyError) as error:
        raise AssetError(f"{path} is no trace of Mooncake's: {error}") from error
    _, first, same = np.unique(np.array(stamps), return_index=True, return_counts=True)
    times = np.array(stamps)
    for start, count in zip(first, same, strict=True):
        times[start : start + count] += 3.0 * np.arange(count) / count
    return _of("mooncake", list(times), path)


def servegen(folder: Path, seed: int, days: int) -> Arrivals:
    """Arrivals drawn from ServeGen's description of a day with pictures (Xiang et al., ServeGen, 2025): 35 clients, for
    each ten minutes a rate and the shape of the times between (Gamma or Weibull; exponential where none is told).

    The description is of one day: each of `days` is drawn anew from it. Raises `AssetError`.
    """
    random = np.random.default_rng(seed)
    found = []
    for path in sorted((folder / SERVEGEN).glob("chunk-*-trace.csv")):
        windows = list(_windows(path))
        for day in range(days):
            for start, rate, kind, shape in windows:
                gaps = _gaps(random, rate, kind, shape)
                times = np.cumsum(gaps) - gaps[0] * random.random()  # the window begins somewhere within a gap
                found.append(day * DAY_SECONDS + start + times[times < SERVEGEN_WINDOW_SECONDS])
    if not found:
        raise AssetError(f"{folder / SERVEGEN} has no windows")
    return Arrivals("servegen", np.sort(np.concatenate(found)), days * DAY_SECONDS)


def _windows(path: Path) -> Iterator[tuple[float, float, str, float]]:
    """(start, requests a second, kind, shape) of those in which something came."""
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            for start, rate, _, kind, shape, _ in csv.reader(lines):
                if float(rate) > 0:
                    yield float(start), float(rate), kind, float(shape) if shape else 1.0
    except (OSError, ValueError) as error:
        raise AssetError(f"{path} is no trace of ServeGen's: {error}") from error


def _gaps(random: np.random.Generator, rate: float, kind: str, shape: float) -> Floats:
    """More than fill a window; their mean is 1 / rate."""
    from math import gamma

    many = int(2 * rate * SERVEGEN_WINDOW_SECONDS + 20 * np.sqrt(rate * SERVEGEN_WINDOW_SECONDS / min(1.0, shape)) + 20)
    if kind == "Gamma":
        return random.gamma(shape, 1 / (rate * shape), many)
    if kind == "Weibull":
        return random.weibull(shape, many) / (rate * gamma(1 + 1 / shape))
    return random.exponential(1 / rate, many)


def _seconds(stamp: str) -> float:
    """Python reads six digits of a second; here are seven."""
    return datetime.fromisoformat(stamp[:26]).replace(tzinfo=UTC).timestamp()


def _of(name: str, stamps: list[float], path: Path) -> Arrivals:
    if len(stamps) < 2:
        raise AssetError(f"{path} is empty")
    times = np.sort(np.array(stamps))
    return Arrivals(name, times - times[0], float(times[-1] - times[0]))
