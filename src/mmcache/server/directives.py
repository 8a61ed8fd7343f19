"""`Cache-Control` of a request, read as RFC 9111 (section 5.2.1) says; what makes no sense is read as the most careful
of what it may have meant."""

from __future__ import annotations

import re
from functools import lru_cache

from mmcache.server.exchange import Directives

NOTHING_ASKED = Directives()
_CAREFUL = Directives(no_store=True)

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = r'"((?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\.)*)"'
_DIRECTIVE = re.compile(rf"[ \t]*(?:({_TOKEN})(?:=(?:({_TOKEN})|{_QUOTED}))?)?[ \t]*(?:,|\Z)")
_SECONDS = re.compile(r"\d+", re.A)


@lru_cache(maxsize=1024)
def read(control: bytes | None, pragma: bytes | None) -> Directives:
    """What `Cache-Control` (all fields joined by commas) and, only where there is none, `Pragma` ask for.

    A field that cannot be read at all counts as `no-store`, an argument that cannot be read as the strictest. Of two
    `max-age` the smaller holds. `min-fresh` is read as `no-cache`: how long an answer stays fresh is not known here.
    """
    if control is None:
        return Directives(no_cache=True) if pragma is not None and b"no-cache" in pragma.lower() else NOTHING_ASKED
    text = control.decode("latin-1")
    no_store = no_cache = only_if_cached = False
    ages: list[float] = []
    place = 0
    while place < len(text):
        found = _DIRECTIVE.match(text, place)
        if found is None:
            return _CAREFUL
        place = found.end()
        name, argument = (found[1] or "").lower(), found[2] if found[3] is None else re.sub(r"\\(.)", r"\1", found[3])
        if name == "no-store":
            no_store = True
        elif name in ("no-cache", "min-fresh"):
            no_cache = True
        elif name == "only-if-cached":
            only_if_cached = True
        elif name == "max-age":
            ages.append(float(argument[:18]) if argument and _SECONDS.fullmatch(argument) else 0.0)
    return Directives(no_store, no_cache, only_if_cached, min(ages, default=None))
