"""Made-up requests for real pictures: some always, some in bursts of their own, some because their topic trends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from mmcache.lab.hotkeys_readings import Seen, topics

Floats = npt.NDArray[np.float64]
Kind = Literal["trends", "control", "planted"]
KINDS: tuple[Kind, ...] = ("trends", "control", "planted")

WINDOWS = 128
A_WINDOW = 4000
"""Requests a window, about, at rest."""
ZIPF = 0.7
TREND_EVERY, BURST_EVERY = 3.0, 0.35
"""Windows between the beginnings of two trends; of two bursts of single pictures."""
RISE = (0.2, 0.5)
"""Of its height, in the windows before a trend's or a burst's height."""
PLANTED = 20.0
"""How strongly: a picture of the surest quarter is this many times as likely to burst as another."""
ON_TOPIC = 0.8
"""Of the requests that a trend brings, those that ask about its topic."""


@dataclass(frozen=True)
class Stream:
    """What is asked, window by window."""

    rates: Floats
    """float64 [windows, pictures]: uses expected: what nobody who watches can know."""
    requests: tuple[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]], ...]
    """A window each: the pictures asked for, in order, and which of its questions."""
    uses: Floats
    """float64 [windows, pictures]."""


def draw(
    kind: Kind, pictures: Sequence[Seen], seed: int, *, windows: int = WINDOWS, a_window: int = A_WINDOW
) -> Stream:
    """`trends`: groups that trend together are topics, and trends bring questions about them. `control`: groups of the
    same sizes, of pictures that have nothing in common, and trends bring questions as they come. Neither looks at
    attention. `planted`: as `control`, but bursts come mostly over pictures that attention is sure of: it says whether
    a use of attention would be seen if there were one, and nothing about pictures.
    """
    random = np.random.default_rng([seed, KINDS.index(kind)])
    groups, likely = topics(pictures), np.ones(len(pictures))
    if kind != "trends":
        groups = {name: random.permutation(len(pictures))[: len(of)].tolist() for name, of in groups.items()}
    base: Floats = (1.0 + random.permutation(len(pictures)).astype(np.float64)) ** -ZIPF
    base *= a_window / base.sum()
    extra = _trends(groups, base, windows, random)
    if kind == "planted":
        entropies = np.array([np.mean([reading.nats.entropy for reading in one.readings]) for one in pictures])
        likely[entropies < np.quantile(entropies, 0.25)] = PLANTED
    alone = _bursts(base, windows, likely / likely.sum(), random)
    rates = base + alone + sum(extra.values(), np.zeros((windows, len(pictures))))
    on_topic = [
        {name: [i for i, reading in enumerate(one.readings) if reading.about == name] for name in one.topics}
        for one in pictures
    ]
    requests = list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]()
    for window in range(windows):
        asked = [_any(random.poisson(base + alone[window]), pictures, random)]
        for name, of in extra.items():
            if not of[window].any():
                continue
            which, question = _any(random.poisson(of[window]), pictures, random)
            if kind == "trends":
                for place in np.flatnonzero(random.random(len(which)) < ON_TOPIC):
                    if choices := on_topic[which[place]].get(name):
                        question[place] = choices[random.integers(len(choices))]
            asked.append((which, question))
        which, question = (np.concatenate(parts) for parts in zip(*asked, strict=True))
        order = random.permutation(len(which))
        requests.append((which[order], question[order]))
    uses = np.stack([np.bincount(which, minlength=len(pictures)) for which, _ in requests]).astype(np.float64)
    return Stream(rates, tuple(requests), uses)


def _shape(random: np.random.Generator) -> Floats:
    """A rise of two windows, a height of some, a fall that halves: shares of the height."""
    height, falling = int(random.integers(3, 9)), 0.5 ** np.arange(1, 6)
    return np.concatenate([RISE, np.ones(height), falling])


def _trends(
    groups: Mapping[str, list[int]], base: Floats, windows: int, random: np.random.Generator
) -> dict[str, Floats]:
    """Topic → uses that its trends add, [windows, pictures]. Not all of a topic's pictures take part alike."""
    found = {name: np.zeros((windows, len(base))) for name in groups}
    names, at = list(groups), random.exponential(TREND_EVERY)
    while at < windows:
        name = names[random.integers(len(names))]
        of = np.array(groups[name])
        heights = 25.0 * random.lognormal(0.0, 1.0, len(of)) * min(1.0, 25 / len(of))
        _add(found[name], of, heights, int(at), random)
        at += random.exponential(TREND_EVERY)
    return found


def _bursts(base: Floats, windows: int, likely: Floats, random: np.random.Generator) -> Floats:
    """Uses that bursts of single pictures add, [windows, pictures]. likely: [pictures], which are drawn."""
    found, at = np.zeros((windows, len(base))), random.exponential(BURST_EVERY)
    while at < windows:
        which = random.choice(len(base), 1, p=likely)
        _add(found, which, 30.0 * random.lognormal(0.0, 0.7, 1), int(at), random)
        at += random.exponential(BURST_EVERY)
    return found


def _add(to: Floats, which: npt.NDArray[np.intp], heights: Floats, begin: int, random: np.random.Generator) -> None:
    for place, share in enumerate(_shape(random)[: len(to) - begin]):
        to[begin + place, which] += share * heights


def _any(
    counts: npt.NDArray[np.int64], pictures: Sequence[Seen], random: np.random.Generator
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Each picture as often as `counts` says, each time with any of its questions."""
    which = np.repeat(np.arange(len(counts)), counts)
    many = np.array([len(one.readings) for one in pictures])
    return which, (random.random(len(which)) * many[which]).astype(np.intp)
