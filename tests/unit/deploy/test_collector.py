"""The collector's files. Its program is not to be had as a package: they are checked by the schema that its components'
documentation gives, and by what no schema says. What replaces it, rotel, runs in tests/e2e/test_deploy_rotel.py."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.deploy.kit import DEPLOY, complaints, load

FILES = {
    "collector": ["collector/collector.yaml"],
    "keep-misses": ["collector/collector.yaml", "collector/keep-misses.yaml"],
    "access-log": ["loki/access-log.yaml"],
}


def merged(into: Any, other: Any) -> Any:
    """As the collector joins several `--config`: maps are merged, all else is replaced."""
    if isinstance(into, dict) and isinstance(other, dict):
        return into | {name: merged(into[name], value) if name in into else value for name, value in other.items()}
    return other


def configured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in FILES[name]:
        found = merged(found, load(path))
    return found


@pytest.fixture(params=FILES, name="config")
def of_each(request: pytest.FixtureRequest) -> dict[str, Any]:
    return configured(request.param)


@pytest.mark.parametrize("path", sorted({path for paths in FILES.values() for path in paths}))
def test_each_file_fits_the_schema(path: str) -> None:
    assert complaints(load(path), "collector/collector.schema.json") == []


def test_the_schema_notices_what_is_wrong() -> None:
    config = configured("collector")
    for path, value in (
        (("processors", "batch", "timeout"), "1 second"), (("processors", "batch", "send_batch"), 1024),
        (("connectors", "routing/namespace", "table", 0, "condition"), "namespace is staging"),
        (("exporters", "otlphttp/dashboard", "endpoint"), "127.0.0.1:8091"), (("exporters", "logging"), {}),
        (("service", "pipelines", "spans"), {"receivers": ["otlp"], "exporters": ["prometheus"]}),
    ):  # fmt: skip
        broken = configured("collector")
        place: Any = broken
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        assert complaints(broken, "collector/collector.schema.json"), path
    assert complaints(config, "collector/collector.schema.json") == []


def test_what_a_pipeline_names_is_there_and_what_is_there_is_used(config: dict[str, Any]) -> None:
    pipes = config["service"]["pipelines"].values()
    connectors = set(config.get("connectors", {}))
    for part in ("receivers", "processors", "exporters"):
        named = {name for pipe in pipes for name in pipe.get(part, ())}
        there = set(config.get(part, {}))
        joints = connectors if part != "processors" else set()
        assert named <= there | joints
        assert there | joints == named
    assert set(config["service"].get("extensions", ())) == set(config.get("extensions", {}))


def test_a_connector_ends_pipelines_and_begins_others_of_its_kind(config: dict[str, Any]) -> None:
    pipes = config["service"]["pipelines"]
    for name, connector in config.get("connectors", {}).items():
        before = {pipe for pipe, parts in pipes.items() if name in parts["exporters"]}
        after = {pipe for pipe, parts in pipes.items() if name in parts["receivers"]}
        assert before
        assert not before & after
        assert {pipe.partition("/")[0] for pipe in before} == {pipe.partition("/")[0] for pipe in after}
        if name.startswith("routing"):
            routed = {pipe for row in connector["table"] for pipe in row["pipelines"]}
            assert routed | set(connector["default_pipelines"]) == after


def test_memory_is_limited_first_and_batches_are_made_last(config: dict[str, Any]) -> None:
    assert config["processors"]["batch"] == {"timeout": "1s", "send_batch_size": 1024, "send_batch_max_size": 1024}
    exporters = set(config["exporters"])
    for name, pipe in config["service"]["pipelines"].items():
        steps = pipe.get("processors", [])
        if set(pipe["receivers"]) & set(config["receivers"]):
            assert steps[0] == "memory_limiter", name
        if set(pipe["exporters"]) & exporters:
            assert steps[-1] == "batch", name


def test_spans_reach_the_dashboard_by_exactly_one_way(config: dict[str, Any]) -> None:
    """No ring, and no span twice: every pipeline of traces leads on to one place."""
    pipes = {name: pipe for name, pipe in config["service"]["pipelines"].items() if name.startswith("traces")}
    connectors = set(config.get("connectors", {}))

    def ends(name: str, seen: tuple[str, ...]) -> set[str]:
        assert name not in seen, f"a ring: {seen}"
        assert len(pipes[name]["exporters"]) == 1
        out = pipes[name]["exporters"][0]
        if out not in connectors:
            return {out}
        return {end for on, pipe in pipes.items() if out in pipe["receivers"] for end in ends(on, (*seen, name))}

    for name, pipe in pipes.items():
        if "otlp" in pipe["receivers"]:
            assert ends(name, ()) == {"otlphttp/dashboard", "otlphttp/staging"}


def test_hits_that_are_thinned_out_count_for_those_that_went() -> None:
    config = configured("keep-misses")
    share = config["processors"]["probabilistic_sampler/hits"]["sampling_percentage"] / 100
    statements = config["processors"]["transform/weight"]["trace_statements"]
    weight = 'span.attributes["cache.sampling.weight"]'
    assert statements == [f"set({weight}, 1.0) where {weight} == nil", f"set({weight}, {weight} * {1 / share})"]
    assert config["service"]["pipelines"]["traces/hits"]["processors"] == [
        "probabilistic_sampler/hits", "transform/weight",
    ]  # fmt: skip


def test_rotel_is_told_the_same() -> None:
    text = (DEPLOY / "collector/rotel.env").read_text(encoding="utf-8")
    told = dict(line.split("=", 1) for line in text.splitlines() if line.startswith("ROTEL_"))
    config = configured("collector")
    assert told["ROTEL_BATCH_TIMEOUT"] == config["processors"]["batch"]["timeout"]
    assert told["ROTEL_OTLP_EXPORTER_ENDPOINT"] in config["exporters"]["otlphttp/dashboard"]["endpoint"]
    for kind in ("grpc", "http"):
        port = config["receivers"]["otlp"]["protocols"][kind]["endpoint"].rpartition(":")[2]
        assert told[f"ROTEL_OTLP_{kind.upper()}_ENDPOINT"] == f"127.0.0.1:{port}"
