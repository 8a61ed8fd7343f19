"""Whatever a sender says are its hot keys: taken or refused, and every graph of it keeps its limits."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the dashboard's extra is not installed: pip install 'mmcache[dashboard]'")
pytest.importorskip("opentelemetry.proto")

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.dashboard.graph_world import full, logs_of, text

from mmcache.dashboard.graph_kept import Held
from mmcache.dashboard.graph_merge import merged
from mmcache.dashboard.graph_taken import views_of

WORDS = st.text(max_size=4) | st.sampled_from(["", "shop", "one", "\x00", "x" * 300])
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 1e308, -1e308])
WHOLE = st.integers(-3, 9) | st.sampled_from([2**53, 2**80, -(2**80)])
KEYS = st.fixed_dictionaries(
    {"key": st.sampled_from([f"{at:016x}" for at in range(1, 7)]), "score": NUMBERS},
    optional={
        "parts": st.dictionaries(WORDS, NUMBERS, max_size=3), "heat": NUMBERS, "modality": WORDS, "tenant": WORDS,
        "tier": WORDS, "bytes": WHOLE, "expected_hours": st.none() | NUMBERS, "confidence": st.none() | NUMBERS,
        "community": st.integers(0, 4),
    },
)  # fmt: skip
EDGES = st.fixed_dictionaries({"source": st.integers(-1, 5), "target": st.integers(0, 5), "weight": NUMBERS})
COMMUNITIES = st.fixed_dictionaries(
    {"id": st.integers(1, 4), "size": WHOLE, "weight": NUMBERS, "since": NUMBERS,
     "state": st.sampled_from(["appeared", "living", "fading", "faded"])},
    optional={"merged": st.lists(st.integers(0, 9), max_size=3)},
)  # fmt: skip
VIEWS = st.fixed_dictionaries(
    {"at": NUMBERS, "service": WORDS, "instance": WORDS, "keys": st.lists(KEYS, max_size=6)},
    optional={
        "edges": st.lists(EDGES, max_size=6), "tracked_keys": WHOLE,
        "communities": st.lists(COMMUNITIES, max_size=4, unique_by=lambda one: one["id"]),
    },
)  # fmt: skip


def finite(said: Any) -> bool:
    if isinstance(said, dict):
        return all(map(finite, said.values()))
    return all(map(finite, said)) if isinstance(said, list) else not isinstance(said, float) or math.isfinite(said)


@settings(max_examples=60, derandomize=True)
@given(st.lists(VIEWS, max_size=4))
def test_graphs_of_any_views_keep_their_limits(views: list[dict[str, Any]]) -> None:
    bodies = [json.dumps(view) for view in views]
    read = views_of(logs_of(*bodies))
    assert len(read.views) + read.refused.total() == len(views)
    held = list({(view.service, view.instance): Held(view, 1.0) for view in read.views}.values())
    graph = merged(held, [], None)
    nodes, ids = graph["nodes"], {one["id"] for one in graph["communities"]}
    assert len({node["key"] for node in nodes}) == len(nodes)
    assert all(0 <= edge[end] < len(nodes) for edge in graph["edges"] for end in ("source", "target"))
    assert all(node["community"] is None or node["community"] in ids for node in nodes)
    assert len(ids) == len(graph["communities"])
    assert finite(graph)
    json.dumps(graph).encode()


@settings(max_examples=60, derandomize=True)
@given(st.text(max_size=60) | st.binary(max_size=60) | st.integers(0, len(text(full())) - 1))
def test_what_is_no_view_is_refused(body: str | bytes | int) -> None:
    said = text(full())[:body] if isinstance(body, int) else body
    if isinstance(said, str):
        said = said.encode("utf-8", "replace").decode()
    read = views_of(logs_of(said))
    assert (read.views, read.refused.total()) == ([], 1)
