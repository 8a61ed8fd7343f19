"""The runs of table `gateways`: one stream through every contender, each request held against the truth."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mmcache.lab.gateways.install import IN_SERVER
from mmcache.lab.gateways.peers_redisvl import redis
from mmcache.lab.gateways.processes import Application, Got, Upstream
from mmcache.lab.gateways.said import Said
from mmcache.lab.gateways.stream import CHANCE, ONE, Request, bases, data_url, stream, user
from mmcache.lab.table import Progress
from mmcache.model.errors import AssetError

Outcome = Literal["right", "wrong", "leak", "miss", "changed", "failed", "frozen"]
"""Of a request. From the cache: `right`; `wrong`, another answer than the upstream gives to this request; `leak`, what
was computed for another tenant, right or wrong; `frozen`, a request that leaves its answer to chance got an old one.
From the upstream: `miss`; `changed`, where the contender made another answer of it. `failed`: an exception."""

RESTARTED = 20
"""Requests that are asked again after a restart, at most, each once."""
UNSEEN = 1_000_003
"""Seed of the pictures for misses: other ones than in a stream."""


@dataclass
class Found:
    """What one contender did, over all seeds."""

    outcomes: list[Counter[tuple[str, Outcome]]] = field(default_factory=list)
    """By family and outcome, a seed each."""
    hit_ms: list[list[float]] = field(default_factory=list)
    added_ms: list[float] = field(default_factory=list)
    """Of misses, with the cache less without, pair by pair."""
    restarted: list[bool] = field(default_factory=list)
    """Whether what was a right hit before is one after a restart."""
    failures: Counter[str] = field(default_factory=Counter)

    def count(self, outcome: Outcome, place: int) -> int:
        """In the stream of one seed."""
        return sum(number for (_, one), number in self.outcomes[place].items() if one == outcome)

    def share(self, outcome: Outcome) -> list[float]:
        """Per cent of requests, a seed each."""
        return [100 * self.count(outcome, place) / seen.total() for place, seen in enumerate(self.outcomes)]


@dataclass
class Contest:
    """All contenders on the same streams."""

    found: dict[str, Found] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    """Who could not be run, and why."""
    perfect: list[float] = field(default_factory=list)
    """Per cent of requests that had been asked before by this tenant in any form, and have the same truth."""
    model_ms: list[float] = field(default_factory=list)
    """The upstream's own time where it had not seen the request."""


def contest(
    names: Sequence[str], folder: Path, requests: int, pool: int, misses: int, seeds: Sequence[int], progress: Progress
) -> Contest:
    """Raises `AssetError` where the model or its pictures are not there."""
    made = Contest({name: Found() for name in names})
    with ExitStack() as stack:
        progress("the upstream's model is loading", 0, 1)
        upstream = stack.enter_context(Upstream(folder))
        address = ""
        if kept := [name for name in names if name in IN_SERVER]:
            try:
                address = stack.enter_context(redis(folder / "redis"))
            except AssetError as error:
                for name in kept:
                    _leave(made, name, str(error))
        for place, seed in enumerate(seeds):
            asked = stream(seed, requests, pool)
            truths = _truths(asked, upstream, folder / f"truth-{seed}", made, progress)
            made.perfect.append(perfect(asked, truths))
            for name in tuple(made.found):
                progress(f"{name}, seed {seed}", place, len(seeds))
                where = folder / name.replace("/", "-") / str(seed)
                try:
                    _one(name, made.found[name], asked, truths, upstream, where,
                         address if name in IN_SERVER else "",
                         misses if place == len(seeds) - 1 else 0)  # fmt: skip
                except AssetError as error:
                    _leave(made, name, str(error))
    return made


def _leave(made: Contest, name: str, why: str) -> None:
    del made.found[name]
    made.missing[name] = why


def _truths(
    asked: Sequence[Request], upstream: Upstream, folder: Path, made: Contest, progress: Progress
) -> list[Said]:
    """What the upstream says to each request when nothing stands between."""
    truths, seen = [], set[str]()
    with Application("none", upstream, folder) as direct:
        for done, request in enumerate(asked):
            if done % 20 == 0:
                progress("the truth", done, len(asked))
            got = direct.ask(request.body, request.tenant)
            if got.said is None:
                raise AssetError(f"the upstream failed: {got.failed}")
            truths.append(got.said)
            if (text := str(request.body["messages"])) not in seen:
                seen.add(text)
                made.model_ms.append(got.ms)
    return truths


def perfect(asked: Sequence[Request], truths: Sequence[Said]) -> float:
    """Per cent that a cache could have answered rightly which knows what requests mean."""
    known, right = set[object](), 0
    for request, truth in zip(asked, truths, strict=True):
        what = (request.meaning, truth.choices)
        right += what in known and request.family != CHANCE
        known.add(what)
    return 100 * right / len(asked)


def _one(
    name: str, found: Found, asked: Sequence[Request], truths: Sequence[Said], upstream: Upstream, folder: Path,
    address: str, misses: int,
) -> None:  # fmt: skip
    """One stream, and, if `misses`, what comes after a restart."""
    outcomes, hit_ms, tenants = Counter[tuple[str, Outcome]](), list[float](), dict[int, str]()
    again: dict[str, tuple[Request, Said]] = {}
    with Application(name, upstream, folder, address) as application:
        for request, truth in zip(asked, truths, strict=True):
            got = application.ask(request.body, request.tenant)
            outcome = judge(request, truth, got, tenants)
            outcomes[request.family, outcome] += 1
            if outcome == "failed":
                found.failures[got.failed.partition(":")[0]] += 1
            if got.hit:
                hit_ms.append(got.ms)
            if outcome == "right" and request.family == "plain" and len(again) < RESTARTED:
                again[str(request.body)] = (request, truth)
    found.outcomes.append(outcomes)
    found.hit_ms.append(hit_ms)
    if not misses:
        return
    with Application(name, upstream, folder, address) as application:
        for request, truth in again.values():
            got = application.ask(request.body, request.tenant)
            found.restarted.append(judge(request, truth, got, tenants) == "right")
        for place, body in enumerate(unseen(misses)):
            application.ask(body, ONE, cached=False)  # from here on the upstream remembers it
            pair = {cached: application.ask(body, ONE, cached=cached) for cached in (place % 2 == 0, place % 2 != 0)}
            if not pair[True].hit and pair[True].said is not None and pair[False].said is not None:
                found.added_ms.append(pair[True].ms - pair[False].ms)


def judge(request: Request, truth: Said, got: Got, tenants: dict[int, str]) -> Outcome:
    """Hold an answer against the truth. tenants: whose request each of the upstream's answers was for; is added to."""
    said = got.said
    if said is None:
        return "failed"
    if not got.hit:
        if said.number is not None:
            tenants[said.number] = request.tenant
        return "miss" if said.same(truth) or request.family == CHANCE else "changed"
    if said.number is not None and tenants.get(said.number, request.tenant) != request.tenant:
        return "leak"
    if request.family == CHANCE:
        return "frozen"
    return "right" if said.same(truth) else "wrong"


def unseen(count: int) -> list[dict[str, object]]:
    """Requests that no stream has, no two of them alike."""
    known = bases(random.Random(UNSEEN), 8)
    return [
        {
            "model": "vqa-a", "temperature": 0, "max_tokens": 64,
            "messages": [user(f"{known[place % 8].question} {place}", data_url(known[place % 8].picture))],
        }
        for place in range(count)
    ]  # fmt: skip
