"""The files in deploy/, read, and what stands in them: expressions, and the names that they use."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mmcache.operator.metrics import OF_CLUSTERS, OF_OPERATOR
from mmcache.telemetry.names import METRICS

yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="no promtool: install Debian's package prometheus")

RULE_TESTS = ("rules_test.yml", "long_test.yml", "cluster_test.yml")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME = re.compile(r"(?:[a-z_]+:)?mmcache_[a-z0-9_]+(?::[a-z0-9]+)?")
_SELECTOR = re.compile(r"(mmcache_[a-z0-9_]+)\{([^}]*)\}")


class Series(NamedTuple):
    """A metric as Prometheus knows it."""

    kind: str
    labels: frozenset[str]


def load(path: str) -> Any:
    """A YAML or JSON file of the kit."""
    text = (DEPLOY / path).read_text(encoding="utf-8")
    return json.loads(text) if path.endswith(".json") else yaml.safe_load(text)


def complaints(document: Any, schema: str) -> list[str]:
    """What the schema says against it."""
    rules = load(schema)
    jsonschema.Draft202012Validator.check_schema(rules)
    found = jsonschema.Draft202012Validator(rules).iter_errors(document)
    return [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in found]


def rules() -> Iterator[Mapping[str, Any]]:
    """Every rule of rules.yml."""
    for group in load("prometheus/rules.yml")["groups"]:
        yield from group["rules"]


def names_in(expression: str) -> set[str]:
    """Metrics and recorded series that an expression reads."""
    return set(_NAME.findall(_STRING.sub('""', expression)))


def matched_in(expression: str) -> set[tuple[str, str]]:
    """(metric, label) of every matcher of an expression."""
    found = _SELECTOR.findall(_STRING.sub('""', expression))
    return {(name, label) for name, body in found for label in re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", body)}


def board_expressions() -> Iterator[str]:
    """Every expression of the Grafana board, also of its variables and annotations."""
    board = load("grafana/board.json")
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for mark in board["annotations"]["list"]:
        yield mark["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield re.fullmatch(r"label_values\((.+), [a-z_]+\)", variable["query"]["query"])[1]  # type: ignore[index]


def plain(expression: str) -> str:
    """As Grafana would send it."""
    for name, value in (("$__rate_interval", "1m"), ("$__range", "1h")):
        expression = expression.replace(name, value)
    return re.sub(r"\$[a-z_]+", ".*", expression)


def promtool(*words: str, cwd: Path, text: str = "") -> None:
    """Runs, or fails with what it said. text: what it reads."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *words], cwd=cwd, input=text, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"promtool {' '.join(words)}\n{done.stdout}\n{done.stderr}"


def reference() -> dict[str, Series]:
    """The metrics that there are, by the names that an expression may call them."""
    found: dict[str, Series] = {}
    for metric in METRICS.values():
        labels = frozenset(metric.labels)
        if metric.kind == "histogram":
            parts = (f"{metric.prometheus}_{part}" for part in ("bucket", "sum", "count"))
            found |= dict.fromkeys(parts, Series(metric.kind, labels | {"le"}))
        else:
            found[metric.prometheus + "_total" * (metric.kind == "counter")] = Series(metric.kind, labels)
    of_the_proxy = Series("histogram", frozenset({"route", "outcome", "le"}))  # not of a cache, so not among METRICS
    found |= {f"mmcache_proxy_duration_seconds_{part}": of_the_proxy for part in ("bucket", "sum", "count")}
    return found | of_the_operator()


def of_the_operator() -> dict[str, Series]:
    """The series of `mmcache operator run`; its own get their pod's namespace from the Prometheus operator."""
    more = {"phase": frozenset({"phase"}), "condition": frozenset({"type"})}
    where = frozenset({"namespace", "name"})
    found = {f"mmcache_cluster_{name}": Series("gauge", where | more.get(name, frozenset())) for name in OF_CLUSTERS}
    return found | {
        f"mmcache_operator_{name}": Series("counter" if name.endswith("_total") else "gauge", frozenset({"namespace"}))
        for name in OF_OPERATOR
    }


def documented() -> set[str]:
    """The names in Prometheus that docs/reference/telemetry.md gives."""
    text = (ROOT / "docs/reference/telemetry.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `mmcache.")]
    return {name for row in rows for name in re.findall(r"`(mmcache_[a-z_]+)`", row)}
