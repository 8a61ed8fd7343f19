"""`Calibrated`: serves near answers only where it was shown that they are wrong seldom enough, and goes on looking.

Three parts, each of which can be believed by itself (proofs: docs/concepts/calibration.md):
* `evidence` ranks: which requests are likeliest right? It may be as clever or as foolish as it likes.
* a betting test a level certifies: of the requests ranked at least so well, is the mean P(wrong) below max_error?
  Levels are opened in a fixed sequence (Learn then Test: Angelopoulos et al. 2021), and only while the test passes.
* `ledger` and `drift` watch what is served, through checks drawn at random: the ledger sets their share so that wrong
  hits stay within max_error whatever the stream does, the detector revokes everything when the stream has changed.
"""

from __future__ import annotations

from mmcache.calibration.base import Decision, Verdict
from mmcache.calibration.betting import BettingTest
from mmcache.calibration.bounds import ServedBound, clopper_pearson
from mmcache.calibration.distance import comparable
from mmcache.calibration.drift import RUN_LENGTH, DriftDetector
from mmcache.calibration.evidence import Evidence
from mmcache.calibration.ledger import Ledger
from mmcache.likeness.base import Likeness, Nearness
from mmcache.model.errors import SettingsError

LEVELS = (1 / 3, 1 / 3, 2 / 3, 1.0, 2.0, 4.0)
"""Estimated P(wrong) ÷ max_error up to which a request belongs to each level, strict to loose. To the strictest only
where no words differ and pictures and sounds are the very same: it owes the least to the ranking."""
CHAINS = (((0, 1, 2, 3, 4, 5), 0.5), ((1, 2, 3, 4, 5), 0.5))
"""(levels, share of α). Levels are opened in the order of a chain, each only while all before it in the chain pass: one
begins with what the gates alone say, the other with what the ranking says."""
OWN_NEAR = 2
"""Right outcomes that a wording must have of its own before a picture or sound that is not the very same may do."""


