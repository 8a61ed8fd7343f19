"""Every expression of the kit parses, and every metric and label in it exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.deploy.kit import (
    ROOT,
    RULE_TESTS,
    board_expressions,
    documented,
    load,
    matched_in,
    names_in,
    needs_promtool,
    of_the_operator,
    plain,
    promtool,
    reference,
    rules,
    yaml,
)  # fmt: skip

from mmcache.telemetry.names import METRICS

OF_PROMETHEUS = {"job", "instance"}
RECORDED = {rule["record"] for rule in rules() if "record" in rule}
EXPRESSIONS = [*(rule["expr"] for rule in rules()), *map(plain, board_expressions())]


@needs_promtool
def test_what_the_board_asks_is_promql(tmp_path: Path) -> None:
    asked = [{"record": f"board:{number}", "expr": plain(expr)} for number, expr in enumerate(board_expressions())]
    (tmp_path / "board.yml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": asked}]}), "utf-8")
    promtool("check", "rules", "board.yml", cwd=tmp_path)


def test_every_name_exists() -> None:
    known = reference().keys() | RECORDED
    for expression in EXPRESSIONS:
        assert names_in(expression) <= known, expression


def test_every_label_that_is_matched_exists() -> None:
    known = reference()
    for expression in EXPRESSIONS:
        for name, label in matched_in(expression):
            if name in known:
                assert label in known[name].labels | OF_PROMETHEUS, f"{name} has no {label}: {expression}"


def test_what_is_recorded_is_named_as_is_usual() -> None:
    for name in RECORDED:
        _, metric, operation = name.split(":")
        assert metric.startswith("mmcache_")
        assert operation in {"ratio"} or re.fullmatch(r"(rate|increase)[0-9]+[mhd]", operation)


def test_counters_are_never_shown_raw() -> None:
    """Except by an alert that asks whether a counter was born."""
    kinds = {name: series.kind for name, series in reference().items()}
    for expression in EXPRESSIONS:
        for name in names_in(expression):
            if kinds.get(name) in ("counter", "histogram") and "unless" not in expression:
                assert re.search(rf"(rate|increase)\({name}\b", expression) or expression.startswith(name), expression


def test_the_tests_of_the_rules_feed_metrics_that_exist() -> None:
    known = reference()
    for name in RULE_TESTS:
        for world in load(f"prometheus/{name}")["tests"]:
            for series in world["input_series"]:
                for metric in names_in(series["series"]):
                    assert metric in known
                for metric, label in matched_in(series["series"]):
                    assert label in known[metric].labels | OF_PROMETHEUS, series["series"]


def test_the_reference_says_each_name() -> None:
    families = {metric.prometheus + "_total" * (metric.kind == "counter") for metric in METRICS.values()}
    assert documented() == families | {"mmcache_proxy_duration_seconds"}


def test_the_guide_says_each_name_of_the_operators() -> None:
    text = (ROOT / "docs/how-to/monitor-clusters.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(mmcache_(?:cluster|operator)_[a-z_]+)`", text)) == of_the_operator().keys()


def by_the_collector(name: str, kind: str, unit: str) -> str:
    """What OpenTelemetry's rules for Prometheus make of a metric; the collector's exporter follows them."""
    words = name.split(".")
    words = [word for part in words for word in part.split("_")]
    word = {"s": "seconds", "By": "bytes"}.get(unit, "")
    if unit == "1" and kind == "gauge":
        words = [*(each for each in words if each != "ratio"), "ratio"]
    elif word and word not in words:
        words.append(word)
    return "_".join([*words, "total"] if kind == "counter" else words)


def test_what_comes_through_the_collector_has_the_same_names() -> None:
    statements = load("collector/collector.yaml")["processors"]["transform/names"]["metric_statements"]
    assert statements == ['set(metric.unit, "") where metric.unit == "1"']
    for metric in METRICS.values():
        unit = "" if metric.unit == "1" else metric.unit
        exposed = metric.prometheus + "_total" * (metric.kind == "counter")
        assert by_the_collector(metric.name, metric.kind, unit) == exposed
    gauge = METRICS["mmcache.hit_ratio_by_client_region"]
    assert by_the_collector(gauge.name, gauge.kind, gauge.unit) != gauge.prometheus, "the statement is not needed"
