"""Whose request is it? One pass over the headers says it, and what else of them a realm has in it, as its namespace.

A tenant is a keyed hash of the API key, with a secret that is derived from the cache's, so that no key stands in the
clear anywhere, and the same key is the same tenant after a restart. A front proxy that proves itself may name the
tenant instead. The three kinds of names never meet: `key:…` for hashes, and no colon in what fronts and operators name.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from blake3 import blake3

from mmcache.cache import Cache
from mmcache.keys.framing import framed
from mmcache.model.errors import ProxyError
from mmcache.model.signature import Signature
from mmcache.server import header_kinds as kind_of
from mmcache.server.accounts import Account, Accounts
from mmcache.server.clients import LONGEST
from mmcache.server.config import TrustRules
from mmcache.server.exchange import Headers
from mmcache.server.header_kinds import (
    ACCEPT,
    AGENT,
    CONNECTION,
    CONTROL,
    CREDENTIAL,
    ENCODING,
    FRONT_REGION,
    OURS,
    PRAGMA,
    REGION,
    TYPE,
    VARIES,
)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}", re.A)
"""What a front proxy or the operator may call a tenant."""
PLACE = re.compile(r"[a-z0-9-]{1,32}", re.A)
"""What a region may be called."""

REMEMBERED = 16_384
_USUAL = [b"authorization", b"bearer"]
_NOT_TO_BE_DROPPED = frozenset({*kind_of.CREDENTIALS, b"content-type", b"content-encoding", b"content-length", b"host",
                                b"cache-control", b"pragma", kind_of.TENANT, kind_of.FRONT_TOKEN})  # fmt: skip


class Principal:
    """One caller with one set of headers that matter."""

    __slots__ = ("account", "namespace", "shared", "tenant", "yes")

    def __init__(self, tenant: str, namespace: str, shared: bool, account: Account) -> None:
        self.tenant, self.namespace, self.account = tenant, namespace, account
        self.shared = shared
        """Several API keys may stand behind this tenant."""
        self.yes: dict[str, float] = {}
        """Until when (monotonic seconds) the upstream's yes to a model is believed."""


class Seen(msgspec.Struct):
    """What one pass over the headers found."""

    principal: Principal
    control: bytes | None
    pragma: bytes | None
    encoding: bytes | None
    agent: bytes | None
    """The beginning of the client's `user-agent`."""
    region: str
    """Where the client is, as far as somebody says so who may."""


