"""What was seen of a candidate, added up over all processes; and which model each version is."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mmcache.rollout.state import MOST_BYTES, State

MOST_VERSIONS = 100


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Of calls, while a candidate was tried."""

    stable: int = 0
    """Answered by the stable version, because the unit is not in the canary."""
    candidate: int = 0
    """Answered by the candidate."""
    failed: int = 0
    """The candidate raised where the stable version, asked instead, did not."""
    unknown: int = 0
    """The program has no such version and stayed on what it has."""
    compared: int = 0
    """Answered by both, to compare."""
    differed: int = 0
    """… that could not be compared (another shape or structure, NaN) or, compared exactly, were not equal."""
    agreement: float = 0.0
    """Sum over the compared: cosine, or 1 and 0 where equality is asked for."""
    lowest: float = 1.0
    """The worst of them."""

    def __add__(self, other: Counts) -> Counts:
        added = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        return Counts(**added | {"lowest": min(self.lowest, other.lowest)})

    @property
    def mean(self) -> float | None:
        """Mean agreement; None before anything was compared."""
        return self.agreement / self.compared if self.compared else None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One record a rollout: of the newest trial."""

    born: str = ""
    trial: int = 0
    counts: Counts = Counts()
    models: dict[str, str] = {}
    """Version → its signature's `model_version`, as programs have said."""

    def encode(self) -> bytes:
        """JSON."""
        return msgspec.json.encode(self)

    def of(self, state: State) -> Counts:
        """Of the trial that is running."""
        return self.counts if (self.born, self.trial) == (state.born, state.trial) else Counts()

    def plus(self, born: str, trial: int, counts: Counts, models: Mapping[str, str]) -> Report:
        """With what a process saw of a trial; of an older trial than the newest, nothing is added."""
        known = self.models | dict(models)
        while len(known) > MOST_VERSIONS:
            known.pop(next(iter(known)))
        if (born, trial) == (self.born, self.trial):
            return msgspec.structs.replace(self, counts=self.counts + counts, models=known)
        if not trial or (born == self.born and trial < self.trial):
            return msgspec.structs.replace(self, models=known)
        return Report(born=born, trial=trial, counts=counts, models=known)


def decode(raw: bytes | None) -> Report:
    """What is missing or damaged is an empty report: counts are worth no error."""
    if raw is None or len(raw) > MOST_BYTES:
        return Report()
    try:
        return msgspec.json.decode(raw, type=Report)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Report()
