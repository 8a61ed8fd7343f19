"""What a body may be: its size, its compression, and JSON that everyone reads alike.

Routes read a JSON body with `parse(asked.body)`, which returns a dict or raises `BypassedError("unreadable")`: then the
frame sends the request upstream as it is, whose answer it is to refuse it. No route needs to catch that.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, NoReturn

import msgspec

from mmcache.model.errors import ProxyError
from mmcache.server.exchange import BypassedError

MOST_DEEP = 96
"""Levels of lists and objects; tool schemas have about 20."""
_DECODE = msgspec.json.Decoder().decode
_WORD = 1 << 64


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`. Raises `BypassedError` for what two parsers may read differently: a name given twice,
    NaN, half a surrogate pair, integers of more than 64 bits, bytes that are no UTF-8, nesting of over `MOST_DEEP`."""
    try:
        found = _DECODE(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BypassedError("unreadable") from error
    if type(found) is not dict:
        raise BypassedError("unreadable")
    # Each name stands before a colon, and no other colon stands outside of texts: one more in the body than in what
    # was read means that a name was given twice, and the first was lost.
    if b"\\u003" in body:
        _read_twice(body)
        _count(found)
    elif body.count(b":") != _count(found):
        raise BypassedError("unreadable")
    return found


def _count(found: dict[str, Any]) -> int:
    """Names and colons within texts. Raises `BypassedError` for what is too deep or too large."""
    colons = 0
    level: list[Any] = [found]
    for _ in range(MOST_DEEP):
        below: list[Any] = []
        for each in level:
            if type(each) is dict:
                colons += len(each)
                for name in each:
                    if ":" in name:
                        colons += name.count(":")
                inner = each.values()
            else:
                inner = each
            for value in inner:
                kind = type(value)
                if kind is str:
                    if ":" in value:
                        colons += value.count(":")
                elif kind is dict or kind is list:
                    below.append(value)
                elif kind is int and not -_WORD < value < _WORD:
                    raise BypassedError("unreadable")
        if not below:
            return colons
        level = below
    raise BypassedError("unreadable")


def _read_twice(body: bytes) -> None:
    """Look at every name, for bodies in which colons may be written as escapes."""
    try:
        json.loads(body, object_pairs_hook=_no_name_twice, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BypassedError("unreadable") from error


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def too_large(limit: int) -> ProxyError:
    """413, in words."""
    return ProxyError(f"the body has more than the {limit:,} bytes that this route takes", status=413, code="too_large")


def inflated(body: bytes, encoding: bytes, limit: int) -> bytes:
    """`body` as it was before `Content-Encoding`; at most `limit` bytes are ever made. Raises `ProxyError` 413, 415,
    or 400 for what is damaged."""
    names = [name.strip() for name in encoding.lower().split(b",")]
    names = [name for name in names if name not in (b"", b"identity")]
    if len(names) > 2 or not {*names} <= {b"gzip", b"x-gzip", b"deflate"}:
        raise ProxyError("content-encoding: gzip and deflate are read here", status=415, code="content_encoding")
    for name in reversed(names):
        body = _inflate(body, name == b"deflate", limit)
    return body


def _inflate(body: bytes, deflate: bool, limit: int) -> bytes:
    # `deflate` means zlib's form, but some send it bare.
    bare = deflate and not (len(body) >= 2 and body[0] & 15 == 8 and int.from_bytes(body[:2], "big") % 31 == 0)
    unpack = zlib.decompressobj(-15 if bare else 15 if deflate else 31)
    try:
        found = unpack.decompress(body, limit + 1)
    except zlib.error as error:
        raise ProxyError("the body is not what its content-encoding says", code="content_encoding") from error
    if len(found) > limit:
        raise too_large(limit)
    if not unpack.eof or unpack.unused_data:
        raise ProxyError("the compressed body breaks off, or goes on after its end", code="content_encoding")
    return found
