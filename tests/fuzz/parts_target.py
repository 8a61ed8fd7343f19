"""What atheris calls: every reader of what a caller writes into a media part, a form or an address.

    python tests/fuzz/parts_target.py [folder of first inputs] -runs=20000 -seed=1

A process of its own: libFuzzer ends it. The first byte of an input chooses the reader.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["mmcache.server.media"]):
    from mmcache.server.media import addresses, data_urls, multipart, plain
    from mmcache.server.media.parts import Identified, Unknown, identified

import msgspec
from python_multipart.multipart import MultipartParser

from mmcache import Cache
from mmcache.model.errors import ProxyError
from mmcache.server.config import FetchRules, RouteRules, ServerSettings
from mmcache.server.exchange import Asked, BypassedError, Directives, Proxy
from mmcache.server.upstream import Reply

RULES = FetchRules(allowed=True, schemes=("https", "http"))
ASKED = Asked("POST", "/v1/chat/completions", b"", [], b"", "t", Directives(), RouteRules())


class Nobody:
    """An upstream that is never asked."""

    async def send(self, *request: object) -> Reply:
        raise AssertionError("asked")

    async def close(self) -> None: ...


LOOP = asyncio.new_event_loop()
PROXY = Proxy(Cache(memory="4MiB"), Nobody(), ServerSettings("http://upstream"))


def url(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    try:
        found = data_urls.read(text)
    except data_urls.OddSpellingError:
        return
    again = data_urls.read(data_urls.data_url(found.mime + found.parameters, found.data))
    assert again.plain
    assert (again.data, again.mime, again.parameters) == (found.data, found.mime, found.parameters)


def address(raw: bytes) -> None:
    try:
        found = addresses.target(raw.decode("utf-8", "replace"), RULES)
    except ProxyError:
        return
    assert addresses.target(found.url, RULES) == found


def form(raw: bytes) -> None:
    try:
        found = [one.value for one in multipart.fields(raw, b"xyz")]
    except BypassedError:
        return
    elsewhere: list[bytearray] = []
    parser = MultipartParser(
        b"xyz",
        {
            "on_part_begin": lambda: elsewhere.append(bytearray()),
            "on_part_data": lambda data, start, end: elsewhere[-1].extend(data[start:end]),
        },
    )
    parser.write(raw)
    parser.finalize()
    assert found == [bytes(one) for one in elsewhere]


def picture(raw: bytes) -> None:
    plain.settled(raw)
    plain.sniffed(raw)


def part(raw: bytes) -> None:
    try:
        given = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    found = LOOP.run_until_complete(identified(given, ASKED, PROXY))
    if isinstance(found, Unknown):
        return
    again = LOOP.run_until_complete(identified(found.part, ASKED, PROXY))
    assert isinstance(again, Identified)
    assert (again.identity, again.exact, again.rewritten) == (found.identity, found.exact, False)


READERS: list[Callable[[bytes], None]] = [url, address, form, picture, part]


def one(raw: bytes) -> None:
    """One input."""
    if raw:
        READERS[raw[0] % len(READERS)](raw[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
