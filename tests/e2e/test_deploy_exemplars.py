"""A dot on the board's latency panels: the proxy tells Prometheus an exemplar, and its trace has come to the dashboard
through the collector, where the link of the provisioned data source finds it."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvloop")
pytest.importorskip("rotel")
pytest.importorskip("duckdb")
pytest.importorskip("starlette")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from tests.e2e.deploy_stage import PROMETHEUS, dashboard, prometheus, rotel, until
from tests.e2e.test_deploy_prometheus import ask
from tests.e2e.test_serve import EMBEDDINGS, embed, serving
from tests.unit.deploy.kit import load
from tests.unit.server.upstream import Upstream, served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus: install Debian's package of that name"),
]


def trace_of(address: str, trace: str) -> list[dict[str, Any]]:
    """The spans of a trace, as the dashboard's page asks for them; none until they have come."""
    try:
        with urllib.request.urlopen(f"{address}/api/v1/traces/{trace}", timeout=60) as reply:
            return list(json.load(reply)["spans"])
    except (urllib.error.URLError, OSError):
        return []


def test_an_exemplar_is_a_trace_that_the_dashboard_has(tmp_path: Path) -> None:
    app = Upstream()
    app.on(EMBEDDINGS, embed)
    with (
        served(app) as behind,
        dashboard(tmp_path) as page,
        rotel(page, tmp_path / "rotel.log") as port,
        serving(
            "--upstream", behind, "--otlp", f"http://127.0.0.1:{port}", "--sample", "1", "--region", "eu", cwd=tmp_path
        ) as proxy,
        prometheus(proxy.address.removeprefix("http://"), tmp_path / "prometheus", 8) as watch,
    ):  # fmt: skip
        asked = iter(range(100_000))

        def dots() -> list[dict[str, str]]:
            ask(proxy.address, [f"text {next(asked)}"])
            found = watch.ask(
                "query_exemplars", query="mmcache_lookup_duration_seconds_bucket", start="0", end="4000000000"
            )  # fmt: skip
            return [dot["labels"] for series in found or () for dot in series["exemplars"]]

        found = until(dots, "an exemplar")
        (source,) = load("grafana/provisioning/datasources/mmcache.yaml")["datasources"]
        (link,) = source["jsonData"]["exemplarTraceIdDestinations"]
        trace = found[0][link["name"]]
        assert re.fullmatch(r"[0-9a-f]{32}", trace)
        lookup = found[0]["span_id"]

        def arrived() -> list[dict[str, Any]]:
            """It comes in parts: its spans end at different times."""
            return [span for span in trace_of(page, trace) if span["span"] == lookup]

        (span,) = until(arrived, "the span of the dot")
        assert (span["name"], span["service"]) == ("cache.lookup", "mmcache")
