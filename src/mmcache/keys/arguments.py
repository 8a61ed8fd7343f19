"""What else a call depends on: extra arguments, and inputs of several parts."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from mmcache.keys.framing import DIGEST_BYTES, framed
from mmcache.model.errors import InvalidInputError

if TYPE_CHECKING:
    from mmcache.keys.content import Content

DEEPEST = 64
"""Nesting beyond this is refused; a structure that contains itself ends here too."""


def canonical_arguments(arguments: Sequence[Any] = (), keywords: Mapping[str, Any] | None = None) -> bytes:
    """Positional and keyword arguments as bytes: equal exactly when the calls are equal.

    Allowed: None, bool, int, float, str, bytes, and lists, tuples and dicts (string keys, any order) of them. Types
    count (1, 1.0 and True differ; so do 0.0 and -0.0). Raises `InvalidInputError` for anything else: an object whose
    identity is not its content must not enter a key.
    """
    positional = [_encode(value, f"argument {place}", 0) for place, value in enumerate(arguments)]
    named = _encode(dict(keywords or {}), "", 0)
    return framed("arguments", framed("positional", *positional), named)


def _encode(value: Any, where: str, depth: int) -> bytes:
    if depth > DEEPEST:
        raise InvalidInputError(f"{where} is nested deeper than {DEEPEST}")
    kind = type(value)  # exactly: a subclass (an enum, numpy.float64) may mean more than its base's value
    if value is None:
        return framed("none")
    if kind is bool:
        return framed("bool", b"\1" if value else b"\0")
    if kind is int:
        return framed("int", hex(value).encode())
    if kind is float:
        return framed("float", struct.pack("<d", value))
    if kind is str:
        try:
            return framed("str", value.encode())
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"{where} holds a lone surrogate; pass valid Unicode") from error
    if kind is bytes:
        return framed("bytes", value)
    if kind in (list, tuple):
        return framed(kind.__name__, *(_encode(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)))
    if kind is dict:
        return framed("dict", *_items(value, where, depth + 1))
    raise InvalidInputError(
        f"{where or 'an argument'} is a {kind.__module__}.{kind.__qualname__}, which has no canonical bytes; pass "
        "None, bool, int, float, str, bytes, lists, tuples and dicts, or bind it before wrapping and name it in the "
        "signature"
    )


def _items(mapping: dict[Any, Any], where: str, depth: int) -> list[bytes]:
    for name in mapping:
        if type(name) is not str:
            raise InvalidInputError(f"{where or 'keywords'} has a key that is not a string: {name!r}")
    return [
        part
        for name in sorted(mapping)
        for part in (_encode(name, "a key", depth), _encode(mapping[name], f"{where}.{name}".lstrip("."), depth))
    ]


def join(contents: Sequence[Content], labels: Sequence[str]) -> bytes:
    """The 16-byte digest of an input of several parts (a picture and words). Order, labels and modalities count.

    Unkeyed: the parts' digests are keyed already. Raises `InvalidInputError` unless there is one label a part.
    """
    if len(contents) != len(labels):
        raise InvalidInputError(f"{len(contents)} parts need as many labels, got {len(labels)}")
    parts = [
        framed("part", label.encode(), content.modality.encode(), content.digest)
        for content, label in zip(contents, labels, strict=True)
    ]
    return blake3(framed("joined", *parts)).digest(length=DIGEST_BYTES)
