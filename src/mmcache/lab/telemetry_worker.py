"""One process of the table `telemetry-cost`: `python -m mmcache.lab.telemetry_worker CONTENDER OTLP`.

It says `ready` when everything is stored; then one command a line on stdin, `WAY SECONDS`, and one line of JSON on
stdout: how many hits, wall seconds, process CPU seconds up to the last byte sent, blocks of memory kept, spans made.
The way `report` is one report of metrics; for others they go out every ten seconds, whoever's turn it is.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mmcache import Cache

MODEL = "toy-encoder 1.0"
BATCH = 64
CHUNK = {"peek": 2000, "get_or_compute": 2000, "text": 100, "picture": 10, "batch": 2, "async": 100}
"""Calls between two looks at the clock."""
RING = 5000
"""Hits after which the recency ring holds as many keys as it ever will."""
HITS = {"batch": BATCH}
"""Of a call; otherwise 1."""

Around = Callable[[], AbstractContextManager[object]]
"""What a user would put around a call."""


class Contender:
    """How the cache is watched: `off`, `on SHARE`, `otel SHARE` (a span around each call), `prometheus`."""

    def __init__(self, cache: Cache, kind: str, share: float, otlp: str) -> None:
        self.around: Around | None = None
        self.flush: Callable[[], object] = lambda: None
        self.made: Callable[[], int] = lambda: 0
        self.report: Callable[[], object] = lambda: None
        if kind == "on":
            from mmcache.telemetry import instrument

            watch = instrument(cache, otlp=otlp, sample=share)
            providers = watch._providers
            assert providers is not None
            sending = providers.sending
            self.made = lambda: sending.sent + sending.lost
            self.report = providers.meter.force_flush

            def flush() -> None:
                watch._spans.flush()
                providers._tracer.force_flush()

            self.flush = flush
        elif kind == "otel":
            self._otel(share, otlp)
        elif kind == "prometheus":
            self._prometheus()

    def _otel(self, share: float, otlp: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

        provider = TracerProvider(sampler=ParentBasedTraceIdRatio(share))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{otlp}/v1/traces")))
        tracer = provider.get_tracer("application")
        told = {"cache.hit": True, "cache.modality": "text", "cache.tenant": "default"}
        self.around = lambda: tracer.start_as_current_span("cache.lookup", attributes=told)
        self.flush = provider.force_flush

    def _prometheus(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram

        registry = CollectorRegistry()
        lookups = Counter("lookups", "Lookups.", ["outcome", "modality"], registry=registry)
        duration = Histogram("lookup_seconds", "Their duration.", ["outcome"], registry=registry)

        def around() -> AbstractContextManager[object]:
            lookups.labels("hit", "text").inc()
            timer: AbstractContextManager[object] = duration.labels("hit").time()
            return timer

        self.around = around


def ways(cache: Cache) -> dict[str, Callable[[], Any]]:
    """Hits of each way; everything is stored already. `async` gives an awaitable."""
    encode = cache.wrap(lambda text: np.zeros(384, np.float32), modality="text", signature=MODEL, guard=False)
    look = cache.wrap(lambda picture: np.zeros(384, np.float32), modality="image", signature=MODEL, guard=False)
    texts = [f"which of the {n} pictures has a red triangle in it?" for n in range(BATCH)]
    picture = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    encode.batch(texts)
    look(picture)
    key = encode.key(texts[0])
    for _ in range(RING):
        encode(texts[0])
    return {
        "peek": lambda: cache.peek(key),
        "get_or_compute": lambda: cache.get_or_compute(key, list),
        "text": lambda: encode(texts[0]),
        "picture": lambda: look(picture),
        "batch": lambda: encode.batch(texts),
        "async": lambda: cache.a.get_or_compute(key, list),
    }


def run(call: Callable[[], Any], around: Around | None, chunk: int, seconds: float) -> tuple[int, float]:
    """So many calls in so many seconds, about `seconds`. Without something around them there is no `with`."""
    count, began = 0, time.perf_counter()
    until = began + seconds
    while (now := time.perf_counter()) < until or not count:
        if around is None:
            for _ in range(chunk):
                call()
        else:
            for _ in range(chunk):
                with around():
                    call()
        count += chunk
    return count, now - began if count == 0 else time.perf_counter() - began


async def run_async(
    call: Callable[[], Awaitable[Any]], around: Around | None, chunk: int, seconds: float
) -> tuple[int, float]:
    """The async twin."""
    count, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds or not count:
        for _ in range(chunk):
            with nullcontext() if around is None else around():
                await call()
        count += chunk
    return count, time.perf_counter() - began


def main(kind: str, share: str, otlp: str) -> None:
    """Until stdin ends."""
    with Cache(memory="256MiB") as cache:
        calls = ways(cache)
        contender = Contender(cache, kind, float(share), otlp)
        print("ready", flush=True)
        for line in sys.stdin:
            way, seconds = line.split()
            fill = way.startswith("kept:")
            way = way.removeprefix("kept:")
            if fill:  # the ring's keys are this way's own
                until = RING // HITS.get(way, 1) + 1
                for _ in range(until if way != "async" else 0):
                    calls[way]()
            gc.collect()
            gc.disable()
            made, blocks, cpu = contender.made(), sys.getallocatedblocks(), time.process_time()
            if way == "report":
                contender.report()
                count, wall = 1, 1.0
            elif way == "async":
                count, wall = asyncio.run(run_async(calls[way], contender.around, CHUNK[way], float(seconds)))
            else:
                count, wall = run(calls[way], contender.around, CHUNK[way], float(seconds))
            contender.flush()
            cpu = time.process_time() - cpu
            gc.enable()
            gc.collect()
            hits = count * HITS.get(way, 1)
            kept = sys.getallocatedblocks() - blocks
            said = {"hits": hits, "wall": wall, "cpu": cpu, "kept": kept, "made": contender.made() - made}
            print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
