"""Rows of table `semantic` on the guarantee: simulated streams, honest and hostile, and the product's calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from mmcache.calibration.base import Verdict
from mmcache.calibration.bounds import clopper_pearson
from mmcache.calibration.calibrated import Calibrated
from mmcache.lab.measure import interleave
from mmcache.lab.table import Progress, Row
from mmcache.lab.threshold_rival import best_in_hindsight
from mmcache.lab.trust_streams import (
    Bend,
    Run,
    World,
    at_the_bound,
    local,
    name,
    play,
    slow,
    sudden,
    tease,
    traitor,
)
from mmcache.lab.vcache_rival import VCache
from mmcache.likeness.base import Likeness

MAX_ERROR = 0.01
KIND = World(thresholds=(0.6, 0.85), fresh=0.2)
"""A population that can be trusted after some thousand requests: what drift and lies are tried on."""
HARD = World()
"""Neighbourhoods whose thresholds differ as much as similarities do."""
CHANGES: dict[str, tuple[str, Bend]] = {
    "all": ("100 % of answers outdated at once", sudden(0, 1.0)),
    "fifth": ("20 % of answers outdated at once", sudden(0, 0.2)),
    "twentieth": ("5 % of answers outdated at once", sudden(0, 0.05)),
    "slow": ("outdated answers rise from 0 to 50 % over 4 000 requests", slow(0, 4000, 0.5)),
    "one-place": ("the most asked neighbourhood turns wrong", local(0)),
    "traitor": ("adversary, right until 500 hits, then wrong whenever it is served", traitor(500)),
}


def rows(quick: bool, seeds: Sequence[int], progress: Progress) -> list[Row]:
    """All rows, ids from `trust/` on. Of a free core about 20 s if `quick`, else 3 minutes."""
    steps: list[Callable[[], list[Row]]] = [
        lambda: certificates(20 if quick else 200),
        lambda: changes(2 if quick else 20),
        lambda: adversaries(2 if quick else 24, 4000 if quick else 10_000),
        lambda: lies(3 if quick else 12),
        lambda: against_rivals(seeds[:1] if quick else seeds, 4000 if quick else 20_000),
        lambda: speed(quick),
    ]
    found: list[Row] = []
    for done, step in enumerate(steps):
        progress("simulated streams of near requests", done, len(steps))
        found += step()
    return found


def certificates(runs: int) -> list[Row]:
    """How often something is certified that must not be. ε = 5 %, where it takes the fewest outcomes to be fooled."""
    rate, found = 0.05, []
    kinds = {"alike": (1, "all alike"), "coins": (10, "every tenth by coin"), "bursts": (20, "every twentieth, surely")}
    for kind, (every, words) in kinds.items():
        fooled = sum(
            play(Calibrated(rate), at_the_bound(rate, every, seed), 1200, seed=seed, max_error=rate).false_certificate
            for seed in range(runs)
        )
        found.append(_share(f"trust/false-certificate/{kind}", f"runs with a false certificate: {words}", fooled, runs))
    return found


def _share(id: str, metric: str, count: int, of: int, target: float = 5.0) -> Row:
    low, high = clopper_pearson(count, of, 0.8)
    return Row(id, f"{metric} ({of} runs)", "%", "lower", 100 * count / of, (100 * low, 100 * high), target)


def trained(seed: int, requests: int = 12_000) -> tuple[World, bytes]:
    """A world and what was learned of it."""
    world = World(seed, thresholds=KIND.thresholds, fresh=KIND.fresh)
    one = Calibrated(MAX_ERROR)
    play(one, world.draw(), requests, seed=seed)
    return world, one.state()


def _after(state: bytes, world: World, bend: Bend, requests: int, seed: int) -> Run:
    one = Calibrated(MAX_ERROR)
    one.restore(state)
    return play(one, world.draw(1), requests, seed=1000 + seed, bend=bend)


def changes(runs: int, requests: int = 4000) -> list[Row]:
    """After a change: how many wrong hits until everything is shut or, for one place, until that is."""
    states = [trained(seed) for seed in range(runs)]
    states = [(world, state) for world, state in states if _open(state)]
    found = [
        Row.of("trust/drift/runs", "runs that were serving when the change came", "", "higher", float(len(states)))
    ]
    for kind, (words, bend) in CHANGES.items() if states else ():
        played = [_after(state, world, bend, requests, seed) for seed, (world, state) in enumerate(states)]
        begin = [_begin(run) if kind == "traitor" else 0 for run in played]
        shut = [run.shut_from(at) for run, at in zip(played, begin, strict=True)]
        if kind != "one-place":
            waits = [float(end - at) for end, at in zip(shut, begin, strict=True)]
            found.append(
                Row.of(f"trust/drift/{kind}/requests", f"until nothing is served: {words}", "", "lower", waits)
            )
        else:
            shut = [requests] * len(played)
        wrong = [float(run.wrong_between(at, end)) for run, at, end in zip(played, begin, shut, strict=True)]
        found.append(Row.of(f"trust/drift/{kind}/wrong", f"wrong hits by then: {words}", "", "lower", wrong, target=60))
    return found


def _begin(run: Run) -> int:
    """When the traitor turned: at its 500th hit."""
    hits = 0
    for time, one in enumerate(run.served):
        hits += one > 0
        if hits == 500:
            return time + 1
    return run.requests


def _open(state: bytes) -> bool:
    one = Calibrated(MAX_ERROR)
    one.restore(state)
    return one.open >= 0


def adversaries(runs: int, requests: int) -> list[Row]:
    """What the ledger promises on every stream, tried by those that know whether they are served."""
    kinds: dict[str, tuple[str, Bend]] = {
        "traitor": ("right until 1 000 hits, then wrong whenever served", traitor(1000)),
        "tease": ("wrong from 300 hits on until caught, again and again", tease(300)),
        "steady": ("no adversary", lambda time, request, run: request[1]),
    }
    found = []
    for kind, (words, bend) in kinds.items():
        shares, most = [], 0.0
        for seed in range(runs):
            world = World(seed, thresholds=KIND.thresholds, fresh=KIND.fresh)
            run = play(Calibrated(MAX_ERROR), world.draw(), requests, seed=seed, bend=bend)
            shares.append(100 * run.wrong / max(run.hits + run.checks, 1))
            most = max(most, run.over_budget)
        mean = sum(shares) / runs
        low, high = min(shares), max(shares)
        found += [
            Row(
                f"trust/any-stream/{kind}/wrong", f"wrong hits, of hits and checks, mean of {runs}: {words}", "%",
                "lower", mean, (low, high), 100 * MAX_ERROR,
            ),
            Row.of(
                f"trust/any-stream/{kind}/over", "wrong hits beyond 1 % of hits and checks, worst of all runs",
                "", "lower", most, target=150.0,
            ),
        ]  # fmt: skip
    return found


def lies(runs: int, most: int = 3000) -> list[Row]:
    """A judge that says wrong for right of one trusted pair, and right for wrong of a bad one."""
    found = []
    for count in (1, 3):
        waits = [float(_recovery(seed, count, most)) for seed in range(runs)]
        found.append(
            Row.of(
                f"trust/lies/wrong-for-right/{count}", f"requests for it until its hits are back, {count} false labels",
                "", "lower", waits, target=float(most - 1),
            )
        )  # fmt: skip
    served = [float(_deceived(seed, 10)) for seed in range(runs)]
    words = "wrong hits on a bad pair that was praised 10 times falsely, in its next 300 requests"
    return [*found, Row.of("trust/lies/right-for-wrong/10", words, "", "lower", served, target=60.0)]


def _steady(seed: int) -> tuple[Calibrated, Random]:
    """One that trusts 50 pairs."""
    one, rng = Calibrated(MAX_ERROR), Random(f"lies-{seed}")
    for _ in range(5000):
        _ask(one, rng, rng.randrange(50), True)
    return one, rng


def _ask(one: Calibrated, rng: Random, place: int, right: bool) -> Verdict:
    likeness = Likeness(name(place, 1), name(place), 0.9)
    decision = one.decide(likeness, rng.random())
    if decision.verdict is not Verdict.SERVE:
        one.learn(likeness, decision, right)
    return decision.verdict


def _recovery(seed: int, count: int, most: int) -> int:
    one, rng = _steady(seed)
    told = asked = 0
    while told < count:
        told += _ask(one, rng, 7, right=False) is not Verdict.SERVE
    for _ in range(50 * most):
        place = rng.randrange(50)
        asked += place == 7
        if _ask(one, rng, place, True) is Verdict.SERVE and place == 7:
            return asked
    return most


def _deceived(seed: int, count: int) -> int:
    one, rng = _steady(seed)
    for _ in range(count):
        _ask(one, rng, 99, right=True)
    wrong = 0
    for _ in range(300):
        wrong += _ask(one, rng, 99, right=False) is Verdict.SERVE
        _ask(one, rng, rng.randrange(50), True)
    return wrong


def against_rivals(seeds: Sequence[int], requests: int) -> list[Row]:
    """Hits on worlds of unlike neighbourhoods: ours, vCache's rule, one threshold at the error that we measured."""
    found = []
    for kind, world in {"unlike": HARD, "kind": KIND}.items():
        ours, theirs, best = [], [], []
        for seed in seeds:
            one = World(seed, thresholds=world.thresholds, fresh=world.fresh)
            ours.append(play(Calibrated(MAX_ERROR), one.draw(), requests, seed=seed))
            theirs.append(play(VCache(MAX_ERROR), one.draw(), requests, seed=seed))
            best.append(_threshold(one, requests, ours[-1], seed))
        for who, runs in {"ours": ours, "vcache": theirs}.items():
            late = [100 * run.hits_between(requests // 2, requests) / (requests - requests // 2) for run in runs]
            wrong = [100 * run.wrong / run.hits if run.hits else 0.0 for run in runs]
            hits = [100 * run.hits / requests for run in runs]
            mine = who == "ours"
            found += [
                Row.of(f"trust/{kind}/{who}/hits", "hits of all requests, from a cold start", "%", "higher", hits),
                Row.of(f"trust/{kind}/{who}/late", "hits of the second half", "%", "higher", late),
                Row.of(
                    f"trust/{kind}/{who}/wrong", "wrong of hits, 1 % allowed", "%", "lower", wrong,
                    target=100 * MAX_ERROR if mine else None,
                ),
            ]  # fmt: skip
        found.append(
            Row.of(
                f"trust/{kind}/threshold/hits", "hits of one threshold tuned in hindsight for the error that ours had",
                "%", "higher", [100 * hits / requests for hits in best],
            )
        )  # fmt: skip
    return found


def _threshold(world: World, requests: int, ours: Run, seed: int) -> int:
    source, rng = world.draw(), Random(f"hindsight-{seed}")
    drawn = [source() for _ in range(requests)]
    wrong = [rng.random() < chance for _, chance in drawn]
    return best_in_hindsight([likeness.text for likeness, _ in drawn], wrong, ours.wrong / max(ours.hits, 1))[1]


def speed(quick: bool) -> list[Row]:
    """A decision, and a decision with its outcome learned."""
    world, state = trained(0, 3000)
    one, source = Calibrated(MAX_ERROR), world.draw(1)
    one.restore(state)
    asked = [source()[0] for _ in range(500)]

    def decide() -> None:
        for likeness in asked:
            one.decide(likeness, 0.999)

    def learn() -> None:
        for likeness in asked:
            one.learn(likeness, one.decide(likeness, 0.0), True)

    timed = interleave({"decide": decide, "learn": learn}, rounds=5 if quick else 25, per=len(asked))
    return [
        Row.of("trust/decide", "a decision", "us", "lower", timed["decide"].scaled(1e6), target=20.0),
        Row.of("trust/learn", "a decision and its outcome learned", "us", "lower", timed["learn"].scaled(1e6)),
    ]
