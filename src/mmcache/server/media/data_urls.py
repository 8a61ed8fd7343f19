"""`data:` addresses and bare base64 (RFC 2397, RFC 4648): every spelling → bytes, and one plain spelling of them.

Decoders differ in what they forgive: one skips the URL-safe `-`, another reads it, a third refuses. So whatever is not
spelt plainly is sent upstream in the plain spelling of the bytes that the key describes, and never as it came.
"""

from __future__ import annotations

import binascii
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

_HEAD = re.compile(r"[\x21-\x7e ]{0,512}\Z")
_MIME = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+*-]{1,100}\Z")
_PARAMETER = re.compile(r"([a-z0-9!#$&^_.+-]{1,100})=([A-Za-z0-9!#$&^_.+/:-]{1,200})\Z")
_SPACE = dict.fromkeys(map(ord, " \t\r\n\f"))
_URL_SAFE = str.maketrans("-_", "+/")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class OddSpellingError(ValueError):
    """Two readers may well see different bytes in it. Caught in this room."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What stood in a data URL, or in base64."""

    data: bytes
    plain: bool
    """Whether it is spelt as `encoded` and `data_url` would."""
    mime: str = ""
    """Type and subtype in lower case; empty where the address names none."""
    parameters: str = ""
    """Sorted, each with a `;` in front: `;rate=16000`."""


def is_data_url(text: str) -> bool:
    """Whether it begins like one."""
    return text.lstrip()[:5].lower() == "data:"


def read(url: str) -> Decoded:
    """A data URL's bytes. Raises `OddSpellingError`."""
    given, url = url, url.strip(" \t\r\n\f")
    head, comma, body = url[:1024].partition(",")
    if not comma or not is_data_url(head):
        raise OddSpellingError("no comma after at most 1024 characters")
    body = url[len(head) + 1 :]
    if not _HEAD.match(head):
        raise OddSpellingError("strange characters before the comma")
    mime, *parameters = (piece.strip() for piece in head[5:].split(";"))
    mime = mime.lower()
    if mime and not _MIME.match(mime):
        raise OddSpellingError("a strange media type")
    in_base64 = bool(parameters) and parameters[-1].lower() == "base64"
    named = _parameters(parameters[:-1] if in_base64 else parameters)
    if not in_base64:
        return Decoded(_percent(body), False, mime, named)
    found = decoded(body)
    plain = found.plain and url == given and head == f"data:{mime}{named};base64"
    return Decoded(found.data, plain, mime, named)


def decoded(text: str) -> Decoded:
    """The bytes of base64: padded or not, of either alphabet, with white space or percent-encoding.

    Raises `OddSpellingError` for anything else: other characters, both alphabets at once, padding in the middle, bits
    left over.
    """
    if not text.isascii():
        raise OddSpellingError("characters outside ASCII")
    plain = True
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except binascii.Error:
        plain, text = False, _tidied(text)
        try:
            data = binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error as error:
            raise OddSpellingError("no base64") from error
    if not data:
        raise OddSpellingError("no bytes")
    last = data[-(len(data) % 3 or 3) :]
    if binascii.b2a_base64(last, newline=False).decode() != text[-4:]:
        raise OddSpellingError("bits that say nothing are set in its last character")
    return Decoded(data, plain)


def encoded(data: bytes) -> str:
    """Plain base64: padded, in the standard alphabet."""
    return binascii.b2a_base64(data, newline=False).decode()


def data_url(mime: str, data: bytes) -> str:
    """The plain spelling. `mime` may have parameters behind it."""
    return f"data:{mime};base64,{encoded(data)}"


def _tidied(text: str) -> str:
    if "%" in text:
        if _BROKEN_ESCAPE.search(text):
            raise OddSpellingError("a percent sign that begins no escape")
        raw = unquote_to_bytes(text)
        if not raw.isascii():
            raise OddSpellingError("escapes outside ASCII")
        text = raw.decode()
    text = text.translate(_SPACE)
    if "-" in text or "_" in text:
        if "+" in text or "/" in text:
            raise OddSpellingError("two alphabets of base64 at once")
        text = text.translate(_URL_SAFE)
    bare = text.rstrip("=")
    if len(bare) % 4 == 1 or len(text) - len(bare) > 2:
        raise OddSpellingError("a length that no base64 has")
    return bare + "=" * (-len(bare) % 4)


def _percent(body: str) -> bytes:
    if not body.isascii() or _BROKEN_ESCAPE.search(body):
        raise OddSpellingError("neither base64 nor percent-encoded")
    data = unquote_to_bytes(body)
    if not data:
        raise OddSpellingError("no bytes")
    return data


def _parameters(given: list[str]) -> str:
    found: dict[str, str] = {}
    for piece in given:
        name, equals, value = piece.partition("=")
        name = name.strip().lower()
        matched = _PARAMETER.match(f"{name}{equals}{value.strip()}")
        if matched is None or name in found or name == "base64":
            raise OddSpellingError("a strange parameter")
        found[name] = matched[2]
    return "".join(f";{name}={value}" for name, value in sorted(found.items()))
