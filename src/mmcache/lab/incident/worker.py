"""One of the rehearsal's processes: a real cache in front of a function, which tells a real dashboard by OTLP.

Orders come as lines of JSON on stdin, one is answered before the next: `{"do": "round", …}`, `{"do": "swap"}`.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmcache import Cache
from mmcache.settings import TelemetrySettings
from mmcache.telemetry import Telemetry, attributed

TENANTS = ("shop", "search")
"""Whose users wait for an answer."""
BATCH = "batch"
ROUTES = {"shop": "/v1/embeddings", "search": "/v1/rerank", BATCH: "/v1/embeddings"}
REGIONS = ("eu-west", "us-east")
INPUTS = 1200
"""That each of the two tenants asks for again and again."""
OLD, NEW = "e5-small@3", "e5-small@4"
FRESH = 0.06
"""Of the lookups of those two: inputs that nobody asked for before."""
WIDTH = 256
PATIENCE_SECONDS, FLUSHES = 120.0, 5
"""For one request to the receiver, which shares a busy machine; and how often what is left is waited for."""


def embed(text: str) -> NDArray[np.float32]:
    """Stands for a model: what it gives depends on the text alone."""
    return np.random.default_rng(zlib.crc32(text.encode())).standard_normal(WIDTH).astype(np.float32)


class Worker:
    """Its cache, with one function in front per tenant."""

    def __init__(self, root: str, instance: str, otlp: str, memory: str) -> None:
        self._name = instance
        self.cache = Cache(root, memory=memory, disk="1GiB")
        self._serve(OLD)
        self._warm()
        settings = TelemetrySettings(
            otlp, sample=1.0, spans_per_second=1e6, service="encoders", instance=instance, interval=3600.0,
            timeout_seconds=PATIENCE_SECONDS,
        )  # fmt: skip
        self.watch = Telemetry(self.cache, settings)

    def _serve(self, version: str) -> None:
        self._encode = {
            tenant: self.cache.wrap(embed, modality="text", signature=version, tenant=tenant, guard=False)
            for tenant in (*TENANTS, BATCH)
        }

    def _warm(self) -> None:
        for tenant in TENANTS:
            for number in range(INPUTS):
                self._encode[tenant](f"{tenant} {number}")

    def round(self, number: int, lookups: int, batch: int) -> dict[str, int]:
        """So many lookups of users and of the batch, in an order of chance; told to the dashboard before it ends."""
        rng = np.random.default_rng([number, zlib.crc32(self._name.encode())])
        asked = [*self._users(rng, number, lookups), *self._batch(number, batch)]
        for place in rng.permutation(len(asked)):
            tenant, text = asked[place]
            region = REGIONS[int(rng.random() < 0.4)]
            with attributed(route=ROUTES[tenant], region=region):
                self._encode[tenant](text)
        sent = any(self.watch.flush() for _ in range(FLUSHES))
        return {"lookups": len(asked), "sent": int(sent), "dropped": self.watch.dropped}

    def _users(self, rng: Any, number: int, lookups: int) -> Iterator[tuple[str, str]]:
        for place in range(lookups):
            tenant = TENANTS[int(rng.random() < 0.4)]
            if rng.random() < FRESH:
                yield tenant, f"{tenant} fresh {self._name} {number} {place}"
            else:
                yield tenant, f"{tenant} {int(INPUTS * rng.random() ** 1.3)}"

    def _batch(self, number: int, batch: int) -> Iterator[tuple[str, str]]:
        few = batch <= 20
        for place in range(batch):  # usually the same few again, in a flood what nobody asked for before
            yield BATCH, f"batch {place // 2}" if few else f"batch {self._name} {number} {place}"

    def swap(self) -> dict[str, str]:
        """The model is another one from now on."""
        self._serve(NEW)
        return {"version": NEW}


def main() -> int:
    """Until stdin ends."""
    root, instance, otlp, memory = sys.argv[1:]
    worker = Worker(root, instance, otlp, memory)
    print(json.dumps({"ready": instance}), flush=True)
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        what = order.pop("do")
        said = worker.swap() if what == "swap" else worker.round(**order)
        print(json.dumps(said), flush=True)
    worker.watch.close()
    worker.cache.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