class Tenants:
    """Finds the principal of a request; remembers the last `REMEMBERED` under keyed digests of what they sent."""

    def __init__(self, cache: Cache, trust: TrustRules, accounts: Accounts, region: str = "") -> None:
        """region: of all clients of whom nobody says better."""
        salt = cache.scopes.of(Signature("mmcache.server tenants"), "mmcache.server", "tenants").salt
        self._key = blake3(salt, derive_key_context="mmcache 2026 proxy tenant names v1").digest()
        self._trust, self._accounts, self._namespace = trust, accounts, cache.namespace
        self._kinds = kind_of.kinds(trust.harmless_headers, trust.region_header)
        self._region = region
        named = (trust.region_header or "").lower().encode()
        self._region_varies = kind_of.kinds(trust.harmless_headers).get(named, VARIES) == VARIES
        self._networks = tuple(ipaddress.ip_network(each) for each in trust.front_networks)
        self._near = lru_cache(maxsize=1024)(self._stands_near)
        self._known: dict[bytes, Principal] = {}

    def see(self, headers: Headers, query: bytes, peer: str | None) -> Seen:
        """Who asks, and for what of the cache. Raises `ProxyError` 400 for headers that can be read in two ways, 401
        without a key, 403 for who calls itself a front proxy and is none."""
        kinds = self._kinds
        parts: list[bytes] = []
        control = pragma = encoding = agent = None
        fronted = False
        places: list[tuple[int, bytes]] = []
        for name, value in headers:
            kind = kinds.get(name, VARIES)
            if not kind:  # harmless, like most
                continue
            if kind == CREDENTIAL:
                parts.append(b"%b:%b" % (name, value))
            elif kind == TYPE:
                if value != b"application/json" and not kind_of.plain_type(value):
                    parts.append(b"%b:%b" % (name, value))
            elif kind == ACCEPT:
                if value != b"application/json" and not kind_of.plain_accept(value):
                    parts.append(b"%b:%b" % (name, value))
            elif kind == AGENT:
                agent = value[:LONGEST]
            elif kind == CONTROL:
                control = value if control is None else control + b"," + value
            elif kind == PRAGMA:
                pragma = value
            elif kind == ENCODING:
                encoding = value if encoding is None else encoding + b"," + value
            elif kind == CONNECTION:
                if value != b"keep-alive" and value != b"close" and _drops(value):
                    parts.append(b"%b:%b" % (name, value))
            elif kind == OURS:
                fronted = True
            elif kind == FRONT_REGION:
                places.append((kind, value))
            elif kind == REGION:
                places.append((kind, value))
                if self._region_varies:
                    parts.append(b"%b:%b" % (name, value))
            elif not name.startswith(b"x-mmcache"):
                parts.append(b"%b:%b" % (name, value))
        if query:
            parts.append(b"?" + query)
        front = self._front(headers, peer) if fronted else None
        if front is not None:
            parts.append(b"\nfront:" + front.encode())
        # No header holds a line end, so that joining them is unambiguous.
        label = blake3(b"\n".join(parts), key=self._key).digest()
        principal = self._known.get(label)
        if principal is None:
            principal = self._known[label] = self._first_seen(headers, parts, front)
            if len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]
        region = self._place(places, fronted, peer) if places else self._region
        return Seen(principal, control, pragma, encoding, agent, region)

    def _first_seen(self, headers: Headers, parts: Sequence[bytes], front: str | None) -> Principal:
        token, forms = _one_key([pair for pair in headers if pair[0] in kind_of.CREDENTIALS])
        named = [(part.partition(b":")[0], part) for part in parts if part[:1] != b"\n"]
        varying = [pair for pair in named if pair[0] not in kind_of.CREDENTIALS]
        if front is not None:
            tenant = front
        elif token:
            tenant = self._hashed(token)
            varying += [] if forms == _USUAL else [(b"", framed("forms", *forms))]
        elif self._trust.anonymous is not None:
            tenant = self._trust.anonymous
        else:
            raise ProxyError(
                "no API key: send `authorization: Bearer …`; or let the operator set trust.anonymous",
                status=401, code="missing_api_key",
            )  # fmt: skip
        namespace = self._namespace
        if varying:
            told = framed("varying", *(part for _, part in sorted(varying, key=lambda pair: pair[0])))
            namespace += "+" + blake3(told, key=self._key).hexdigest(length=16)
        return Principal(tenant, namespace, front is not None, self._accounts.of(tenant))

    def of_key(self, key: str) -> str:
        """The tenant of an API key, given alone or as in `authorization`. Raises `ProxyError` for an empty one."""
        _, token = _split(key.encode())
        if not token:
            raise ProxyError("there is no API key")
        return self._hashed(token)

    def _hashed(self, token: bytes) -> str:
        return "key:" + blake3(framed("key", token), key=self._key).hexdigest(length=16)

    def _front(self, headers: Headers, peer: str | None) -> str | None:
        """The tenant that a front proxy names; None where it proved itself and names none."""
        names = [value for name, value in headers if name == kind_of.TENANT]
        tokens = [value for name, value in headers if name == kind_of.FRONT_TOKEN]
        if len(names) > 1 or len(tokens) > 1:
            raise ProxyError("x-mmcache-tenant and x-mmcache-front-token are given once")
        wanted = self._trust.front_token
        right = bool(tokens and wanted) and hmac.compare_digest(tokens[0], str(wanted).encode())
        if not (right and peer is not None and self._near(peer)):
            raise ProxyError(
                "x-mmcache-tenant is believed from a front proxy only: with the right x-mmcache-front-token, and from "
                "one of trust.front_networks",
                status=403, code="front_proxy",
            )  # fmt: skip
        if not names:
            return None
        name = names[0].decode("latin-1")
        if not NAME.fullmatch(name) or name == self._trust.anonymous:
            raise ProxyError("x-mmcache-tenant: 1 to 128 letters, digits and ._@-, and not the anonymous tenant's name")
        return name

    def _place(self, places: Sequence[tuple[int, bytes]], proved: bool, peer: str | None) -> str:
        """The region that is believed: of a front proxy that has proved itself, else of the operator's header from
        where front proxies stand. What a client says of itself is not heard."""
        for kind, heard in ((FRONT_REGION, proved), (REGION, peer is not None and self._near(peer))):
            said = [value for found, value in places if found == kind]
            if said and heard:
                name = said[0].decode("latin-1").lower()
                return name if len(said) == 1 and PLACE.fullmatch(name) else ""
        return self._region

    def _stands_near(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self._networks)


def _one_key(credentials: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, list[bytes]]:
    """The API key, empty where there is none, and in which headers and schemes it comes: an upstream may believe one
    and not look at another. Raises `ProxyError` for two keys."""
    forms = sorted((name, *_split(value)) for name, value in credentials)
    if len({name for name, _, _ in forms}) != len(forms) or len({token for _, _, token in forms}) > 1:
        raise ProxyError("two API keys: which of them asks? Send one", code="ambiguous_api_key")
    return (forms[0][2] if forms else b""), [piece for name, scheme, _ in forms for piece in (name, scheme)]


def _split(value: bytes) -> tuple[bytes, bytes]:
    scheme, _, token = value.strip().partition(b" ")
    return (b"bearer", token.strip()) if scheme.lower() == b"bearer" else (b"", value.strip())


def _drops(value: bytes) -> bool:
    """Whether `Connection` names headers that would have gone along but for it. Raises `ProxyError` where it names
    those that say who asks, or what: an answer would be computed for one request and looked up for another."""
    named = {token.strip().lower() for token in value.split(b",")} - {b"", b"close", b"http2-settings"}
    if not _NOT_TO_BE_DROPPED.isdisjoint(named):
        raise ProxyError("Connection names a header that every hop needs", code="connection_header")
    return not named <= kind_of.HOP_BY_HOP
