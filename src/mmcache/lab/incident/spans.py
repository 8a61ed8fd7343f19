"""Generated spans of one night: three processes, some tenants, and an incident.

At 02:15 one of the three processes, `web-2`, begins to preprocess pictures otherwise: its signature changes, and what
was stored for pictures is not found there. At 02:16 the batch tenant `archive` begins to ask for ever new texts, a
flood of 84 minutes; its blocks push others' out. No figure here was measured on a real deployment.

    python -m mmcache.lab.incident --store night.duckdb --spans 200000
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmcache.dashboard.taken import Taken

MODALITIES = ("image", "text", "audio", "prompt")
INPUTS = (6000, 20000, 1500, 8000)
"""Different inputs of a modality."""
COST_MS = (74.0, 8.5, 210.0, 950.0)
SIZE = (197_000, 1_600, 96_000, 2_400)
ROUTES = ("/v1/embeddings", "/v1/embeddings", "/v1/audio/transcriptions", "/v1/chat/completions")
TENANTS = ("shop", "search", "newsroom", "clinic", "archive")
SHARES = (0.44, 0.27, 0.17, 0.08, 0.04)
REGIONS = ("eu-west", "us-east", "ap-south")
INSTANCES = ("web-1", "web-2", "web-3")
CLIENTS = ("openai-python/2.8", "openai-node/6.2", "curl/8.5")
ARCHIVE = 4
CHANGED = 1
"""Of `INSTANCES`, the one whose signature changes."""
SWAP_AT, FLOOD_AT, FLOOD_ENDS = 2.25 * 3600, 2.25 * 3600 + 60, 3.0 * 3600 + 2400
"""Seconds after midnight."""
FLOOD = 0.4
"""Lookups of the flood, for each of all others."""
CHUNK = 25_000
_SIGNATURES = ("a3f19c0d5be27784", "5d01c9e8842f6b3a", "91b7e2f04ac3d658", "0c64fa9d17b83e25", "e8427db6503f19ac")
"""Of the modalities; the last is what pictures have after the change."""
_MADE: tuple[dict[str, str], ...] = (
    {"model_version": "clip-vit-b16@4", "preprocess": "resize=224,crop=centre", "dtype": "float16"},
    {"model_version": "e5-small@3", "tokenizer": "e5@1", "dtype": "float16"},
    {"model_version": "whisper-base@1", "preprocess": "mel80", "dtype": "float16"},
    {"model_version": "vlm-2b@7", "decoder": "greedy"},
    {"model_version": "clip-vit-b16@4", "preprocess": "resize=256,crop=centre", "dtype": "float16"},
)
_FIELDS = [json.dumps({f"cache.signature.{name}": said for name, said in made.items()}) for made in _MADE]


@dataclass(frozen=True)
class Night:
    """How many spans, over how many hours from midnight on, and the seed of chance."""

    midnight: float
    """Unix seconds."""
    spans: int = 200_000
    hours: float = 6.0
    seed: int = 0
    weight: float = 100.0
    """Each stands for so many: a sampling ratio of 1 %."""

    def chunks(self) -> Iterator[list[Taken]]:
        """All spans, about in the order of time."""
        rng = np.random.default_rng(self.seed)
        lookups = max(int(self.spans / 2.5), 10)  # a request has 2 spans, a miss brings 2 more
        made = 0
        for times, flood in self._arrivals(rng, lookups):
            chunk = self._chunk(rng, times, flood)
            made += len(chunk)
            yield chunk if made <= self.spans else chunk[: len(chunk) - (made - self.spans)]
            if made >= self.spans:
                return

    def _arrivals(self, rng: Any, lookups: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Times, and which are of the flood, in order."""
        length = self.hours * 3600
        flooded = max(min(FLOOD_ENDS, length) - FLOOD_AT, 0.0) * FLOOD
        ordinary = lookups * length / (length + flooded)
        pieces = max(int(lookups // CHUNK), 24)
        for piece in range(pieces):
            start, end = length * piece / pieces, length * (piece + 1) / pieces
            usual = rng.poisson(ordinary / pieces)
            overlap = max(min(end, FLOOD_ENDS) - max(start, FLOOD_AT), 0.0)
            more = rng.poisson(ordinary / length * FLOOD * overlap)
            first = min(max(start, FLOOD_AT), FLOOD_ENDS)
            last = max(min(end, FLOOD_ENDS), first)
            times = np.concatenate([rng.uniform(start, end, usual), rng.uniform(first, last, more)])
            flood = np.arange(len(times)) >= usual
            order = np.argsort(times, kind="stable")
            if len(order):
                yield times[order], flood[order]

    def _chunk(self, rng: Any, times: NDArray[Any], flood: NDArray[Any]) -> list[Taken]:
        n = len(times)
        tenant = np.where(flood, ARCHIVE, rng.choice(len(TENANTS), n, p=SHARES))
        modality = np.where(flood, 1, rng.choice(len(MODALITIES), n, p=(0.4, 0.35, 0.1, 0.15)))
        instance, region = rng.integers(0, len(INSTANCES), n), rng.choice(len(REGIONS), n, p=(0.5, 0.35, 0.15))
        client = rng.integers(0, len(CLIENTS), n)
        rank = (np.array(INPUTS)[modality] ** rng.random(n) ** 1.2).astype(np.int64)
        rank = np.where(flood, 10_000_000 + rng.integers(0, 2**40, n), rank)
        swapped = (instance == CHANGED) & (modality == 0) & (times >= SWAP_AT)
        reason = self._reasons(rng, times, flood, swapped, rank, modality)
        ids = rng.integers(1, 2**63, (n, 5)).astype(np.uint64).tolist()
        start = ((self.midnight + times) * 1e6).astype(np.int64).tolist()
        speed = rng.lognormal(0, 0.3, n).tolist()
        columns = (tenant, modality, instance, region, client, rank, swapped)
        found: list[Taken] = []
        for row in zip(start, speed, ids, reason, *(column.tolist() for column in columns), strict=True):
            self._request(found, *row)
        return found

    def _reasons(self, rng: Any, times: Any, flood: Any, swapped: Any, rank: Any, modality: Any) -> list[str]:
        """Empty = a hit."""
        draw, why = rng.random(len(times)), rng.random(len(times))
        cold = 0.04 + 0.22 * (rank / np.array(INPUTS)[modality]).clip(0, 1)
        squeezed = (times >= FLOOD_AT + 300) & (times < FLOOD_ENDS + 900)
        learnt = 0.9 * np.exp(-(times - SWAP_AT).clip(0) / 5400)  # it stores what it computes, under the new one
        found = []
        for at in range(len(times)):
            if flood[at]:
                found.append("absent" if draw[at] < 0.97 else "")
            elif swapped[at] and draw[at] < learnt[at]:
                found.append("signature")
            elif draw[at] < cold[at]:
                found.append("absent" if why[at] < 0.7 else "expired" if why[at] < 0.95 else "bypassed")
            elif squeezed[at] and draw[at] < cold[at] + 0.07:
                found.append("evicted")
            else:
                found.append("")
        return found

    def _request(
        self, found: list[Taken], start: int, speed: float, ids: list[int], reason: str, tenant: int, modality: int,
        instance: int, region: int, client: int, rank: int, swapped: bool,
    ) -> None:  # fmt: skip
        hit = not reason
        trace, cost = (ids[0], ids[1]), COST_MS[modality] * speed
        realm = modality + 10 * tenant
        content = mixed(realm + 1, rank), mixed(realm + 101, rank)
        sheet = 4 if swapped else modality
        signature, origin = int(_SIGNATURES[sheet], 16), _ORIGINS[instance]
        key = content[0] ^ (signature | 1)
        detail = {"signature": f"stored under {_SIGNATURES[modality]}", "evicted": "memory"}.get(reason, "")
        tier = ("memory" if rank % 5 else "disk") if hit else ""
        took = int(180 * speed) if tier == "memory" else int(900 * speed)
        whole = took + 700 + (0 if hit else int(cost * 1000))
        named = (MODALITIES[modality], ROUTES[modality], TENANTS[tenant], REGIONS[region])
        place = ("mmcache", INSTANCES[instance])
        outcome = "hit" if hit else "miss"

        def span(name: str, number: int, parent: int, at: int, length: int, **more: Any) -> Taken:
            given: dict[str, Any] = {
                "kind": 1, "status": 0, "lookup": False, "hit": False, "axes": (*named, "", *place, "", ""),
                "tier": "", "client": CLIENTS[client], "detail": "", "key": 0, "content": (0, 0), "signature": 0,
                "saved_ms": 0.0, "bytes": 0, "fields": "", "rest": None,
            }  # fmt: skip
            return Taken(
                trace=trace, span=number, parent=parent, start_us=at, duration_us=length, name=name,
                weight=self.weight, origin=origin, **(given | more),
            )  # fmt: skip

        stored = {
            "key": key,
            "content": content,
            "signature": signature,
            "fields": _FIELDS[sheet],
            "bytes": SIZE[modality],
        }
        axes = (*named, "exact", *place, outcome, reason)
        asked = (*named, "", *place, outcome, reason)
        found.append(span(f"POST {ROUTES[modality]}", ids[2], 0, start, whole, kind=2, axes=asked, rest=_HTTP))
        found.append(
            span(
                "cache.lookup", ids[3], ids[2], start + 300, took, lookup=True, hit=hit, axes=axes, tier=tier,
                detail=detail, saved_ms=cost if hit else 0.0, rest=f'{{"cache.upstream.span_id":"{ids[2]:016x}"}}',
                **(stored if hit else stored | {"bytes": 0}),
            )
        )  # fmt: skip
        if not hit:
            begins = start + 300 + took
            rest = f'{{"cache.cost_ms":{cost:.3f},"cache.count":1}}'
            found.append(span("cache.compute", ids[4], ids[2], begins, int(cost * 1000), rest=rest))
            found.append(span("cache.put", ids[4] ^ 1, ids[2], begins + int(cost * 1000), 160, **stored))


_ORIGINS = [
    json.dumps({"service.name": "mmcache", "service.instance.id": name, "host.name": name, "process.pid": 4100 + at})
    for at, name in enumerate(INSTANCES)
]
_HTTP = json.dumps({"http.request.method": "POST", "http.response.status_code": 200})


def mixed(seed: int, number: int) -> int:
    """A number of 64 bits that looks like chance (splitmix64)."""
    mask = 0xFFFFFFFFFFFFFFFF
    x = (number * 0x9E3779B97F4A7C15 + seed * 0xD1B54A32D192ED03) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return (x ^ (x >> 31)) or 1
