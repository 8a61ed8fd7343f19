"""`multipart/form-data` (RFC 7578), of which only what every parser reads alike is read: all else is not understood.

The body goes upstream as it came, so another reading of it there must not be possible: one boundary, no preamble, CRLF
only, no folded, repeated or unknown headers, no escapes in names, no field twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mmcache.server.exchange import Asked, BypassedError

MOST_FIELDS = 64
LARGEST_HEAD = 4096
"""Bytes of one field's headers."""
LARGEST_FIELD = 1 << 16
"""Bytes of a field that is no file; prompts are the longest."""

_TYPE = re.compile(rb'multipart/form-data;[ ]*boundary=(?:"([0-9A-Za-z\'()+_,./:=? -]{0,69}[0-9A-Za-z\'()+_,./:=?-])"|'
                   rb"([0-9A-Za-z'+_.-]{1,70}))[ ]*\Z", re.I)  # fmt: skip
_HEADER = re.compile(rb"([A-Za-z-]{1,40}):[ ]?([\x20-\x7e\x80-\xff]{0,2000})\Z")
_DISPOSITION = re.compile(rb'form-data;[ ]?name="([\x20\x21\x23-\x5b\x5d-\x7e]{1,100})"'
                          rb'(?:;[ ]?filename="([\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]{0,1000})")?\Z', re.I)  # fmt: skip
_LENGTH = re.compile(rb"[0-9]{1,12}\Z")


@dataclass(frozen=True, slots=True)
class Field:
    """One field."""

    name: str
    value: bytes
    filename: bytes | None = None
    """None for a field that is no file."""
    kind: bytes = b""
    """Its `content-type`."""


def read(asked: Asked) -> list[Field]:
    """The fields of `asked.body`, in order. Raises `BypassedError` (`odd-form`, `too-many-fields`)."""
    kinds = [value for name, value in asked.headers if name == b"content-type"]
    matched = _TYPE.match(kinds[0]) if len(kinds) == 1 else None
    if matched is None:
        raise BypassedError("odd-form")
    return fields(asked.body, matched[1] or matched[2])


def fields(body: bytes, boundary: bytes) -> list[Field]:
    """The fields between `boundary`s. Raises `BypassedError`."""
    line = b"--" + boundary
    if not body.startswith(line + b"\r\n"):
        raise BypassedError("odd-form")
    found: list[Field] = []
    at, mark = len(line) + 2, b"\r\n" + line
    while True:
        if len(found) == MOST_FIELDS:
            raise BypassedError("too-many-fields")
        head_ends = body.find(b"\r\n\r\n", at, at + LARGEST_HEAD)
        ends = body.find(mark, at)
        if head_ends < 0 or ends < head_ends + 4:
            raise BypassedError("odd-form")
        found.append(_field(body[at:head_ends], body[head_ends + 4 : ends]))
        at = ends + len(mark) + 2
        after = body[at - 2 : at]
        if after == b"--":
            # Once more within a value, where a parser that takes a lone line feed would end it, or after the end.
            if body[at:] not in (b"", b"\r\n") or body.count(line) != len(found) + 1:
                raise BypassedError("odd-form")
            return found
        if after != b"\r\n":
            raise BypassedError("odd-form")


def _field(head: bytes, value: bytes) -> Field:
    headers: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n"):
        matched = _HEADER.match(line)
        name = matched[1].lower() if matched else b""
        if matched is None or name in headers:
            raise BypassedError("odd-form")
        headers[name] = matched[2].strip(b" ")
    disposition = _DISPOSITION.match(headers.pop(b"content-disposition", b""))
    kind = headers.pop(b"content-type", b"")
    length = headers.pop(b"content-length", None)
    if disposition is None or headers or (length is not None and _wrong(length, value)):
        raise BypassedError("odd-form")
    name, filename = disposition[1].decode("ascii"), disposition[2]
    if filename is None and len(value) > LARGEST_FIELD:
        raise BypassedError("odd-form")
    return Field(name, value, filename, kind)


def _wrong(length: bytes, value: bytes) -> bool:
    return _LENGTH.match(length) is None or int(length) != len(value)
