"""Getting media from an address that a caller names: little, briefly, and from the internet only.

Every name is resolved once for a connection, by us; all its numbers must be good; the connection goes to one of exactly
those. Redirects are followed by hand, each through the same guard. Nothing of the caller's request goes along.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from mmcache.model.errors import ProxyError
from mmcache.server.config import FetchRules
from mmcache.server.media.addresses import Target, public, redirected, refused, target

Resolve = Callable[[str, int], Awaitable[list[tuple[int, str]]]]
"""Name and port → its (address family, number)s."""

_NAMES = 8
"""Names asked for at a time."""
_RESTED = timedelta(seconds=60)
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "mmcache"}


@dataclass(frozen=True, slots=True)
class Validators:
    """How to ask whether something has changed."""

    url: str
    """Where it came from in the end: nobody else is told."""
    etag: str = ""
    modified: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A whole answer."""

    mime: str
    """As the origin names it, in lower case and without parameters; empty where it does not."""
    data: bytes
    validators: Validators | None
    """None where it gave none that tell every change, or does not want to be kept."""


class System:
    """Asks the system, in threads of its own: a name whose servers never answer holds up nobody else's work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_NAMES, "mmcache-names")

    async def __call__(self, host: str, port: int) -> list[tuple[int, str]]:
        """See `Resolve`. Raises `OSError`."""
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        return [(family, str(address[0])) for family, _, _, _, address in found]

    def close(self) -> None:
        """Wait for nobody."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _socket(rules: FetchRules, address: Any) -> socket.socket:
    """The last gate: whatever is connected to was given here, names' numbers and those that callers wrote."""
    family, kind, protocol, _, place = address
    if not (rules.private or public(place[0])):
        raise refused("it is no address of the internet")
    return socket.socket(family, kind, protocol)


class _Guarded(AbstractResolver):  # type: ignore[misc]
    """Names → numbers, all of them checked, for one connection."""

    def __init__(self, rules: FetchRules, ask: Resolve) -> None:
        self._rules, self._ask = rules, ask

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[dict[str, Any]]:
        found = await self._ask(host, port)
        if not found or not (self._rules.private or all(public(number) for _, number in found)):
            raise refused("its name leads to an address that is not one of the internet")
        return [
            {"hostname": host, "host": number, "port": port, "family": family, "proto": 0, "flags": _NUMERIC}
            for family, number in found
        ]

    async def close(self) -> None:
        pass


_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class Fetcher:
    """Fetches, under one set of rules. `ask` resolves names; tests bring their own."""

    def __init__(self, rules: FetchRules, ask: Resolve | None = None) -> None:
        self.rules, self._system = rules, System()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=_Guarded(rules, ask or self._system),
                socket_factory=partial(_socket, rules),
                use_dns_cache=False,
                force_close=True,
                limit=64,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=rules.timeout_seconds),
        )

    async def get(self, url: str, known: Validators | None = None) -> Fetched | None:
        """What is at `url`; None when it is what it was when `known` was given. Raises `ProxyError`."""
        try:
            async with asyncio.timeout(self.rules.timeout_seconds):
                return await self._follow(target(url, self.rules), known)
        except ProxyError:
            raise
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
            if isinstance(error.__cause__, ProxyError):
                raise error.__cause__ from error
            raise refused(f"it cannot be had ({type(error).__name__})") from error

    async def close(self) -> None:
        """Close all connections."""
        self._system.close()
        await self._session.close()

    async def _follow(self, at: Target, known: Validators | None) -> Fetched | None:
        for _ in range(self.rules.redirects + 1):
            asked = dict(_HEADERS)
            if known is not None and known.url == at.url:
                asked |= {"if-none-match": known.etag} if known.etag else {"if-modified-since": known.modified}
            async with self._session.get(URL(at.url, encoded=True), headers=asked, allow_redirects=False) as reply:
                if reply.status in _REDIRECTS:
                    at = redirected(at, reply.headers.get("location", ""), self.rules)
                    continue
                if reply.status == 304 and len(asked) > len(_HEADERS):
                    return None
                return await self._read(at, reply)
        raise refused(f"it is redirected more than {self.rules.redirects} times")

    async def _read(self, at: Target, reply: Any) -> Fetched:
        if reply.status != 200:
            raise refused(f"the origin answers {reply.status}")
        if reply.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise refused("the origin compresses it, though asked not to")
        largest = self.rules.largest_bytes
        pieces, size = [], 0
        if (reply.content_length or 0) <= largest:
            async for piece in reply.content.iter_any():
                size += len(piece)
                if size > largest:
                    break
                pieces.append(piece)
        if size > largest or (reply.content_length or 0) > largest:
            reply.close()
            raise refused(f"it has more than {largest} bytes")
        if not size:
            raise refused("it is empty")
        mime = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        return Fetched(mime, b"".join(pieces), _validators(at.url, reply.headers))


def _validators(url: str, headers: Any) -> Validators | None:
    """Strong ones only: a weak one may stay where bytes change (RFC 9110, section 8.8)."""
    if {"no-store", "private"} & {word.strip().lower() for word in headers.get("cache-control", "").split(",")}:
        return None
    etag, modified = headers.get("etag", ""), headers.get("last-modified", "")
    if 2 < len(etag) <= 512 and etag[0] == etag[-1] == '"':
        return Validators(url, etag=etag)
    try:
        rested = parsedate_to_datetime(headers.get("date", "")) - parsedate_to_datetime(modified)
    except (ValueError, TypeError, OverflowError):
        return None
    # It counts seconds: what changed twice in one looks unchanged, unless that second was over when it was sent.
    return Validators(url, modified=modified) if rested >= _RESTED else None
