"""Traffic for lifetimes: three modalities, contents that come in releases and go.

Recompute times have the published shapes. All else is ours: popularity is Zipf over 150 places a modality; a place asks
for its content again and again, after Gamma gaps; every minute a release gives all places new content, which is loaded
at once before anybody asks (as a deployment from a snapshot does: what lives equally long then ends together); some
requests are for contents asked for once. One time scale, `TEMPO`, was set so that a lifetime of 2 s hits as often as
published (68.3 %); nothing was set by what other lifetimes do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mmcache.lab.traces.trace import Trace
from mmcache.ttl.gamma import Gamma

Floats = npt.NDArray[np.float64]

LATENCY = {"text": Gamma(4.0, 0.085 / 4.0), "image": Gamma(5.2, 0.023), "audio": Gamma(3.8, 0.082)}
"""Seconds of compute. Image and audio as published; the text's mean is its published 85 ms."""
PACE = {"text": 1.0, "image": 3.0, "audio": 10.0}
"""How much slower than text a modality is asked for."""
SERVERS = {"text": 12, "image": 12, "audio": 12}
"""Model replicas; each computes one block at a time, first come, first served."""
TEMPO = 0.027
"""Seconds between two requests for the most popular text."""
PLACES = 150
ZIPF = 0.9
GAP_SHAPE = 2.0
"""Of the gaps between requests for one content: more regular than chance, which is 1."""
RELEASE_SECONDS = 60.0
ONCE = 0.05
"""Share of requests for contents that never come again."""
CHANGE_SECONDS = 300.0
"""Mean time until a source changes and tells nobody: at any moment alike, and the same for all modalities."""
WARM_UP = 120.0
"""Seconds that are played but not counted."""


@dataclass(frozen=True)
class Traffic:
    """Requests in order."""

    times: Floats
    contents: npt.NDArray[np.int64]
    modality: tuple[str, ...]
    """Of each content."""
    releases: tuple[tuple[float, tuple[int, ...]], ...]
    """When contents are loaded together, and which."""


def draw(seed: int, seconds: float) -> Traffic:
    """`seconds` of traffic, repeatable."""
    random = np.random.default_rng(seed)
    times, owners = list[Floats](), list[npt.NDArray[np.int64]]()
    modality: list[str] = []

    def ask(name: str, when: Floats) -> None:
        times.append(when)
        owners.append(np.full(when.size, len(modality), np.int64))
        modality.append(name)

    released: dict[float, list[int]] = {}
    for name, pace in PACE.items():
        gaps = TEMPO * pace * np.arange(1, PLACES + 1) ** ZIPF
        for release in np.arange(0.0, seconds, RELEASE_SECONDS).tolist():
            for gap in gaps.tolist():
                released.setdefault(release, []).append(len(modality))
                ask(name, _renewals(random, release, min(release + RELEASE_SECONDS, seconds), gap))
        once = random.poisson(ONCE / (1 - ONCE) * seconds * (1 / gaps).sum())
        for when in random.uniform(0, seconds, once):
            ask(name, np.array([when]))
    joined = np.concatenate(times)
    order = np.argsort(joined, kind="stable")
    releases = tuple((when, tuple(contents)) for when, contents in sorted(released.items()))
    return Traffic(joined[order], np.concatenate(owners)[order], tuple(modality), releases)


def traced(trace: Trace) -> Traffic:
    """The requests of a trace with times, all for text."""
    return Traffic(trace.times - trace.times[0], trace.ids.astype(np.int64), ("text",) * len(trace.sizes), ())


def _renewals(random: np.random.Generator, start: float, end: float, gap: float) -> Floats:
    count = int((end - start) / gap * 1.5) + 20
    when = start + random.random() * gap + np.append(0.0, np.cumsum(random.gamma(GAP_SHAPE, gap / GAP_SHAPE, count)))
    return np.asarray(when[when < end], np.float64)
