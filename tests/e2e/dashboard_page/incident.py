"""The incident that the page is tested on, as the API would tell it: signatures change at 02:15 in one of three
processes, while a batch tenant floods. Made by rule, not by chance."""

from __future__ import annotations

import math
from typing import Any

from tests.e2e.dashboard_page import hot_graph

NIGHT = 1_773_450_000.0 - 1_773_450_000.0 % 86400 + 86400
"""A midnight (UTC), Unix seconds."""
BEGIN, MOVED, FLOODED, END = NIGHT + 3600, NIGHT + 2 * 3600 + 900, NIGHT + 2 * 3600 + 1500, NIGHT + 3 * 3600
MODALITIES = {"image": 60, "text": 90, "speech": 18}
TRACE, HIT_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736", "5c0a1f3577b34da6a3ce929d0e0e4737"
SERVER, LOOKUP, COMPUTE, PUT, UPSTREAM = (f"{n:016x}" for n in (0xA1, 0xB2, 0xC3, 0xD4, 0xE5))
KEY = "9f86d081884c7d65"
Answer = dict[str, Any]


def grid(query: dict[str, list[str]]) -> tuple[list[float], float]:
    """Starts of the buckets asked for, and their length in seconds."""
    begin, end = float(query["from"][0]), float(query["to"][0])
    points = int(query.get("points", ["60"])[0])
    step = (end - begin) / points
    return [begin + i * step for i in range(points)], step


def level(at: float, name: str) -> tuple[float, float]:
    """Hits and misses a second of one modality."""
    if not BEGIN <= at < END:
        return 0.0, 0.0
    swing = 1 + 0.12 * math.sin(at / 700 + len(name)) + 0.05 * math.sin(at / 67 * len(name))
    rate = MODALITIES[name] * swing
    miss = 0.06 + 0.015 * math.sin(at / 240 + len(name))
    if name == "image" and at >= MOVED:
        miss += 0.36 * min(1.0, (at - MOVED) / 120) * math.exp(-(at - MOVED) / 4000)
    flood = 70 * min(1.0, (at - FLOODED) / 240) if name == "text" and FLOODED <= at < FLOODED + 1200 else 0.0
    return rate * (1 - miss), rate * miss + flood


def ratio(query: dict[str, list[str]]) -> Answer:
    times, step = grid(query)
    names = list(MODALITIES) if query.get("by") == ["modality"] else ["all"]
    series = []
    for name in names:
        parts = [name] if name in MODALITIES else list(MODALITIES)
        levels = [[sum(part) for part in zip(*(level(t, m) for m in parts), strict=True)] for t in times]
        gap = name == "speech"
        hits = [0.0 if gap and i % 40 in (11, 12, 13) else h * step for i, (h, _) in enumerate(levels)]
        misses = [0.0 if gap and i % 40 in (11, 12, 13) else m * step for i, (_, m) in enumerate(levels)]
        share = [h / (h + m) if h + m else None for h, m in zip(hits, misses, strict=True)]
        series.append({"name": name, "hits": hits, "misses": misses, "ratio": share})
    return {"step": step, "t": times, "series": series}


def reasons(query: dict[str, list[str]]) -> Answer:
    times, step = grid(query)
    shares = {"absent": 0.55, "evicted": 0.2, "expired": 0.15, "abstained": 0.06, "timeout": 0.04}
    names = [*shares, "signature", "denied", "corrupt", "bypassed", "tier-down", "stale-lease"]
    out: dict[str, list[float]] = {name: [0.0] * len(times) for name in names}
    for i, t in enumerate(times):
        base = sum(level(t, m)[0] + level(t, m)[1] for m in MODALITIES) * 0.06 if BEGIN <= t < END else 0.0
        more = {m: max(0.0, level(t, m)[1] - MODALITIES[m] * 0.06) for m in MODALITIES}
        for name, share in shares.items():
            out[name][i] = base * share * step
        if t >= MOVED:
            out["signature"][i] = more["image"] * step
        if FLOODED <= t < FLOODED + 1200:
            out["evicted"][i] += more["text"] * 0.3 * step
            out["absent"][i] += more["text"] * 0.7 * step
    return {"step": step, "t": times, "reasons": out}


