"""Requests whose parts arrive apart, and what becomes of them when keys are cut from a clock, or from content.

Virtual time: arrivals are drawn, sorted and played; nothing sleeps. What is stored lies in a real `Cache` either way,
so that only the keys differ.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mmcache.cache import Cache
from mmcache.keys.joint import joint_digest
from mmcache.model.key import Key

Arrivals = Literal["poisson", "bursty"]

LAG = (0.080, 0.120)
"""Seconds by which further parts of a request follow its text; uniform between: the published summary says no more."""
BURST, CALM = 0.2, 0.8
"""Seconds that a burst and the calm after it last on average: a fifth of the time holds four fifths of the load."""
BURST_SHARE = 0.8
ZIPF_EXPONENT = 0.9


@dataclass(frozen=True)
class Part:
    """Something of one modality that a request brings."""

    modality: str
    source: Any
    """What `Cache.key` identifies."""
    name: str
    """Which content it is: what a right answer must be about."""


@dataclass(frozen=True)
class Asked:
    """One request: its parts and when each arrives, seconds."""

    parts: tuple[Part, ...]
    times: tuple[float, ...]


@dataclass
class Outcome:
    """Of one run."""

    requests: int = 0
    shared: int = 0
    """Requests of which some part had the key of another content."""
    wrong: int = 0
    """Requests that were answered about something else than what they brought."""

    def share(self, what: int) -> float:
        """Per cent of the requests."""
        return 100.0 * what / self.requests


def moments(rate: float, seconds: float, arrivals: Arrivals, random: np.random.Generator) -> list[float]:
    """When requests arrive, `rate` a second on average: a Poisson process, or one that switches between two rates."""
    if arrivals == "poisson":
        return [float(one) for one in np.sort(random.uniform(0.0, seconds, random.poisson(rate * seconds)))]
    share = BURST / (BURST + CALM)
    fast, slow = rate * BURST_SHARE / share, rate * (1 - BURST_SHARE) / (1 - share)
    found, now, bursting = list[float](), 0.0, False
    while now < seconds:
        bursting = not bursting
        length = float(random.exponential(BURST if bursting else CALM))
        count = random.poisson((fast if bursting else slow) * length)
        found += (now + np.sort(random.uniform(0.0, length, count))).tolist()
        now += length
    return [moment for moment in found if moment < seconds]


def draw(
    texts: Sequence[Part], others: Sequence[tuple[Part, ...]], starts: Sequence[float], random: np.random.Generator
) -> list[Asked]:
    """Requests at `starts`: a text, and a picture or the segments of a clip that follow it, each with a lag of its own.

    Which ones is drawn by Zipf's law: contents do repeat, and sharing what is the same is right.
    """
    picks = [_zipf(len(pool), len(starts), random) for pool in (texts, others)]
    found = []
    for number, start in enumerate(starts):
        parts = (texts[picks[0][number]], *others[picks[1][number]])
        lags = random.uniform(*LAG, len(parts) - 1)
        found.append(Asked(parts, (start, *(start + float(lag) for lag in lags))))
    return found


def _zipf(pool: int, count: int, random: np.random.Generator) -> list[int]:
    weights = np.arange(1, pool + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    return [int(one) for one in random.choice(pool, count, p=random.permutation(weights / weights.sum()))]


def played(requests: Sequence[Asked]) -> Iterator[tuple[int, int, float, bool]]:
    """(request, part, time, whether the request is complete then), in the order of arrival."""
    queue = [(time, number, place) for number, one in enumerate(requests) for place, time in enumerate(one.times)]
    heapq.heapify(queue)
    missing = [len(one.parts) for one in requests]
    while queue:
        time, number, place = heapq.heappop(queue)
        missing[number] -= 1
        yield number, place, time, missing[number] == 0


def by_clock(cache: Cache, requests: Sequence[Asked], tick: float) -> Outcome:
    """Each part is stored under the tick (seconds) in which it arrives, and read back when its request is complete."""
    return _run(
        cache, requests, lambda part, time: cache.key(str(int(time / tick)), modality="text", signature="clock-1")
    )


def by_content(cache: Cache, requests: Sequence[Asked]) -> Outcome:
    """Each part is stored under its content key, the answer under the joint key of all."""
    return _run(cache, requests, lambda part, time: cache.key(part.source, modality=part.modality, signature="parts-1"))


def _run(cache: Cache, requests: Sequence[Asked], name: Callable[[Part, float], Key]) -> Outcome:
    outcome, scope = Outcome(len(requests)), cache.key("", modality="text", signature="answers-1")
    keys = [[scope] * len(one.parts) for one in requests]
    users = dict[Key, dict[str, set[int]]]()  # requests by what they stored under a key
    for number, place, time, complete in played(requests):
        part = requests[number].parts[place]
        key = keys[number][place] = name(part, time)
        users.setdefault(key, {}).setdefault(part.name, set()).add(number)
        cache.put(key, part.name)
        if complete:
            outcome.wrong += _answer(cache, scope, keys[number]) != [part.name for part in requests[number].parts]
    contested = [by_name for by_name in users.values() if len(by_name) > 1]
    outcome.shared = len(set[int]().union(*(numbers for by_name in contested for numbers in by_name.values())))
    return outcome


def _answer(cache: Cache, scope: Key, keys: Sequence[Key]) -> Any:
    """The "answer" is a list of what it is about, made from what lies under the parts' keys."""
    joint = keys[0]
    for key in keys[1:]:
        joint = Key(scope.scope, joint_digest(bytes(32), joint, key))
    return cache.get_or_compute(joint, lambda: [cache.get(key) for key in keys])


def paired_by_clock(requests: Sequence[Asked]) -> Outcome:
    """No key at all: a part goes to the text that came nearest to the mean lag before it. Counts wrong partners."""
    starts = np.array([one.times[0] for one in requests])
    outcome = Outcome(len(requests))
    expected = sum(LAG) / 2
    for number, one in enumerate(requests):
        nearest = [int(np.abs(starts - (time - expected)).argmin()) for time in one.times[1:]]
        outcome.wrong += any(requests[found].parts[0].name != one.parts[0].name for found in nearest if found != number)
    return outcome
