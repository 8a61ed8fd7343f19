"""`State`: which version serves whom. Pure: every change makes a new one, and says why it cannot.

The whole switch is one small record, so that it is replaced at once or not at all. `revision` grows with every change;
`born` tells a record from another one of its name that was made after it was lost.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

import msgspec

from mmcache.model.errors import FormatVersionError, RolloutError, SettingsError

FORMAT = 1
MOST_BYTES = 1 << 16
"""A longer record is not one of ours."""
LATEST = 1e11
"""Unix seconds: the year 5138."""
LONGEST = 200
"""Characters of a version's name."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The switch. Times are Unix seconds."""

    format: int = FORMAT
    born: str = ""
    """Random; empty where nothing is stored yet."""
    revision: int = 0
    stable: str
    """Whoever is not in the canary gets this version."""
    previous: str = ""
    """What was stable before it was promoted: where a rollback leads."""
    candidate: str = ""
    """The version that is tried; empty = none."""
    percent: float = 0.0
    """Share of the units (tenants) that get the candidate."""
    seed: str = ""
    """Random, for each candidate: draws who is in. Raising `percent` keeps it, so that nobody who is in falls out."""
    trial: int = 0
    """The revision at which the candidate began, or began again after a hold. Names what is counted of it."""
    hold: str = ""
    """Why the candidate gets no traffic for now; empty = it gets its share."""
    changed: float = 0.0

    def encode(self) -> bytes:
        """JSON, for people too."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @property
    def trying(self) -> bool:
        """Whether a candidate gets traffic."""
        return bool(self.candidate) and not self.hold

    def canary(self, version: str, percent: float, now: float) -> State:
        """Give `version` `percent` of the units; also changes the share, or resumes after a hold.

        Raises `RolloutError` where another candidate is being tried, or `version` is stable already.
        """
        check_version(version)
        if isinstance(percent, bool) or not (isinstance(percent, int | float) and 0 <= percent <= 100):
            raise SettingsError(f"a canary gets 0 to 100 percent, not {percent!r}")
        if version == self.stable:
            raise RolloutError(f"{version} is the stable version already: everybody gets it")
        if self.candidate not in ("", version):
            raise RolloutError(f"{self.candidate} is being tried: promote it or roll it back before {version} begins")
        again = self.candidate == version
        return self._next(
            now, candidate=version, percent=float(percent), hold="",
            seed=self.seed if again else secrets.token_hex(16),
            trial=self.trial if again and not self.hold else self.revision + 1,
        )  # fmt: skip

    def promote(self, now: float, *, force: bool = False) -> State:
        """Make the candidate stable. Raises `RolloutError` without one, or where it is on hold and not `force`."""
        if not self.candidate:
            raise RolloutError(f"nothing is being tried beside {self.stable}: begin with a canary")
        if self.hold and not force:
            raise RolloutError(
                f"{self.candidate} is on hold: {self.hold}; roll it back, resume it with a canary, or force it"
            )
        return self._next(now, stable=self.candidate, previous=self.stable, **_NO_CANDIDATE)

    def rollback(self, now: float) -> State:
        """End the candidate; without one, return to the version before the last promotion. Raises `RolloutError`."""
        if self.candidate:
            return self._next(now, **_NO_CANDIDATE)
        if not self.previous:
            raise RolloutError(f"there is nothing to roll back: {self.stable} is stable and was not promoted lately")
        return self._next(now, stable=self.previous, previous="")

    def held(self, reason: str, now: float) -> State:
        """The candidate gets no traffic until it is resumed."""
        return self._next(now, hold=reason[:500])

    def _next(self, now: float, **changes: Any) -> State:
        return msgspec.structs.replace(self, revision=self.revision + 1, changed=now, **changes)

    def follows(self, other: State) -> bool:
        """Whether this is a later state of the same record; or one with decisions, where the other has none: made by
        somebody who came when the record had been lost."""
        return self.revision > other.revision and (self.born == other.born or other.revision == 0)


_NO_CANDIDATE: dict[str, Any] = {"candidate": "", "percent": 0.0, "seed": "", "trial": 0, "hold": ""}


def first(stable: str, now: float) -> State:
    """The state of a rollout that nobody has heard of."""
    return State(born=secrets.token_hex(16), stable=stable, changed=now)


def decode(raw: bytes) -> State:
    """Raises `RolloutError` for what is damaged, `FormatVersionError` for what a newer version wrote."""
    try:
        if len(raw) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        if msgspec.json.decode(raw, type=_Format).format > FORMAT:
            raise FormatVersionError("the state of this rollout was written by a newer mmcache: upgrade this program")
        state = msgspec.json.decode(raw, type=State)
        for version in filter(None, (state.previous, state.candidate)):
            check_version(version)
        check_version(state.stable)
        if not (0 <= state.percent <= 100 and 0 <= state.changed < LATEST and state.revision >= 0 and state.born):
            raise ValueError("a number in it makes no sense")
        if state.candidate and (not state.seed or state.candidate == state.stable):
            raise ValueError("its candidate makes no sense")
    except FormatVersionError:
        raise
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # also SettingsError and UnicodeDecodeError
        raise RolloutError(f"the state of this rollout is damaged: {error}") from error
    return state


class _Format(msgspec.Struct):
    format: int = FORMAT


def check_name(name: str) -> str:
    """A rollout's name, which becomes a file's. Raises `SettingsError`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SettingsError(f"a rollout's name has letters, digits, - and _ (64 at most), not {name!r}")
    return name


def check_version(version: str) -> str:
    """Raises `SettingsError` for what is no version's name."""
    if not (isinstance(version, str) and 0 < len(version) <= LONGEST and version.isprintable()):
        raise SettingsError(f"a version's name is printable text of 1 to {LONGEST} characters, not {version!r:.80}")
    return version
