"""Say what the cache does: spans and metrics by OpenTelemetry, and text for Prometheus."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mmcache import Cache
from mmcache.telemetry import attributed, instrument, render

# A program sends to a receiver, `instrument(cache, otlp="http://localhost:4318")`. Here everything stays in memory.
spans, numbers = InMemorySpanExporter(), InMemoryMetricReader()
tracers, meters = TracerProvider(), MeterProvider([numbers])
tracers.add_span_processor(SimpleSpanProcessor(spans))

with Cache(memory="64MiB") as cache:
    embed = cache.wrap(lambda text: [float(len(text))], modality="text", signature="length-1", guard=False)
    with instrument(cache, tracer_provider=tracers, meter_provider=meters, sample=1.0):
        for region, texts in (("eu-west", ["a cat", "a cat", "a dog"]), ("us-east", ["a cat", "a bird"])):
            with attributed(route="/embed", region=region):
                for text in texts:
                    embed(text)

    found = [span for span in spans.get_finished_spans() if span.name == "cache.lookup"]
    for span in found:
        told = span.attributes or {}
        print(told["cache.client.region"], told["cache.outcome"], told.get("cache.miss.reason", ""))
    assert len(found) == 5

    text = render(cache).decode()  # what `mmcache serve` answers at /metrics; needs no package
    lines = [line for line in text.splitlines() if line.startswith("mmcache_lookups_total")]
    print(*lines, sep="\n")
    assert sum(float(line.rpartition(" ")[2]) for line in lines) == 5
