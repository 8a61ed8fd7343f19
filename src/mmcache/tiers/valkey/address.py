"""Where the shared tier is: what a URL says, checked, and never shown with its password."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, unquote

from mmcache.model.errors import SettingsError
from mmcache.settings import SharedSettings

_SCHEMES = {"valkey": False, "redis": False, "valkeys": True, "rediss": True}
"""Whether it is TLS."""
_PORT, _SENTINEL_PORT = 6379, 26379
_FORM = "valkey://user:password@host:6379/0, valkeys://… (TLS), …?cluster=true, valkey+sentinel://one,two/master"


class Node(NamedTuple):
    """Where a server listens. (A tuple, since its hash is asked for once a request.)"""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Address:
    """A server, the seeds of a cluster, or the sentinels that know a master."""

    hosts: tuple[Node, ...]
    mode: Literal["standalone", "cluster", "sentinel"] = "standalone"
    master: str | None = None
    """The name by which sentinels know it."""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: bool = False
    prefix: str = "mmcache:"

    @staticmethod
    def parse(settings: SharedSettings) -> Address:
        """Read `settings.url`. Raises `SettingsError`, which does not show the password."""
        scheme, found, rest = settings.url.partition("://")
        scheme, _, how = scheme.lower().partition("+")
        if not found or scheme not in _SCHEMES or how not in ("", "sentinel"):
            raise SettingsError(f"shared: {_shown(settings.url)!r} is no address; it looks like {_FORM}")
        rest, _, query = rest.partition("?")
        place, _, path = rest.partition("/")
        login, _, hosts = place.rpartition("@")
        options = _options(query, settings.url)
        cluster, prefix = options.get("cluster", "false") == "true", options.get("prefix", settings.prefix)
        username, colon, password = login.partition(":")
        parts = [unquote(part) for part in path.split("/") if part]
        master = parts.pop(0) if how and parts else None
        database = _number(parts.pop(0), settings.url) if parts else 0
        several = "," in hosts and not (how or cluster)
        if bool(how) != (master is not None) or parts or several or (cluster and (how or database)):
            raise SettingsError(
                f"shared: {_shown(settings.url)!r}: a cluster has database 0 and no sentinels, sentinels need the "
                f"master's name, and without either there is one host; it looks like {_FORM}"
            )
        if set("{}") & set(prefix):
            raise SettingsError(f"shared: a prefix has no braces, they would choose the slot: {prefix!r}")
        return Address(
            tuple(_host(one, _SENTINEL_PORT if how else _PORT, settings.url) for one in hosts.split(",")),
            "sentinel" if how else "cluster" if cluster else "standalone",
            master,
            unquote(username) or None,
            unquote(password) if colon else settings.known_password,
            database,
            _SCHEMES[scheme],
            prefix,
        )


def _options(query: str, url: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if set(options) - {"cluster", "prefix"} or options.get("cluster", "true") not in ("true", "false"):
        raise SettingsError(f"shared: {_shown(url)!r} has more than `cluster=true` and `prefix=…` behind the ?")
    return options


def _host(text: str, port: int, url: str) -> Node:
    """`name`, `name:port`, `[v6]`, `[v6]:port`."""
    if text.startswith("["):
        host, closed, after = text[1:].partition("]")
        if not closed or (after and not after.startswith(":")):
            raise SettingsError(f"shared: {_shown(url)!r}: an IPv6 address looks like [::1]:6379")
        digits = after[1:] if after else str(port)
    else:
        host, colon, digits = text.partition(":")
        digits = digits if colon else str(port)
    number = _number(digits, url)
    if not host or not 0 < number < 65536:
        raise SettingsError(f"shared: {_shown(url)!r} names no host, or a port outside 1…65535")
    return Node(unquote(host), number)


def _number(text: str, url: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise SettingsError(
            f"shared: {_shown(url)!r}: a port or a database is no number; in a password, / ? @ : are written as "
            f"%2F %3F %40 %3A; an address looks like {_FORM}"
        )
    return int(text)


def _shown(url: str) -> str:
    """Without what stands before the host."""
    scheme, found, rest = url.partition("://")
    return f"{scheme}{found}{rest.rpartition('@')[2]}" if found else rest or scheme.rpartition("@")[2]
