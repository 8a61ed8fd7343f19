"""What passes between the frame of the proxy and its routes: one request in, one response out, and what was done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mmcache.model.errors import ProxyError
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


class BypassedError(ProxyError):
    """Raised by a route that will not judge a request: the frame sends it upstream as it is, uncached, and says
    `bypass; reason=…` (a kebab-case word). `limits.parse` raises it for bodies that two parsers may read differently.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"not cached: {reason}", code=reason)
        self.reason = reason


@dataclass(slots=True)  # not frozen, like all that is made for each hit: freezing costs a microsecond apiece
class Asked:
    """A request whose tenant is known and whose body was read within its limits, decompressed. Not to be changed.

    What is switched off, or says `no-store`, never reaches a route; `rules.mode` is `on` or `shadow`.
    """

    method: str
    path: str
    query: bytes
    headers: Headers
    body: bytes
    tenant: str
    """A keyed hash of the API key, or what a trusted front proxy says: who asks, in counts, limits and quotas, and what
    `mmcache purge --tenant` erases."""
    directives: Directives
    rules: RouteRules
    namespace: str = "default"
    """The cache's own, and with it a keyed digest of the query and of all headers that might change an answer
    (`OpenAI-Organization`, `OpenAI-Beta`, any that is not known to be harmless)."""

    @property
    def realm(self) -> tuple[str, str]:
        """Tenant and namespace, for `scopes.of(signature, *asked.realm)`. What has both in it has all that is not in
        path and body, except the `content-type` of multipart bodies; what has not is shared by those who must not."""
        return self.tenant, self.namespace

    def header(self, name: bytes) -> bytes | None:
        """The value of a header that is given once; None where there is none."""
        return next((value for found, value in self.headers if found == name), None)


@dataclass(slots=True)
class Verdict:
    """What the cache did, as said in `x-mmcache: hit; reason=…; saved_ms=…`."""

    outcome: Literal["hit", "miss", "partial", "bypass", "pass"]
    """`bypass`: the route is cached but this request may not be (reason says why); `pass`: not our route."""
    reason: MissReason | str = ""
    """A `MissReason`, or for a bypass a short kebab-case word: `not-deterministic`, `no-store`, `remote-media`…"""
    saved_seconds: float = 0.0
    details: Mapping[str, str] = field(default_factory=dict)
    """Further parameters, e.g. `hits=3`, `misses=1` of a batch, `uuids=1`, `near=0.997`."""
    age_seconds: float | None = None
    """Since the (oldest) stored part was computed, as the header `age`."""
    saved_tokens: int = 0
    """Tokens of stored usage that the upstream did not count again; reported as saved, never as used."""


@dataclass(slots=True)
class Answered:
    """What goes back. A body that comes in pieces is closed by the frame (`aclose`) when the client has gone.

    A hit is authorised like a miss, and that is the frame's work: before it sends an answer of outcome `hit` or
    `partial` it makes sure that the upstream has lately said yes to this caller and `model`. Where not, it throws the
    answer away and asks upstream. An answer of such an outcome without a `model` is never sent.
    """

    status: int
    headers: Headers
    body: bytes | AsyncIterator[bytes]
    verdict: Verdict
    model: str = ""
    """As the request names it."""


class Route(Protocol):
    """One path of the protocol that is cached. Raises `ProxyError` (or any `MMCacheError`), never a foreign error."""

    async def __call__(self, asked: Asked, proxy: Proxy) -> Answered: ...


@dataclass(frozen=True, slots=True)
class Proxy:
    """What routes work with."""

    cache: Cache
    upstream: Upstream
    settings: ServerSettings
    compared: Callable[[str, bool], None] = lambda path, same: None
    """`compared(asked.path, same)`: a stored answer was held against a computed one (`shadow`, or a sampled check);
    counted and shown by `/mmcache/status`."""
    kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What rooms keep between requests, each under its name (`media.fetch`): `kept.setdefault(name, made)`. Empty again
    when other settings hold (a reload), so that nothing made under the old ones is used under the new."""
    closers: list[Callable[[], Awaitable[None]]] = field(default_factory=list, compare=False, repr=False)
    """What the frame calls, last first, after the last request was answered."""