def saved(query: dict[str, list[str]]) -> Answer:
    times, step = grid(query)
    hits = [sum(level(t, m)[0] for m in MODALITIES) * step for t in times]
    seconds, sizes = [h * 0.021 for h in hits], [h * 48_000 for h in hits]
    total = sum(seconds)
    return {
        "step": step, "t": times, "seconds": seconds, "bytes": sizes, "total_seconds": total, "total_bytes": sum(sizes),
        "cost_avoided": total / 3600 * 2.5, "currency": "USD", "per_hour": 2.5,
    }  # fmt: skip


def tiers(query: dict[str, list[str]]) -> Answer:
    times, _ = grid(query)
    kinds = [("memory", 512 << 20, 0.93), ("disk", 20 << 30, 0.41), ("valkey", 4 << 30, 0.72)]
    out = []
    for tier, limit, share in kinds:
        for instance in ("a", "b", "c") if tier == "memory" else ("",):
            used = [limit * share * (0.97 + 0.03 * math.sin(t / 900 + ord((instance or "a")[0]))) for t in times]
            gone = [20 * (4 if FLOODED <= t < FLOODED + 1200 else 1) * (tier == "memory") for t in times]
            out.append(
                {"service": "mmcache", "instance": instance or "shared", "tier": tier, "used": used, "limit": limit,
                 "blocks": [u / 48_000 for u in used], "evictions": gone}
            )  # fmt: skip
    return {"t": times, "tiers": out}


def keys(query: dict[str, list[str]]) -> Answer:
    times, step = grid(query)
    out = []
    for n in range(16):
        key = KEY if n == 0 else f"{(n * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF:016x}"
        counts = [
            round(step * 3 / (n + 1) * (1 + math.sin(t / (300 + 40 * n) + n)) * (BEGIN <= t < END)) for t in times
        ]
        misses = sum(counts) * (0.3 if n % 4 == 0 else 0.05)
        out.append(
            {"key": key, "modality": list(MODALITIES)[n % 3], "tenant": ["shop", "search", "batch"][n % 3],
             "hits": sum(counts) - misses, "misses": misses, "counts": counts}
        )  # fmt: skip
    return {"t": times, "keys": out}


def request(n: int, at: float) -> Answer:
    miss = n % 3 != 2
    reason = ("signature" if n % 2 else "absent") if miss else ""
    return {
        "trace": TRACE if n == 0 else f"{n + 1:032x}", "span": LOOKUP if n == 0 else f"{n + 1:016x}", "start": at,
        "duration_ms": 0.04 + 0.01 * (n % 7), "name": "cache.lookup", "route": "/v1/embeddings",
        "tenant": ["shop", "search", "batch"][n % 3], "region": "eu-west", "client": "openai-python/2.8",
        "modality": list(MODALITIES)[n % 3], "outcome": "miss" if miss else "hit",
        "reason": reason or "signature" if n == 0 else reason,
        "detail": "stored as model_version=v1, asked for v2" if reason == "signature" or n == 0 else "",
        "key": KEY if n == 0 else f"{n * 7919:016x}", "service": "mmcache", "instance": "b" if n % 3 == 0 else "a",
    }  # fmt: skip


def requests(query: dict[str, list[str]]) -> Answer:
    begin, end = float(query["from"][0]), min(float(query["to"][0]), END)
    first = int(query.get("before", ["0"])[0])
    limit = int(query.get("limit", ["100"])[0])
    everything = 130
    wanted = [n for n in range(everything) if query.get("outcome") != ["miss"] or n % 3 != 2]
    out = [request(n, end - 0.2 - n * max(0.001, (end - begin) / everything)) for n in wanted[first : first + limit]]
    more = first + limit < len(wanted)
    return {"requests": out, "next": str(first + limit) if more else None}


def span(id_: str, parent: str | None, name: str, start: float, ms: float, **more: Any) -> Answer:
    kind = more.pop("kind", "internal")
    attributes = {"cache.modality": "image", "cache.tenant": "shop", "cache.route": "/v1/embeddings", **more}
    return {
        "span": id_, "parent": parent, "name": name, "kind": kind, "start": MOVED + 312.4 + start, "duration_ms": ms,
        "service": "mmcache", "instance": "b", "status": "unset", "attributes": attributes,
    }  # fmt: skip


