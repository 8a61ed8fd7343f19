"""Why it is not here, as exactly as is known: which signature is stored instead, which tier failed and how."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace

from mmcache.fates import Fates
from mmcache.lookup import Lookup
from mmcache.model.clock import Clock
from mmcache.model.event import Failed, MissReason
from mmcache.model.key import Key
from mmcache.model.signature import Signature
from mmcache.scopes import Scope, Scopes
from mmcache.seen import SignatureIndex

LONGEST = 160
"""Characters of a detail."""
_FRESH_SECONDS = 60.0
"""For so long a tier's complaint explains its misses."""
_PLACES = 64
_PATH = re.compile(r"(?<![\w:/.~-])/[^\s:'\",)]+")
_USERINFO = re.compile(r"(?<=://)[^\s/@]*@|[^\s/@:'\"]+:[^\s/@]+@")


def clipped(words: str) -> str:
    """One line, without what an address says of users and without paths of files, not too long."""
    line = " ".join(_PATH.sub("…", _USERINFO.sub("", words[: 4 * LONGEST])).split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


class Misses:
    """Names misses. Safe under threads; bounded."""

    def __init__(self, scopes: Scopes, fates: Fates, indexes: Sequence[SignatureIndex], clock: Clock) -> None:
        self._scopes, self._fates, self._indexes, self._clock = scopes, fates, indexes, clock
        self._complaints: dict[str, tuple[float, Key | None, str]] = {}

    def heard(self, failed: Failed) -> None:
        """A tier complains: its misses are explained by that for a while."""
        if failed.where in self._complaints or len(self._complaints) < _PLACES:
            self._complaints[failed.where] = self._clock.monotonic(), failed.key, failed.detail

    def of_tier(self, tier: str, reason: MissReason, key: Key, words: str = "") -> Lookup:
        """What `tier` says of `key`. words: what it said with it; else what it complained of last, where that was of
        this key, or of the tier as a whole."""
        if reason is MissReason.ABSENT:
            return Lookup(None)
        if not words and (complaint := self._complaints.get(tier)) is not None:
            when, whose, said = complaint
            if whose in (None, key) and self._clock.monotonic() - when <= _FRESH_SECONDS:
                words = said
        return Lookup(None, reason=reason, detail=clipped(f"{tier}: {words}") if words else tier)

    def name(self, key: Key, look: Lookup) -> Lookup:
        """Tell `absent` apart: evicted or expired earlier, or here under another signature; or refused."""
        if look.make is not None or look.reason is not MissReason.ABSENT:
            return look
        reason, detail = self._fates.reason(key)
        scope = self._scopes.find(key)
        if scope is not None and detail.endswith("quota"):
            detail = clipped(f"{detail} of {scope.tenant}")
        if reason is not MissReason.ABSENT:
            return Lookup(None, reason=reason, detail=detail)
        if scope is not None and (others := self._others(scope, key)):
            return Lookup(None, reason=MissReason.SIGNATURE, detail=self._told_apart(scope, others))
        return replace(look, detail=detail) if detail else look

    def _others(self, scope: Scope, key: Key) -> set[bytes]:
        content = scope.content_id(key)
        return {other for index in self._indexes for other in index.seen(content)} - {scope.signature.digest}

    def _told_apart(self, scope: Scope, others: Iterable[bytes]) -> str:
        """The likest of `others`, and by which fields it differs where this process knows it."""
        known = [(differing(scope.signature, found), o) for o in others if (found := self._scopes.signature(o))]
        if known:
            fields, other = min(known, key=lambda pair: (len(pair[0]), pair))
            said = f"{other.hex()[:16]} is stored: {', '.join(fields)} differ{'s' if len(fields) == 1 else ''}"
        else:
            said = f"{min(others).hex()[:16]} is stored"
        more = len(set(others)) - 1
        return clipped(said + (f" (and {more} more)" if more else ""))


def differing(one: Signature, other: Signature) -> list[str]:
    """Names of the fields that differ, sorted."""
    a, b = asdict(one), asdict(other)
    return sorted(name for name in a if a[name] != b[name])
