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
from mmcache.model.errors import CorruptFrameError
from mmcache.scopes import Scope
from mmcache.semantic.ledger import Ledger, Population
from mmcache.semantic.settings import Semantic

FOLD_EVERY = 512
"""Outcomes after which what was learned is written down as one state."""
COUNT_EVERY = 64
"""Requests after which counters go to the ledger."""


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

    id: bytes
    calibration: Calibration
    upto: int = 0
    unfolded: int = 0
    """Outcomes learned since it was last written down, or read."""


class Populations:
    """All that this process has met. Not safe under threads: its owner has a lock."""

    def __init__(self, semantic: Semantic, ledger: Ledger) -> None:
        self._semantic, self._ledger = semantic, ledger
        self._learners: dict[tuple[bytes, str], Learner] = {}
        self._counted: Counter[tuple[bytes, str]] = Counter()
        self._since = 0
        self._counting = Lock()

    def _calibration(self) -> Calibration:
        s = self._semantic
        return Calibrated(s.max_error, confidence=s.confidence, check_share=s.check_share)

    def of(self, scope: Scope, kind: str) -> Learner:
        """The learner of a scope and a kind of prompt. Raises `TierError`."""
        learner = self._learners.get((scope.digest, kind))
        if learner is None:
            s = self._semantic
            terms = f"{s.max_error} {s.confidence} {s.judge_name}"  # another promise, or another judge, is learned anew
            parts = (scope.digest, kind.encode(), terms.encode(), s.embedder_signature.digest)
            id = blake3(framed("population", *parts)).digest(length=DIGEST_BYTES)
            model = scope.signature.model_version or scope.signature.function
            self._ledger.introduce(
                Population(id, scope.tenant, scope.namespace, model, kind, s.max_error, s.confidence, s.judge_name)
            )
            learner = self._learners[scope.digest, kind] = Learner(id, self._calibration())
            self.catch_up(learner)
        return learner

    def judged(self, learner: Learner, likeness: Likeness, decision: Decision, right: bool) -> None:
        """Append a comparison, for `catch_up` to learn from. Needs no lock. Raises `TierError`."""
        self._ledger.judged(learner.id, _encode(Outcome.of(likeness, decision, right)))

    def catch_up(self, learner: Learner) -> None:
        """Learn what all processes have judged since, in the ledger's order. Raises `TierError`."""
        _catch_up(self._ledger, learner, self._calibration)
        if learner.unfolded >= FOLD_EVERY:
            learner.unfolded = 0
            self._ledger.fold(learner.id, learner.upto, learner.calibration.state())

    def refresh(self) -> None:
        """Learn what other processes have judged. Raises `TierError`."""
        for learner in self._learners.values():
            self.catch_up(learner)

    def count(self, learner: Learner, *names: str) -> None:
        """Add one to counters of the report. Needs no lock. Raises `TierError`."""
        with self._counting:
            for name in names:
                self._counted[learner.id, name] += 1
            self._since += 1
            due = self._since >= COUNT_EVERY
        if due:
            self.flush()

    def flush(self) -> None:
        """Write counters down. Needs no lock. Raises `TierError`."""
        with self._counting:
            counted, self._counted, self._since = self._counted, Counter(), 0
        if counted:
            self._ledger.count(counted)


def learned(ledger: Ledger, population: Population) -> dict[str, float]:
    """The `summary` of a population's calibration. Raises `TierError`."""
    learner = Learner(population.id, Calibrated(population.max_error, population.confidence))
    _catch_up(ledger, learner, lambda: Calibrated(population.max_error, population.confidence))
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
