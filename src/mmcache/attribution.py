"""Who asks, and by which way: what lookups are attributed to. A door says it; a library's caller may.

Every field is a word of few: a route's template and never a path as a client wrote it, a region's name. What has many
values (a key, a user) belongs into spans, never into the label of a metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Attribution:
    """All fields may be empty: not known."""

    route: str = ""
    """Of the request, `/v1/embeddings`."""
    client: str = ""
    """What kind of client, `openai-python/2.8`; of spans only."""
    region: str = ""
    """Where the client is, `eu-west`."""


UNKNOWN = Attribution()
_now: ContextVar[Attribution] = ContextVar("mmcache_attribution", default=UNKNOWN)

current = _now.get
"""The attribution of what runs now."""
enter, leave = _now.set, _now.reset
"""For a door that has made its own: `leave(enter(attribution))`, in one context."""


@contextmanager
def attributed(*, route: str | None = None, client: str | None = None, region: str | None = None) -> Iterator[None]:
    """Inside, lookups count as asked by these; None = as outside.

    >>> with attributed(route="/search", region="eu-west"):
    ...     encode(picture)
    """
    given = {"route": route, "client": client, "region": region}
    token = _now.set(replace(_now.get(), **{name: said for name, said in given.items() if said is not None}))
    try:
        yield
    finally:
        _now.reset(token)
