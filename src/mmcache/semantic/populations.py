"""`Populations`: who keeps which promise, and what each has learned, the same in every process of the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from blake3 import blake3

from mmcache.calibration.base import Calibration, Decision, Verdict
from mmcache.calibration.calibrated import Calibrated
from mmcache.forks import Lock
from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.likeness.base import Likeness, Nearness, WordDifference
from mmcache.model.errors import CorruptFrameError, TierError
from mmcache.scopes import Scope
from mmcache.semantic.identity import identity
from mmcache.semantic.ledger import Ledger, Population
from mmcache.semantic.settings import Semantic

FOLD_EVERY = 512
"""Outcomes after which what was learned is written down as one state."""
COUNT_EVERY = 64
"""Requests after which counters go to the ledger."""
MOST_LEARNERS = 4096
"""Populations kept in memory, 10 KB each and more. One that left is read again when it is asked something."""


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """One comparison, at rest."""

    asked: bytes
    stored: bytes
    text: float
    words: int
    picture: int
    sound: int
    verdict: str
    confidence: float
    reason: str
    level: int
    rank: int
    share: float
    counts: bool
    right: bool

    @classmethod
    def of(cls, likeness: Likeness, decision: Decision, right: bool) -> Outcome:
        return cls(
            likeness.asked, likeness.stored, likeness.text, likeness.words.value, likeness.picture, likeness.sound,
            decision.verdict.value, decision.confidence, decision.reason, decision.level, decision.rank, decision.share,
            decision.counts, right,
        )  # fmt: skip

    def taught(self) -> tuple[Likeness, Decision, bool]:
        """What `Calibration.learn` takes. Raises `ValueError`."""
        likeness = Likeness(
            self.asked, self.stored, self.text, WordDifference(self.words), Nearness(self.picture), Nearness(self.sound)
        )
        verdict = Verdict(self.verdict)
        decision = Decision(verdict, self.confidence, self.reason, self.level, self.rank, self.share, self.counts)
        return likeness, decision, self.right


_decode = msgspec.msgpack.Decoder(Outcome).decode
_encode = msgspec.msgpack.Encoder().encode


@dataclass
class Learner:
    """One population's calibration, and how far it has learned."""

    stands_for: Population
    calibration: Calibration
    upto: int = 0
    unfolded: int = 0
    """Outcomes learned since it was last written down, or read."""

    @property
    def id(self) -> bytes:
        """Of the population."""
        return self.stands_for.id


class Populations:
    """All that this process has met. Not safe under threads: its owner has a lock."""

    def __init__(self, semantic: Semantic, ledger: Ledger) -> None:
        self._semantic, self._ledger = semantic, ledger
        self.max_error = semantic.max_error
        """Share of near hits that may be wrong."""
        self._judge = identity(semantic.judge)
        self._learners: dict[tuple[bytes, str], Learner] = {}
        """The one asked last is last."""
        self._by_id: dict[bytes, Learner] = {}
        self._upto, _ = ledger.judged_since(1 << 62)
        """All learners have learned up to here, at least."""
        self._counted: Counter[tuple[bytes, str]] = Counter()
        self._named: dict[bytes, Population] = {}
        self._since = 0
        self._counting = Lock()

    def _calibration(self) -> Calibration:
        s = self._semantic
        return Calibrated(s.max_error, confidence=s.confidence, check_share=s.check_share)

    def of(self, scope: Scope, kind: str) -> Learner:
        """The learner of a scope and a kind of prompt. Raises `TierError`."""
        learner = self._learners.pop((scope.digest, kind), None)
        if learner is None:
            learner = Learner(self._population(scope, kind), self._calibration())
            self.catch_up(learner)
            with suppress(TierError):  # it is said again with the counters
                self._ledger.introduce(learner.stands_for)
            self._by_id[learner.id] = learner
            if len(self._learners) >= MOST_LEARNERS:
                idle = self._learners.pop(next(iter(self._learners)))
                del self._by_id[idle.id]
        self._learners[scope.digest, kind] = learner
        return learner

    def _population(self, scope: Scope, kind: str) -> Population:
        s = self._semantic
        terms = f"{s.max_error} {s.confidence}"  # another promise, or another judge, is learned anew
        parts = (scope.digest, kind.encode(), terms.encode(), self._judge, s.embedder_signature.digest)
        id = blake3(framed("population", *parts)).digest(length=DIGEST_BYTES)
        model = scope.signature.model_version or scope.signature.function
        return Population(
            id, scope.digest, scope.tenant, scope.namespace, model, kind, s.max_error, s.confidence, s.check_share,
            s.judge_name,
        )  # fmt: skip

    def judged(self, learner: Learner, likeness: Likeness, decision: Decision, right: bool) -> None:
        """Append a comparison, for `catch_up` to learn from. Needs no lock. Raises `TierError`."""
        self._ledger.judged(learner.id, _encode(Outcome.of(likeness, decision, right)))

    def catch_up(self, learner: Learner) -> None:
        """Learn what all processes have judged since, in the ledger's order. Raises `TierError`."""
        _catch_up(self._ledger, learner, self._calibration)
        if learner.unfolded >= FOLD_EVERY:
            learner.unfolded = 0
            with suppress(TierError):  # the outcomes stay: it is tried again after as many more
                self._ledger.fold(learner.id, learner.upto, learner.calibration.state())

    def refresh(self) -> None:
        """Learn what other processes have judged: one query, and one for each population that they judged. Raises
        `TierError`."""
        upto, moved = self._ledger.judged_since(self._upto)
        for id in moved & self._by_id.keys():
            if self._by_id[id].upto < upto:
                self.catch_up(self._by_id[id])
        self._upto = upto

    def count(self, learner: Learner, *names: str) -> None:
        """Add one to counters of the report. Needs no lock. Raises `TierError`."""
        with self._counting:
            for name in names:
                self._counted[learner.id, name] += 1
            self._named[learner.id] = learner.stands_for
            self._since += 1
            due = self._since >= COUNT_EVERY
        if due:
            self.flush()

    def flush(self) -> None:
        """Write counters down. Needs no lock. Raises `TierError`."""
        with self._counting:
            counted, self._counted, self._since = self._counted, Counter(), 0
            named, self._named = self._named, {}
        if not counted:
            return
        try:
            self._ledger.count(counted, named.values())  # named again: a purge may have removed them meanwhile
        except TierError:  # later, then
            with self._counting:
                self._counted.update(counted)
                self._named = named | self._named
            raise


def learned(ledger: Ledger, population: Population) -> dict[str, float]:
    """The `summary` of a population's calibration. Raises `TierError`."""

    def make() -> Calibration:
        return Calibrated(population.max_error, population.confidence, population.check_share)

    learner = Learner(population, make())
    _catch_up(ledger, learner, make)
    return learner.calibration.summary()


def _catch_up(ledger: Ledger, learner: Learner, make: Callable[[], Calibration]) -> None:
    checkpoint, outcomes = ledger.outcomes(learner.id, learner.upto)
    if checkpoint is not None:
        upto, state = checkpoint
        fresh = make()
        try:
            fresh.restore(state)
        except CorruptFrameError:  # of another version: learn anew
            fresh = make()
        learner.calibration, learner.upto, learner.unfolded = fresh, upto, 0
    for number, record in outcomes:
        with suppress(msgspec.DecodeError, ValueError):  # of a newer version, or damaged: teaches nobody
            learner.calibration.learn(*_decode(record).taught())
        learner.upto = number
    learner.unfolded += len(outcomes)