class Calibrated:
    """A `Calibration`. O(1) a decision, bounded memory, deterministic.

    `max_error`: the allowed P(wrong | hit), 0.001 to 0.2. `confidence`: of each certificate, 0.5 to 0.9999.
    `check_share`: of what may be served, the share that is computed and compared all the same in quiet times.
    `own_evidence`: right outcomes that a neighbourhood must have of its own before it is served, 0 or more.
    `neighbourhoods`: wordings and pairs of wordings remembered. Raises `SettingsError`.
    """

    def __init__(
        self,
        max_error: float = 0.01,
        confidence: float = 0.95,
        check_share: float = 0.05,
        *,
        own_evidence: int = 0,
        neighbourhoods: int = 8192,
    ) -> None:
        if not 0.001 <= max_error <= 0.2:
            raise SettingsError(f"max_error must be 0.001 to 0.2, not {max_error}: it is a share, 0.01 is 1 %")
        if not 0.5 <= confidence <= 0.9999:
            raise SettingsError(f"confidence must be 0.5 to 0.9999, not {confidence}: 0.95 is 95 %")
        if not 0.001 <= check_share <= 1:
            raise SettingsError(
                f"check_share must be 0.001 to 1, not {check_share}: without checks nothing is promised"
            )
        if own_evidence < 0 or neighbourhoods < 2:
            raise SettingsError("own_evidence must be 0 or more, neighbourhoods 2 or more")
        self.max_error, self.confidence_level, self.check_share = max_error, confidence, check_share
        self.own_evidence, self.neighbourhoods = own_evidence, neighbourhoods
        self._tops = [times * max_error for times in LEVELS]
        self.tests = [
            BettingTest(max_error, (1 - confidence) * min(share for chain, share in CHAINS if level in chain))
            for level in range(len(LEVELS))
        ]
        self.evidence = Evidence(neighbourhoods=neighbourhoods, window=2 / max_error)
        self.ledger = Ledger(max_error, check_share)
        self.drift = DriftDetector(max_error, RUN_LENGTH)
        self.served_bound = ServedBound(check_share)
        self.open = -1
        """The loosest level that is open; −1 = none."""
        self.counts = dict.fromkeys(("decided", "served", "checked", "wrong", "taught", "granted", "alarms"), 0)

    def decide(self, likeness: Likeness, draw: float) -> Decision:
        """See `Calibration.decide`."""
        self.counts["decided"] += 1
        if not comparable(likeness):
            return Decision(Verdict.ABSTAIN, 0.0, "a part is not alike")
        weight = self.evidence.weigh(likeness)
        rank, why = self._rank(likeness, weight.wrong, weight.own, weight.waiting)
        right = 1.0 - weight.wrong
        share = self.ledger.share if self.open >= 0 else 1.0
        if rank < 0 or rank > self.open:
            return Decision(Verdict.ABSTAIN, right, why or self._missing(rank), -1, rank, share, draw < share)
        if draw < share:
            return Decision(Verdict.CHECK, right, f"drawn for a check, 1 of {1 / share:.3g}", self.open, rank, share)
        self.counts["served"] += 1
        self.ledger.earn()
        self.served_bound.hit()
        return Decision(Verdict.SERVE, right, f"P(wrong) about {weight.wrong:.2g}", self.open, rank, share)

    def withdraw(self, decision: Decision) -> None:
        """See `Calibration.withdraw`."""
        if decision.verdict is Verdict.SERVE:
            self.counts["served"] = max(0, self.counts["served"] - 1)
            self.ledger.unearn()
            self.served_bound.hits = max(0, self.served_bound.hits - 1)

    def learn(self, likeness: Likeness, decision: Decision, right: bool) -> None:
        """See `Calibration.learn`."""
        if not comparable(likeness):
            return
        check, complaint = decision.verdict is Verdict.CHECK, decision.verdict is Verdict.SERVE
        if complaint and right:
            return
        self.counts["taught"] += 1
        counted = decision.rank >= 0 and (decision.counts or complaint)
        for test in self.tests[decision.rank :] if counted else ():
            test.observe(not right)
        alarm = False
        if check:
            alarm = self._checked(decision.share, right)
        elif complaint:
            alarm = self.drift.observe(True)
        surprise = not right and 0 <= decision.rank <= self.open
        self.evidence.learn(likeness, right, surprise, 1 / decision.share if check else 1.0)
        if alarm:
            self._revoke()
        elif counted:
            self.reopen()

    def _rank(self, likeness: Likeness, wrong: float, own: float, waiting: int) -> tuple[int, str]:
        """The strictest level this belongs to and "", or −1 and why to none."""
        if waiting:
            return -1, f"its neighbourhood was wrong lately: {waiting} more right outcomes"
        if own < OWN_NEAR and (likeness.picture or likeness.sound):
            part = "picture" if likeness.picture else "sound"
            near = Nearness(likeness.picture or likeness.sound).name.lower()
            return -1, f"{part} {near}: {own:.0f} of {OWN_NEAR} right outcomes of this question"
        if own < self.own_evidence:
            return -1, f"{own:.0f} of {self.own_evidence} right outcomes of this question"
        gated = not (likeness.words or likeness.picture or likeness.sound)
        for rank, top in enumerate(self._tops):
            if wrong <= top and (rank or gated):
                return rank, ""
        differ = f"words: {likeness.words.name} differs, " if likeness.words else ""
        return -1, f"{differ}P(wrong) about {wrong:.2g}"

    @property
    def _next(self) -> BettingTest:
        """Of those that can open first, the one that lacks the fewest outcomes."""
        return min((self.tests[chain[0]] for chain, _ in CHAINS), key=BettingTest.still_needed)

    def _missing(self, rank: int) -> str:
        """What a request of level `rank` waits for."""
        test = self._next if self.open < 0 else self.tests[rank]
        what = "calibrating" if self.open < 0 else "calibrating more of them"
        return f"{what}: {test.seen} of about {test.seen + test.still_needed()} outcomes"

    def _checked(self, share: float, right: bool) -> bool:
        """A check came out; whether it raises the alarm."""
        self.counts["checked"] += 1
        self.served_bound.hit(share, wrong=not right)
        alarm = self.drift.observe(not right)
        if right:
            self.ledger.earn()
            self.ledger.alert = self.ledger.alert and not self.drift.quiet
        else:
            self.counts["wrong"] += 1
            self.ledger.pay(share)
            self.ledger.alert = True
        return alarm

    def reopen(self) -> None:
        """See which levels are open now."""
        before, self.open = self.open, -1
        for chain, _ in CHAINS:
            for level in chain:
                if not self.tests[level].passed:
                    break
                self.open = max(self.open, level)
        if self.open > before:
            self.counts["granted"] += 1

    def _revoke(self) -> None:
        """The stream has changed: what was learned counts less, and everything must be certified anew."""
        self.counts["alarms"] += 1
        for test in self.tests:
            test.reset()
        self.drift.reset()
        self.evidence.grow_old()
        self.ledger.resume(min(self.ledger.credit, 0.0), False)
        self.open = -1

    def summary(self) -> dict[str, float]:
        """Counts (decided, served, checked, wrong of the checked, taught, granted, alarms), and:

        `level` open (−1 = none), `e_value` of the test that is to pass first and `e_needed`, `outcomes` it has seen
        and `outcomes_needed` about, `check_share` at present, `credit` in hits, `wrong_rate` of checks with
        `wrong_low` and `wrong_high` (Clopper–Pearson, 95 %), `served_high` (anytime-valid upper bound of P(wrong)
        among hits, at the confidence set), `drift` (statistic; alarm at `drift_limit`), `neighbourhoods` and pairs
        remembered.
        """
        test, counts = self._next, self.counts
        low, high = clopper_pearson(counts["wrong"], counts["checked"])
        return {
            **{name: float(count) for name, count in counts.items()},
            "max_error": self.max_error,
            "level": float(self.open),
            "e_value": 2.718281828459045 ** min(test.log_wealth, 700.0),
            "e_needed": 2.718281828459045**test.need,
            "outcomes": float(test.seen),
            "outcomes_needed": float(test.seen + test.still_needed()),
            "check_share": self.ledger.share,
            "credit": self.ledger.credit,
            "wrong_rate": counts["wrong"] / counts["checked"] if counts["checked"] else 0.0,
            "wrong_low": low,
            "wrong_high": high,
            "served_high": self.served_bound.upper(1 - self.confidence_level),
            "drift": self.drift.statistic,
            "drift_limit": RUN_LENGTH,
            "neighbourhoods": float(len(self.evidence.records)),
        }

    def state(self) -> bytes:
        """See `Calibration.state`."""
        from mmcache.calibration.memory import pack

        return pack(self)

    def restore(self, state: bytes) -> None:
        """See `Calibration.restore`. The evidence is taken over, certificates only where they are of the same promise.

        Of another `check_share` they are; the account that sets how much is checked then begins anew.
        """
        from mmcache.calibration.memory import unpack

        unpack(self, state)
