"""`x-mmcache`: what the cache did, as an item of structured fields (RFC 8941): `hit; saved_ms=12.5; reason=…`."""

from __future__ import annotations

import re

from mmcache.server.exchange import Verdict

HEADER = b"x-mmcache"

_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,3})?", re.A)
_TOKEN = re.compile(r"[A-Za-z*][A-Za-z0-9:/!#$%&'*+.^_`|~-]*")
_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")
_BARE = {outcome: outcome.encode() for outcome in ("hit", "miss", "partial", "bypass", "pass")}


def rendered(verdict: Verdict) -> bytes:
    """The header's value. A detail whose name is no key of structured fields is left out."""
    bare = _BARE[verdict.outcome]
    if not (verdict.reason or verdict.saved_seconds or verdict.details):
        return bare
    parts = [bare.decode()]
    if verdict.reason:
        parts.append(f"reason={_value(str(verdict.reason))}")
    if verdict.saved_seconds > 0:
        parts.append(f"saved_ms={min(verdict.saved_seconds * 1e3, 1e11):.1f}")
    parts += [f"{name}={_value(value)}" for name, value in verdict.details.items() if _KEY.fullmatch(name)]
    return "; ".join(parts).encode("ascii")


def _value(text: str) -> str:
    if _NUMBER.fullmatch(text) or _TOKEN.fullmatch(text):
        return text
    shown = "".join(c if " " <= c <= "~" else "?" for c in text[:200])
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
