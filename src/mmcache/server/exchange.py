"""What passes between the frame of the proxy and its routes: one request in, one response out, and what was done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mmcache.model.event import MissReason

if TYPE_CHECKING:
    from mmcache.cache import Cache
    from mmcache.server.config import RouteRules, ServerSettings
    from mmcache.server.upstream import Upstream

Headers = list[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case, in order."""


@dataclass(frozen=True, slots=True)
class Directives:
    """What the request's `Cache-Control` asks for (RFC 9111, section 5.2.1)."""

    no_store: bool = False
    """Neither look up nor store."""
    no_cache: bool = False
    """Do not serve what is stored; store what is computed."""
    only_if_cached: bool = False
    """Serve what is stored, or answer 504."""
    max_age: float | None = None
    """Serve nothing older, in seconds."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose tenant is known and whose body was read within its limits, decompressed."""

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes
    tenant: str
    """Name of the realm: a keyed hash of the API key, or what a trusted front proxy says."""
    directives: Directives
    rules: RouteRules

    def header(self, name: bytes) -> bytes | None:
        """The value of a header that is given once; None where there is none."""
        return next((value for found, value in self.headers if found == name), None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the cache did, as said in `x-mmcache: hit; reason=…; saved_ms=…`."""

    outcome: Literal["hit", "miss", "partial", "bypass", "pass"]
    """`bypass`: the route is cached but this request may not be (reason says why); `pass`: not our route."""
    reason: MissReason | str = ""
    """A `MissReason`, or for a bypass a short kebab-case word: `not-deterministic`, `no-store`, `remote-media`…"""
    saved_seconds: float = 0.0
    details: Mapping[str, str] = field(default_factory=dict)
    """Further parameters, e.g. `hits=3`, `misses=1` of a batch, `uuids=1`, `near=0.997`."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What goes back. A body that comes in pieces is closed by the frame (`aclose`) when the client has gone."""

    status: int
    headers: Headers
    body: bytes | AsyncIterator[bytes]
    verdict: Verdict


class Route(Protocol):
    """One path of the protocol that is cached. Raises `ProxyError` (or any `MMCacheError`), never a foreign error."""

    async def __call__(self, asked: Asked, proxy: Proxy) -> Answered: ...


@dataclass(frozen=True, slots=True)
class Proxy:
    """What routes work with."""

    cache: Cache
    upstream: Upstream
    settings: ServerSettings
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What rooms keep between requests, each under its name (`media.fetch`): `kept.setdefault(name, made)`."""
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list, compare=False, repr=False)
    """What the frame calls, last first, after the last request was answered."""