def trace(name: str) -> Answer:
    look = {
        "cache.hit": name == HIT_TRACE, "cache.outcome": "hit" if name == HIT_TRACE else "miss",
        "cache.strategy": "exact", "cache.key.hash": KEY, "cache.signature": "77aa0b1c9d3e5f02",
        "cache.signature.model_version": "v1" if name == HIT_TRACE else "v2", "cache.client.region": "eu-west",
        "cache.sampling.weight": 100.0,
    }  # fmt: skip
    if name == HIT_TRACE:
        return {"trace": name, "spans": [span(LOOKUP, None, "cache.lookup", 0, 0.05, **look)]}
    look |= {"cache.miss.reason": "signature", "cache.miss.detail": "stored as model_version=v1, asked for v2"}
    return {
        "trace": name,
        "spans": [
            span(SERVER, None, "POST /v1/embeddings", 0, 48.2, kind="server"),
            span(LOOKUP, SERVER, "cache.lookup", 0.0011, 0.06, **look),
            span(COMPUTE, SERVER, "cache.compute", 0.0014, 45.1, **{"cache.cost_ms": 45.1, "cache.count": 1}),
            span(UPSTREAM, COMPUTE, "upstream POST /v1/embeddings", 0.0021, 43.9, kind="client"),
            span(PUT, SERVER, "cache.put", 0.0468, 0.4, **{"cache.bytes": 48_113, "cache.key.hash": KEY}),
        ],
    }


def explain(name: str) -> Answer:
    if name == HIT_TRACE:
        return {"verdict": "hit", "text": ["It hit, in memory."], "moved": [], "before": None,
                "spread": {"misses": 0, "instances": [], "since": None}}  # fmt: skip
    return {
        "verdict": "signature",
        "text": [
            "model_version: v1 → v2, since 02:15, in instance b only.",
            "The same input hit 14 minutes before in instance a, which still asks for v1.",
        ],
        "moved": [{"component": "model_version", "was": "v1", "now": "v2"}],
        "before": {"trace": HIT_TRACE, "span": LOOKUP, "when": MOVED - 540, "instance": "a"},
        "spread": {
            "misses": 7420,
            "instances": [
                {"instance": "a", "misses": 0, "hits": 9120}, {"instance": "b", "misses": 7420, "hits": 310},
                {"instance": "c", "misses": 0, "hits": 8990},
            ],
            "since": MOVED,
        },
    }  # fmt: skip


def causes(query: dict[str, list[str]]) -> Answer:
    begin, end = float(query["from"][0]), float(query["to"][0])
    return {
        "baseline": {"from": MOVED - 2700, "to": MOVED, "ratio": 0.941},
        "now": {"from": max(begin, MOVED), "to": end, "ratio": 0.706},
        "causes": [
            {"cause": "signature", "text": "Images miss in instance b: it asks for model_version v2, stored is v1",
             "misses": 41_800, "share": 0.56, "since": MOVED, "where": {"instance": "b", "modality": "image"},
             "examples": [{"trace": TRACE, "span": LOOKUP}],
             "moved": [{"component": "model_version", "was": "v1", "now": "v2"}]},
            {"cause": "flood", "text": "Tenant batch asks for 70 new texts a second, which nobody asked for before",
             "misses": 29_900, "share": 0.39, "since": FLOODED, "where": {"tenant": "batch", "modality": "text"},
             "examples": [{"trace": f"{2:032x}", "span": f"{2:016x}"}], "moved": []},
        ],
    }  # fmt: skip


def meta() -> Answer:
    return {
        "version": "0", "from": BEGIN, "to": END, "spans": 812_440, "bytes": 190 << 20, "limit_bytes": 2 << 30,
        "read_only": True,
        "axes": {
            "modality": list(MODALITIES), "route": ["/v1/embeddings"], "tenant": ["shop", "search", "batch"],
            "region": ["eu-west", "us-east"], "strategy": ["exact", "near"], "service": ["mmcache"],
            "instance": ["a", "b", "c"], "reason": ["absent", "evicted", "expired", "signature"],
        },
    }  # fmt: skip


def answer(path: str, query: dict[str, list[str]]) -> Answer | None:
    """What the API says at `/api/v1/PATH`; None = there is no such thing."""
    named = {"ratio": ratio, "reasons": reasons, "saved": saved, "tiers": tiers, "keys": keys, "requests": requests}
    if path in named or path == "causes":
        return (causes if path == "causes" else named[path])(query)
    if path == "graph":
        return hot_graph.graph(query)
    if path == "meta":
        return meta()
    if path.startswith("traces/"):
        return trace(path.split("/")[1])
    return explain(path.split("/")[1]) if path.startswith("explain/") else None
