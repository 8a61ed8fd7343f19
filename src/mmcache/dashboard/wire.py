"""OTLP/HTTP: bodies in, messages out; protobuf and JSON, gzip; whatever is no such message is refused in its words.

As the OTLP specification 1.x says: a refusal is a `google.rpc.Status` in the encoding of the request, 400 is not to be
sent again, 429 and 503 are, after `Retry-After`.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from mmcache.dashboard.weighing import heavy
from mmcache.model.errors import DashboardError

PROTOBUF, JSON = "application/x-protobuf", "application/json"
SIGNALS: dict[str, tuple[Any, Any, str]] = {
    "traces": (ExportTraceServiceRequest, ExportTraceServiceResponse, "rejected_spans"),
    "metrics": (ExportMetricsServiceRequest, ExportMetricsServiceResponse, "rejected_data_points"),
    "logs": (ExportLogsServiceRequest, ExportLogsServiceResponse, "rejected_log_records"),
}
_CODES = {400: 3, 401: 16, 404: 5, 413: 8, 415: 3, 429: 8, 503: 14}
"""Of gRPC, by HTTP status; 13 = internal."""


class RefusedError(DashboardError):
    """A body that is not taken."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message, status=status, code="otlp")


def encoding(content_type: str) -> str:
    """`PROTOBUF` or `JSON`. Raises `RefusedError` (415): a web page cannot send either without asking first."""
    kind = content_type.split(";")[0].strip().lower()
    if kind in (PROTOBUF, JSON):
        return kind
    raise RefusedError(f"OTLP comes as {PROTOBUF} or {JSON}", 415)


def inflated(body: bytes, content_encoding: str, most: int) -> bytes:
    """The body without gzip. Raises `RefusedError`."""
    kind = content_encoding.strip().lower()
    if kind in ("", "identity"):
        return body
    if kind != "gzip":
        raise RefusedError("a body is compressed by gzip, or not at all", 415)
    parts, size, rest = [], 0, body
    while rest:
        inflater = zlib.decompressobj(wbits=31)
        try:
            parts.append(inflater.decompress(rest, most - size + 1))
        except zlib.error as error:
            raise RefusedError(f"the body is no gzip: {error}") from error
        size += len(parts[-1])
        if size > most:
            raise RefusedError(f"the body inflates to more than {most} bytes; send smaller batches", 413)
        if not inflater.eof:
            raise RefusedError("the body's gzip breaks off")
        rest = inflater.unused_data
    return b"".join(parts)


def message(signal: str, body: bytes, kind: str) -> Any:
    """The request. Raises `RefusedError`."""
    if heavy(body, kind == JSON):
        raise RefusedError("a body has at most 100 000 spans; send smaller batches", 413)
    request = SIGNALS[signal][0]()
    try:
        if kind == PROTOBUF:
            request.MergeFromString(body)
            return request
        given = msgspec.json.decode(body)
        if not isinstance(given, dict):
            raise RefusedError("the body is no JSON object")
        if signal == "traces":
            _identified(given)
        return json_format.ParseDict(given, request, ignore_unknown_fields=True)
    except (
        DecodeError, json_format.ParseError, msgspec.DecodeError, ValueError, TypeError, AttributeError, RecursionError
    ) as error:  # fmt: skip
        raise RefusedError(f"the body is no OTLP {signal}: {str(error)[:200]}") from error


def _identified(given: Mapping[str, Any]) -> None:
    """Identifiers are hex in OTLP's JSON, and base64 in protobuf's."""
    for group in _lists(given, "resourceSpans"):
        for scope in _lists(group, "scopeSpans"):
            for span in _lists(scope, "spans"):
                for one in (span, *_lists(span, "links")):
                    for name in ("traceId", "spanId", "parentSpanId"):
                        if name in one:
                            one[name] = _base64(one[name])


def _lists(given: Any, name: str) -> list[Any]:
    found = given.get(name) if isinstance(given, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _base64(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    try:
        return base64.b64encode(binascii.unhexlify(text)).decode()
    except (binascii.Error, ValueError):
        return ""


def answer(signal: str, kind: str, refused: int, why: str) -> bytes:
    """The response to what was taken, all or in part."""
    response = SIGNALS[signal][1]()
    if refused:
        setattr(response.partial_success, SIGNALS[signal][2], refused)
        response.partial_success.error_message = why
    return _encoded(response, kind)


def refusal(status: int, text: str, kind: str) -> bytes:
    """A `Status`."""
    return _encoded(Status(code=_CODES.get(status, 13), message=text), kind)


def _encoded(said: Any, kind: str) -> bytes:
    if kind == JSON:
        return str(json_format.MessageToJson(said, indent=None)).encode()
    encoded: bytes = said.SerializeToString()
    return encoded
