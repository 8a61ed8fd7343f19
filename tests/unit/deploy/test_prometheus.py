"""Prometheus' files, by its own tool; the operator's, by schema: neither kubectl nor a cluster is needed."""

from __future__ import annotations

import re

from tests.unit.deploy.kit import (
    DEPLOY,
    ROOT,
    RULE_TESTS,
    complaints,
    load,
    needs_promtool,
    promtool,
    rules,
    yaml,
)  # fmt: skip

HERE = DEPLOY / "prometheus"
ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}


@needs_promtool
def test_the_configuration_and_the_rules_are_right() -> None:
    promtool("check", "config", "prometheus.yml", cwd=HERE)
    promtool("check", "rules", "rules.yml", cwd=HERE)


@needs_promtool
def test_every_alert_fires_when_it_should_and_only_then() -> None:
    promtool("test", "rules", *RULE_TESTS, cwd=HERE)


def test_every_alert_has_a_test_that_it_fires_and_that_it_does_not() -> None:
    fires: set[str] = set()
    silent: set[str] = set()
    for name in RULE_TESTS:
        for world in load(f"prometheus/{name}")["tests"]:
            for asked in world.get("alert_rule_test", ()):
                (fires if asked.get("exp_alerts") else silent).add(asked["alertname"])
    # In the tests of these three, others that must not fire stand beside those that must.
    beside = {"MmcacheEvictionChurn", "MmcacheTierNearlyFull", "MmcacheTierRefuses"}
    assert fires == set(ALERTS)
    assert silent | beside == set(ALERTS)


def test_every_alert_says_what_to_do_in_a_section_that_exists() -> None:
    for name, rule in ALERTS.items():
        page, _, section = rule["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.M)
        anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert section in anchors, f"{name}: {page} has no section {section}"
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


def test_the_operators_rules_are_the_same() -> None:
    ours = (HERE / "rules.yml").read_text(encoding="utf-8")
    theirs = (HERE / "prometheusrule.yaml").read_text(encoding="utf-8")
    body = re.sub(r"^(?=.)", "  ", ours[ours.index("groups:") :], flags=re.M)
    assert theirs.endswith(f"\nspec:\n{body}"), "make it anew: the command stands in its second line"


def test_the_operators_files_fit_its_definitions() -> None:
    for name in ("servicemonitor.yaml", "prometheusrule.yaml"):
        for document in yaml.safe_load_all((HERE / name).read_text(encoding="utf-8")):
            assert complaints(document, "prometheus/operator.schema.json") == [], name


def test_whoever_starts_it_as_it_stands_is_not_alarmed_by_a_target_that_he_does_not_run() -> None:
    text = (HERE / "prometheus.yml").read_text(encoding="utf-8")
    assert [job["job_name"] for job in yaml.safe_load(text)["scrape_configs"]] == ["mmcache"]
    off = re.search(r"(?:^  # (?:- |  ).+\n)+\Z", text, re.M)
    assert off, "the collector's job is there to be switched on"
    on = yaml.safe_load(text[: off.start()] + off[0].replace("  # ", "  "))["scrape_configs"]
    assert [job["job_name"] for job in on] == ["mmcache", "mmcache-collector"]
    assert on[1]["honor_labels"]
    listens = load("collector/collector.yaml")["exporters"]["prometheus"]["endpoint"]
    assert on[1]["static_configs"] == [{"targets": ["127.0.0.1:" + listens.rpartition(":")[2]]}]


def test_the_monitor_finds_the_service() -> None:
    service, monitor = yaml.safe_load_all((HERE / "servicemonitor.yaml").read_text(encoding="utf-8"))
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert {end["port"] for end in monitor["spec"]["endpoints"]} <= {port["name"] for port in service["spec"]["ports"]}
    assert service["metadata"]["name"].startswith("mmcache"), "the rules go by the job's name"
    # Charts call their own Service by the app's name, with its label: this one must not be that one, nor find it.
    assert service["metadata"]["name"] != "mmcache"
    assert len(monitor["spec"]["selector"]["matchLabels"]) > 1
