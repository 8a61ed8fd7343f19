"""The guard against request forgery: which addresses may be fetched for a caller, by name and by number. Pure.

Numbers are checked after the name was resolved, and the connection goes to a number that was checked (`fetch`). An
address of the internet is one that no registry entry of IANA (special-purpose IPv4 and IPv6) takes out.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import idna

from mmcache.model.errors import ProxyError
from mmcache.server.config import FetchRules

PORTS = {"https": 443, "http": 80}
_UNQUOTED = "/%:@!$&'()*+,;=~-._"
LONGEST = 4096
"""Characters of an address."""

_NOT_PUBLIC_4 = [
    ipaddress.IPv4Network(block)
    for block in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # the machine agent of Azure: a public number that leads to the host
    )
]  # fmt: skip
_UNICAST_6 = ipaddress.IPv6Network("2000::/3")
"""All that is given to the internet. IPv4-mapped (`::ffff:…`), NAT64 (`64:ff9b::`), unique local, link-local, multicast
and unspecified addresses are outside; tunnels that carry an IPv4 address are taken out below."""
_NOT_PUBLIC_6 = [
    ipaddress.IPv6Network(block)
    for block in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
]
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)\Z")
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)\Z")
_LOCAL_NAMES = ("localhost", "local", "localdomain", "internal", "intranet", "home.arpa", "lan", "corp")


@dataclass(frozen=True, slots=True)
class Target:
    """An address that may be asked, if its numbers are good as well."""

    url: str
    """Normalised: ASCII only, host in lower case, without fragment."""
    scheme: str
    host: str
    port: int


def target(url: str, rules: FetchRules) -> Target:
    """What `url` names. Raises `ProxyError` (`remote-media`) for what may not be fetched."""
    if len(url) > LONGEST:
        raise refused("it is too long")
    if any(character <= " " or character in "\\\x7f" for character in url):
        raise refused("it has white space, control characters or a backslash")  # which two parsers read differently
    try:
        url.encode()  # a lone surrogate
        split = urlsplit(url)
        port = split.port
    except ValueError as error:
        raise refused("it cannot be parsed") from error
    if split.scheme not in rules.schemes or split.scheme not in PORTS:
        raise refused(f"its scheme is none of {', '.join(rules.schemes)}")
    if "@" in split.netloc:
        raise refused("it holds a user or a password")
    host = _host(split)
    port = PORTS[split.scheme] if port is None else port
    _check_named(host, port, split.scheme, rules)
    shown = f"[{host}]" if ":" in host else host
    netloc = shown if port == PORTS[split.scheme] else f"{shown}:{port}"
    path = quote(split.path or "/", safe=_UNQUOTED)
    query = "?" + quote(split.query, safe=_UNQUOTED + "?") if split.query else ""
    return Target(f"{split.scheme}://{netloc}{path}{query}", split.scheme, host, port)


def redirected(before: Target, location: str, rules: FetchRules) -> Target:
    """Where a redirect leads. Raises `ProxyError`."""
    try:
        after = target(urljoin(before.url, location), rules)
    except ValueError as error:  # urljoin parses, too; a `ProxyError` is none
        raise refused("a redirect cannot be parsed") from error
    if before.scheme == "https" and after.scheme != "https":
        raise refused("a redirect leads from https to http")
    return after


def public(number: str) -> bool:
    """Whether `number`, an IPv4 or IPv6 address, is one of the internet."""
    try:
        address = ipaddress.ip_address(number)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in block for block in _NOT_PUBLIC_4)
    return address in _UNICAST_6 and not any(address in block for block in _NOT_PUBLIC_6) and address.scope_id is None


def refused(why: str) -> ProxyError:
    """The error that says so. It never quotes the address: signed ones are secrets."""
    return ProxyError(f"the address is not fetched: {why}", code="remote-media")


def _host(split: SplitResult) -> str:
    given = split.hostname or ""
    if split.netloc.startswith("["):
        try:
            number = ipaddress.IPv6Address(given)
        except ValueError as error:
            raise refused("its host is no IPv6 address") from error
        if number.scope_id is not None:
            raise refused("its IPv6 address has a zone")
        return number.compressed
    if not given.isascii():
        try:
            given = idna.encode(given, uts46=True).decode()
        except idna.IDNAError as error:
            raise refused("its host is no international domain name") from error
    host = given.lower().removesuffix(".")
    labels = host.split(".")
    if len(host) > 253 or not all(map(_LABEL.match, labels)):
        raise refused("its host is no domain name")
    if _NUMBER.match(labels[-1]):  # 0x7f.1, 2130706433, 0177.0.0.1: resolvers read them as numbers
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError as error:
            raise refused("its host is a number that is spelt oddly") from error
    return host


def _check_named(host: str, port: int, scheme: str, rules: FetchRules) -> None:
    names = {*_spellings(host, port)}
    if rules.hosts and not names & {*rules.hosts}:
        raise refused("its host is none of those allowed")
    if rules.private:
        return
    if port != PORTS[scheme] and f"{host}:{port}" not in rules.hosts:
        raise refused(f"its port is neither {PORTS[scheme]} nor named with its host in [fetch] hosts")
    last = host.rpartition(".")[2]
    if ":" in host or last.isdigit():
        if not public(host):
            raise refused("it is no address of the internet")
    elif "." not in host or any(host == name or host.endswith(f".{name}") for name in _LOCAL_NAMES):
        raise refused("its host is a local name")


def _spellings(host: str, port: int) -> list[str]:
    """How the rules may name `host`: itself, with its port, and what ends with one that begins with a dot."""
    tails = [host[at:] for at, character in enumerate(host) if character == "."]
    return [host, f"{host}:{port}", *tails, *(f"{tail}:{port}" for tail in tails)]
