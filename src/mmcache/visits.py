"""Visits: who looks for what, one thing after another. What a prefetcher learns from, and what it can do over.

A cache without a prefetcher has nobody to tell, and pays nothing. With one, each lookup costs a call that appends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from blake3 import blake3

from mmcache import plugins
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.model.key import Key

LONGEST_NAME = 128
"""Characters of a session's name that are remembered; of a longer one a digest stands for it."""
_MISSING = object()
_session: ContextVar[str] = ContextVar("mmcache_session", default="")

session = _session.get
"""Whose lookups these are; empty: nobody said."""
enter, leave = _session.set, _session.reset
"""For a door: `leave(enter(name))`, in one context."""


@contextmanager
def visit(name: str) -> Iterator[None]:
    """Inside, lookups belong to the session `name`: a visitor, a conversation, a document that is read page by page.

    >>> with visit("visitor-17"):
    ...     encode(picture)

    The name is used to tell sessions apart, and nothing else; it is neither stored nor sent. Raises
    `InvalidInputError` for what is no text.
    """
    if not isinstance(name, str):
        raise InvalidInputError(f"a session's name is a str, not {type(name).__name__}: visit(str(name))")
    if len(name) > LONGEST_NAME:
        name = blake3(name.encode("utf-8", "surrogatepass")).hexdigest()
    token = _session.set(name)
    try:
        yield
    finally:
        _session.reset(token)


class Again(Protocol):
    """A computation that can be done over at any time, and then gives what its key says.

    That is an encoder's call: its key is made of its input anew. It is never a function that a caller passed to
    `get_or_compute`, which may by then compute something else under the same key.
    """

    @property
    def size(self) -> int:
        """Bytes that remembering it holds, about."""

    def __call__(self, ttl: float | None) -> int:
        """Bring the block into the cache unless it is there: from a lower tier, else by computing. Neither counted as
        a lookup nor as a use. ttl: seconds that it stays. Returns bytes that were brought; 0 where it was there.

        Raises what the computation raises.
        """


class Prefetcher(Protocol):
    """What `Cache(prefetch=…)` takes: a watcher that is told of visits, and acts by calling the cache."""

    def start(self, cache: Any) -> None:
        """Called once, by the cache (`mmcache.Cache`) that it is for, when that is open."""

    def visited(self, key: Key, again: Again | None = None) -> None:
        """A real lookup of `key` was made, in `session()`. Called on the hot path: appends, never blocks or raises.

        again: how to compute it, where that may be done over. Lookups that were bypassed are no visits.
        """

    def close(self) -> None:
        """Stop; what is under way is given up. Called first when the cache closes. Idempotent."""


def chosen(wanted: str | Prefetcher | None) -> Prefetcher | None:
    """The prefetcher that a cache's argument names, or is. Raises `UnknownPluginError`, `SettingsError`."""
    if isinstance(wanted, str):
        made: Prefetcher = plugins.load("prefetch", wanted)()
        return made
    if wanted is not None and not all(hasattr(wanted, method) for method in ("start", "visited", "close")):
        raise SettingsError(f'prefetch is "behaviour", a Prefetcher or None, not {wanted!r}')
    return wanted


def followed(
    prefetcher: Prefetcher, read: Callable[..., Any], below: Callable[[Key, Any], Any] = lambda _, default: default
) -> Callable[..., Any]:
    """`read(key, default)` of memory alone, of whose hits `prefetcher` is told, and then `below(key, default)`."""
    visited = prefetcher.visited

    def told(key: Key, default: Any = None) -> Any:
        found = read(key, _MISSING)
        if found is _MISSING:
            return below(key, default)
        visited(key)
        return found

    return told
