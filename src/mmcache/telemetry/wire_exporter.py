"""The SDK's exporter of spans by OTLP over HTTP, with an encoder that takes a fraction of the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from mmcache.telemetry.wire import Wire

_LARGEST = 32 << 20
"""Bytes of a request; a larger one is left to the SDK, which knows its limit."""


class WireSpanExporter(OTLPSpanExporter):  # type: ignore[misc]
    """Connections, retries, headers and compression are the SDK's; where its insides are others, so is the encoder."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._wire = Wire()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter`."""
        send = getattr(getattr(self, "_client", None), "export", None)
        if send is None or self._shutdown:
            return super().export(spans)
        encoded = self._wire.encode(spans)
        if len(encoded) > _LARGEST:
            return super().export(spans)
        return SpanExportResult.SUCCESS if send(encoded).success else SpanExportResult.FAILURE
