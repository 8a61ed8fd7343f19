"""Simulated streams of near requests, honest and hostile, for what decides whether to trust a near answer.

A world has neighbourhoods (stored wordings), each with its own similarity above which answers are right: what a single
threshold cannot serve. Wordings repeat, as they do in practice, by Zipf's law. A stream draws from the world, and may
change: suddenly, slowly, in one place, or when it is trusted (an adversary sees whether it is served, not the draws).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp
from random import Random

from mmcache.calibration.base import Calibration, Decision, Verdict
from mmcache.likeness.base import Likeness, Nearness, WordDifference

Request = tuple[Likeness, float]
"""What is asked, and the true P(wrong) of the stored answer."""


def name(*parts: int) -> bytes:
    """16 bytes for a wording."""
    return b"".join(part.to_bytes(5, "big") for part in parts).ljust(16, b"\0")[:16]


@dataclass(frozen=True)
class World:
    """Where requests come from. Probabilities are per request; all is drawn from `seed`."""

    seed: int = 0
    neighbourhoods: int = 60
    wordings: int = 40
    """Other wordings of each neighbourhood that recur; `fresh` of the requests are worded as never before."""
    fresh: float = 0.3
    sharpness: float = 60.0
    """How fast P(wrong) falls as similarity passes a neighbourhood's own threshold."""
    thresholds: tuple[float, float] = (0.70, 0.97)
    floor: float = 0.001
    """P(wrong) of what is as like as can be."""
    pictures: float = 0.0
    """Share of requests with the same words on a re-encoded picture; half of the neighbourhoods can't bear it."""

    def draw(self, part: int = 0) -> Callable[[], Request]:
        """A source of requests, the same for the same seed; another `part` is other requests of the same world."""
        rng = Random(f"world-{self.seed}")

        def cosine() -> float:  # the nearest stored wording is rather near
            return 0.6 + 0.399 * max(rng.random(), rng.random())

        owns = [rng.uniform(*self.thresholds) for _ in range(self.neighbourhoods)]
        said = [[cosine() for _ in range(self.wordings)] for _ in range(self.neighbourhoods)]
        places = list(range(self.neighbourhoods))
        rng = Random(f"requests-{self.seed}-{part}")
        weights = [1 / (1 + place) for place in places]
        ranks, shares = list(range(self.wordings)), [1 / (1 + place) for place in range(self.wordings)]

        def one() -> Request:
            place = rng.choices(places, weights)[0]
            stored = name(place)
            if rng.random() < self.pictures:
                near = Nearness.REENCODED if rng.random() < 0.8 else Nearness.TRIMMED
                return Likeness(stored, stored, 1.0, picture=near), 0.6 if place % 2 else self.floor
            if rng.random() < self.fresh:
                likeness, asked = cosine(), name(place, 1, rng.randrange(1 << 39))
            else:
                which = rng.choices(ranks, shares)[0]
                likeness, asked = said[place][which], name(place, 2, which)
            wrong = self.floor + (1 - self.floor) / (1 + exp(self.sharpness * (likeness - owns[place])))
            words = WordDifference.CONTENT if wrong > 0.5 else WordDifference.NONE
            return Likeness(asked, stored, likeness, words if rng.random() < 0.5 else WordDifference.NONE), wrong

        return one


def at_the_bound(rate: float, every: int, seed: int) -> Callable[[], Request]:
    """The worst that must not be certified: a running mean of P(wrong) that is never below `rate`.

    One of `every` requests is wrong with probability `rate · every`, the first of them to begin with, the others never:
    1 = all alike, 1 ÷ rate = bursts. Nothing tells them apart, so what the ranking likes best it likes by luck:
    many neighbourhoods give it opportunity.
    """
    rng, asked = Random(f"bound-{seed}"), [0]

    def one() -> Request:
        wrong = min(rate * every, 1.0) if asked[0] % every == 0 else 0.0
        asked[0] += 1
        return Likeness(name(rng.randrange(40), 1), name(rng.randrange(40)), rng.uniform(0.8, 0.99)), wrong

    return one


Bend = Callable[[int, Request, "Run"], float]
"""`bend(time, request, run)`: the true P(wrong) in place of the world's."""


def steady(time: int, request: Request, run: Run) -> float:
    """Nothing changes."""
    return request[1]


def sudden(at: int, share: float) -> Bend:
    """From `at` on, this share of the answers is outdated."""
    return lambda time, request, run: request[1] if time < at else request[1] + share * (1 - request[1])


def slow(begin: int, end: int, share: float) -> Bend:
    """As `sudden`, but rising steadily between both times."""

    def bend(time: int, request: Request, run: Run) -> float:
        now = share * min(max((time - begin) / (end - begin), 0.0), 1.0)
        return request[1] + now * (1 - request[1])

    return bend


