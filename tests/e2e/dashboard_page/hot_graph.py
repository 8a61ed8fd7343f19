"""The graph that the page is tested on: four communities in two processes, one new, one fading, one gone, and keys of
none. Made by rule, not by chance."""

from __future__ import annotations

from typing import Any

AT = 1_773_540_000.0
"""When the views came, Unix seconds."""
SIZES = {"1-aaaaaaaa": 18, "2-aaaaaaaa": 14, "2-bbbbbbbb": 9, "7-bbbbbbbb": 6}
STATES = ["living", "living", "appeared", "fading"]
ALONE = 4
MODALITIES, TENANTS = ["text", "image", "speech"], ["shop", "search"]
PROCESSES = [{"service": "mmcache", "instance": "web-1"}, {"service": "mmcache", "instance": "web-2"}]


def key(number: int) -> str:
    return f"{(number + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF:016x}"


def node(number: int, community: str | None) -> dict[str, Any]:
    heat = 400.0 / (number + 2)
    attention, divergence = 2.4 / (1 + number % 5), (number % 4 - 1) * 0.4
    return {
        "key": key(number), "score": heat / 40 + attention + divergence,
        "parts": {"heat": heat / 40, "attention": attention, "divergence": divergence}, "heat": heat,
        "modality": MODALITIES[number % 3], "tenant": TENANTS[number % 2], "tier": ["memory", "disk", ""][number % 3],
        "bytes": 3000 * (1 + number % 40), "expected_hours": None if number % 5 == 4 else 2.0 + 9 * (number % 9),
        "confidence": None if number % 5 == 4 else 0.5 + 0.05 * (number % 9), "community": community,
        "instances": 1 + number % 2,
    }  # fmt: skip


def communities() -> list[dict[str, Any]]:
    said = [
        {"id": name, "number": int(name.split("-")[0]), "service": "mmcache", "size": size * 3, "weight": size * 9.0,
         "instance": "web-1" if name.endswith("a") else "web-2", "instances": 1, "state": state,
         "since": AT - 900 * (at + 1), "until": None, "merged": ["4-aaaaaaaa"] if at == 0 else []}
        for at, ((name, size), state) in enumerate(zip(SIZES.items(), STATES, strict=True))
    ]  # fmt: skip
    gone = said[1] | {"id": "5-aaaaaaaa", "number": 5, "state": "faded", "since": AT - 3300, "until": AT - 1500}
    return [*said, gone | {"size": 12, "weight": 1.0, "merged": []}]


def graph(query: dict[str, list[str]]) -> dict[str, Any]:
    """As `/api/v1/graph` says it; filters by tenant, and by process all or nothing of its communities."""
    names: list[str | None] = [name for name, size in SIZES.items() for _ in range(size)]
    names = sorted(names, key=lambda name: str(name)[::-1]) + [None] * ALONE
    order = sorted(range(len(names)), key=lambda at: (at * 7) % len(names))
    nodes = [node(number, names[at]) for number, at in enumerate(order)]
    edges = []
    for at, one in enumerate(nodes):
        mates = [to for to, other in enumerate(nodes) if other["community"] == one["community"] and to != at]
        if one["community"] is not None:
            edges += [(at, mates[(at * step) % len(mates)], 9.0 / (1 + at % 6) / step) for step in (1, 2)]
        if at % 9 == 0:
            edges.append((at, (at * 5 + 3) % len(nodes), 0.6))
    if only := query.get("tenant"):
        kept = [at for at, one in enumerate(nodes) if one["tenant"] in only]
        places = {at: place for place, at in enumerate(kept)}
        edges = [(places[a], places[b], w) for a, b, w in edges if a in places and b in places]
        nodes = [nodes[at] for at in kept]
    shown = [one for one in PROCESSES if one["instance"] in query.get("instance", [one["instance"]])]
    return {
        "at": AT, "tracked_keys": 4300, "tracked_edges": 9100, "nodes": nodes,
        "instances": [
            one | {"at": AT, "keys": 30, "tracked_keys": 2150, "tracked_edges": 4550, "seconds": 0.04,
                   "shown": one in shown}
            for one in PROCESSES
        ],
        "edges": [{"source": a, "target": b, "weight": w} for a, b, w in sorted(edges, key=lambda e: -e[2])],
        "communities": communities(),
    }  # fmt: skip


def nothing() -> dict[str, Any]:
    """No process says its hot keys."""
    return {
        "at": None, "instances": [], "tracked_keys": 0, "tracked_edges": 0, "nodes": [], "edges": [], "communities": [],
    }  # fmt: skip
