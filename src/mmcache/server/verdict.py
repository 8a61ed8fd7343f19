"""`x-mmcache`: what the cache did, as an item of structured fields (RFC 8941): `hit; saved_ms=12.5; reason=…`."""

from __future__ import annotations

import re
from functools import lru_cache

from mmcache.server.exchange import Verdict

HEADER = b"x-mmcache"

_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,3})?", re.A)
_TOKEN = re.compile(r"[A-Za-z*][A-Za-z0-9:/!#$%&'*+.^_`|~-]*")
_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")


def rendered(verdict: Verdict) -> bytes:
    """The header's value. A detail whose name is no key of structured fields is left out."""
    text: str = verdict.outcome
    if verdict.reason:
        text += _parameter("reason", verdict.reason)
    if verdict.saved_seconds > 0:
        text += f"; saved_ms={min(verdict.saved_seconds * 1e3, 1e11):.1f}"
    for name, value in verdict.details.items():
        text += _parameter(name, value)
    return text.encode("ascii")


@lru_cache(maxsize=4096)
def _parameter(name: str, value: str) -> str:
    """`; name=value`, or nothing. Remembered: the same few come again and again."""
    if not _KEY.fullmatch(name):
        return ""
    if _NUMBER.fullmatch(value) or _TOKEN.fullmatch(value):
        return f"; {name}={value}"
    shown = "".join(c if " " <= c <= "~" else "?" for c in value[:200])
    return f'; {name}="' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'