def local(at: int, place: int = 0) -> Bend:
    """From `at` on, one neighbourhood is wrong always."""
    return lambda time, request, run: 1.0 if time >= at and request[0].stored == name(place) else request[1]


def traitor(hits: int) -> Bend:
    """Never wrong until it was served so often, then wrong whenever it would be served again."""
    return lambda time, request, run: float(run.hits >= hits and run.may_serve)


def tease(patience: int) -> Bend:
    """Never wrong until served `patience` times since it was last caught, then wrong until caught: again and again."""

    def bend(time: int, request: Request, run: Run) -> float:
        return float(run.may_serve and run.since_caught >= patience)

    return bend


@dataclass
class Run:
    """What came of one stream."""

    requests: int = 0
    hits: int = 0
    wrong: int = 0
    """Wrong hits: the truth, that the decider does not see."""
    checks: int = 0
    caught: int = 0
    judged: int = 0
    """Would-be hits that were computed: checks, and abstentions that belonged to a level."""
    may_serve: bool = False
    since_caught: int = 0
    first_hit: int = -1
    served: bytearray = field(default_factory=bytearray)
    """A byte a request: 0 computed, 1 served right, 2 served wrong."""
    alarms: list[int] = field(default_factory=list)
    false_certificate: bool = False
    """Whether a level was ever open whose judged requests had a mean P(wrong) of max_error or more."""
    over_budget: float = 0.0
    """The most that wrong hits ever exceeded max_error × (hits + checks)."""
    open: bytearray = field(default_factory=bytearray)
    """A byte a request: whether anything might have been served then."""

    def shut_from(self, begin: int) -> int:
        """The first request from `begin` on when nothing could be served; the end where there is none."""
        found = self.open.find(0, begin)
        return self.requests if found < 0 else found

    def wrong_between(self, begin: int, end: int) -> int:
        """Wrong hits of the requests from `begin` to before `end`."""
        return self.served[begin:end].count(2)

    def hits_between(self, begin: int, end: int) -> int:
        """Hits of the requests from `begin` to before `end`."""
        return end - begin - self.served[begin:end].count(0)

    def ever_above(self, rate: float, least: int) -> bool:
        """Whether after at least so many hits the share of wrong ones among all was ever above `rate`."""
        hits = wrong = 0
        for one in self.served:
            hits += one > 0
            wrong += one == 2
            if one == 2 and hits >= least and wrong > rate * hits:
                return True
        return False


def play(
    decider: Calibration,
    source: Callable[[], Request],
    requests: int,
    *,
    seed: int,
    bend: Bend = steady,
    judge: Callable[[int, Likeness, bool], bool] = lambda time, likeness, right: right,
    max_error: float = 0.01,
) -> Run:
    """Put `requests` of `source` to `decider`. `judge(time, likeness, right)` is what it is told: a flaky one lies."""
    run, rng = Run(), Random(f"play-{seed}")
    tests = getattr(decider, "tests", ())
    means, alarms = [[0.0, 0] for _ in tests], 0
    for time in range(requests):
        likeness, wrong = source()
        run.may_serve = bool(tests) and getattr(decider, "open", 0) >= 0
        run.open.append(run.may_serve)
        wrong = bend(time, (likeness, wrong), run)
        decision = decider.decide(likeness, rng.random())
        right = rng.random() >= wrong
        run.requests += 1
        if decision.verdict is Verdict.SERVE:
            run.hits += 1
            run.since_caught += 1
            run.first_hit = time if run.first_hit < 0 else run.first_hit
            run.wrong += not right
            run.served.append(1 if right else 2)
        else:
            _judged(run, decision, right)
            run.served.append(0)
            decider.learn(likeness, decision, judge(time, likeness, right))
            if tests:
                for mean in means[decision.rank :] if decision.rank >= 0 and decision.counts else ():
                    mean[0], mean[1] = mean[0] + wrong, mean[1] + 1
                counts = getattr(decider, "counts", {})
                if counts.get("alarms", 0) > alarms:
                    alarms = counts["alarms"]
                    run.alarms.append(time)
                    means = [[0.0, 0] for _ in tests]
                top = getattr(decider, "open", -1)
                run.false_certificate |= top >= 0 and means[top][0] >= max_error * means[top][1]
        run.over_budget = max(run.over_budget, run.wrong - max_error * (run.hits + run.checks))
    return run


def _judged(run: Run, decision: Decision, right: bool) -> None:
    if decision.verdict is Verdict.CHECK:
        run.checks += 1
        run.caught += not right
        run.since_caught = run.since_caught if right else 0
    run.judged += decision.rank >= 0
