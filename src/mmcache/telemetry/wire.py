"""Finished spans as OTLP bytes, put together from parts that are remembered: most of what spans say, many say.

The layout is that of opentelemetry-proto's `ExportTraceServiceRequest`. Spans with events or links, or with values
that are lists, are left to the SDK's own encoder: two encoded requests one behind the other are one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode

_VALUES = 256
"""Values of one attribute that are remembered; of one that has more, the others are encoded each time."""
_LONGEST = 256
"""Bytes of what is remembered."""
_NAMES = 512
_HEADS = 4096
_two_times = struct.Struct("<BQBQ").pack
_double = struct.Struct("<Bd").pack
_bare_double = struct.Struct("<d").pack
_flags = struct.Struct("<HI").pack
_FLAGS = (16 << 3 | 5) & 0x7F | 0x80 | ((16 << 3 | 5) >> 7) << 8
_LOCAL, _REMOTE = _flags(_FLAGS, 0x100), _flags(_FLAGS, 0x300)
_KINDS = {kind: bytes((0x30, kind.value + 1)) for kind in SpanKind}
_ENDS = {code: b"\x7a\x02\x18" + bytes((code.value,)) if code.value else b"\x7a\x00" for code in StatusCode}


def varint(number: int) -> bytes:
    """An unsigned number, as protobuf has it."""
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, a text or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def _value(value: object) -> bytes:
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise ValueError("not of 64 bits")
        return b"\x18" + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    if isinstance(value, float):
        return _double(4 << 3 | 1, value)
    if isinstance(value, str):
        return field(1, value.encode())
    raise TypeError(type(value).__name__)


class Wire:
    """Encodes for one exporter; one thread at a time."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[object, bytes]] = {}
        self._names: dict[str, bytes] = {}
        self._heads: dict[tuple[str, int], bytes] = {}

    def encode(self, spans: Sequence[ReadableSpan]) -> bytes:
        """An `ExportTraceServiceRequest`."""
        simple: dict[tuple[int, int], tuple[ReadableSpan, list[bytes]]] = {}
        others: list[ReadableSpan] = []
        for span in spans:
            try:
                encoded = None if span.events or span.links else self._span(span)
            except (TypeError, ValueError, struct.error):
                encoded = None
            if encoded is None:
                others.append(span)
                continue
            of = id(span.resource), id(span.instrumentation_scope)
            if of not in simple:
                simple[of] = span, []
            simple[of][1].append(encoded)
        parts = [self._group(span, encoded) for span, encoded in simple.values()]
        if others:
            parts.append(encode_spans(others).SerializeToString())
        return b"".join(parts)

    def _group(self, span: ReadableSpan, spans: list[bytes]) -> bytes:
        """All of one resource and scope."""
        resource, scope = span.resource, span.instrumentation_scope
        of_scope = b""
        if scope is not None:
            told = b"".join(field(3, part) for part in _listed(scope.attributes))
            named = field(1, scope.name.encode()) + (field(2, scope.version.encode()) if scope.version else b"")
            of_scope = field(1, named + told)
        schema = field(3, scope.schema_url.encode()) if scope is not None and scope.schema_url else b""
        inside = field(1, _resource(resource)) + field(2, of_scope + b"".join(spans) + schema)
        return field(1, inside + (field(3, resource.schema_url.encode()) if resource.schema_url else b""))

    def _span(self, span: ReadableSpan) -> bytes:
        """As a field of `ScopeSpans`."""
        context, parent, status = span.context, span.parent, span.status
        if span.dropped_attributes or status.description:
            raise ValueError("not simple")
        parts = [
            b"\x0a\x10", context.trace_id.to_bytes(16, "big"), b"\x12\x08", context.span_id.to_bytes(8, "big"),
        ]  # fmt: skip
        if context.trace_state:
            parts.append(field(3, context.trace_state.to_header().encode()))
        if parent is not None:
            parts += (b"\x22\x08", parent.span_id.to_bytes(8, "big"))
        parts.append(self._name(span.name))
        parts.append(_KINDS[span.kind])
        parts.append(_two_times(7 << 3 | 1, span.start_time, 8 << 3 | 1, span.end_time))
        texts = self._texts
        for name, value in span.attributes.items():
            known = texts.get(name)
            kind = type(value)
            said = known.get((kind, value)) if known is not None else None
            parts.append(self._attribute(name, kind, value) if said is None else said)
        parts.append(_ENDS[status.status_code])
        parts.append(_REMOTE if parent is not None and parent.is_remote else _LOCAL)
        return field(2, b"".join(parts))

    def _name(self, name: str) -> bytes:
        said = self._names.get(name)
        if said is None:
            said = field(5, name.encode())
            if len(self._names) < _NAMES and len(said) <= _LONGEST:
                self._names[name] = said
        return said

    def _attribute(self, name: str, kind: type, value: object) -> bytes:
        if kind is str:
            raw: bytes = value.encode()  # type: ignore[attr-defined]
            said = self._head(name, len(raw)) + raw
        elif kind is float:
            said = self._head(name, -1) + _bare_double(value)
        else:
            said = field(9, field(1, name.encode()) + field(2, _value(value)))
        if (kind is str or kind is bool) and len(said) <= _LONGEST:
            known = self._texts.get(name)
            if known is None and len(self._texts) < _NAMES:
                known = self._texts[name] = {}
            if known is not None and len(known) < _VALUES:
                known[kind, value] = said
        return said

    def _head(self, name: str, length: int) -> bytes:
        """All of an attribute before its value: a text of so many bytes, or (-1) a double."""
        head = self._heads.get((name, length))
        if head is None:
            value = _double(4 << 3 | 1, 0.0) if length < 0 else field(1, bytes(length))
            whole = field(9, field(1, name.encode()) + field(2, value))
            head = whole[: len(whole) - (8 if length < 0 else length)]
            if len(self._heads) < _HEADS and len(head) <= _LONGEST:
                self._heads[name, length] = head
        return head


def _listed(attributes: Any) -> list[bytes]:
    return [field(1, name.encode()) + field(2, _value(value)) for name, value in (attributes or {}).items()]


def _resource(resource: Resource) -> bytes:
    return b"".join(field(1, part) for part in _listed(resource.attributes))
