"""Admission by size alone."""

from __future__ import annotations

from mmcache.admission.base import Admit, Reject, Verdict
from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.event import RefuseReason
from mmcache.model.key import Key

_ADMIT = Admit()
_TOO_LARGE = Reject(RefuseReason.TOO_LARGE)


class Always:
    """Admits everything; the tiers' own limits still hold."""

    def judge(self, key: Key, facts: Facts, now: float) -> Verdict:
        """See `Admission.judge`."""
        return _ADMIT


class LargestShare:
    """Refuses a block larger than `share` (above 0, at most 1) of `limit_bytes`: one block must not evict the rest."""

    def __init__(self, share: float = 0.1, limit_bytes: int = 1 << 30) -> None:
        """Raises `SettingsError` for a share or limit out of bounds."""
        if not 0.0 < share <= 1.0 or limit_bytes < 0:
            raise SettingsError(f"needs 0 < share <= 1 and limit_bytes >= 0, not {share} and {limit_bytes}")
        self.largest_bytes = int(share * limit_bytes)
        """The largest block that is admitted."""

    def judge(self, key: Key, facts: Facts, now: float) -> Verdict:
        """See `Admission.judge`."""
        return _ADMIT if facts.size <= self.largest_bytes else _TOO_LARGE
