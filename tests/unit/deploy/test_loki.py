"""The access log's way to Loki: what becomes a label has few values, and every field that is named is in real lines."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.unit.deploy.kit import DEPLOY, load

pytest.importorskip("uvicorn")

from mmcache.server.exchange import Verdict
from mmcache.server.journal import Journal

ALLOY = (DEPLOY / "loki/access-log.alloy").read_text(encoding="utf-8")
LABELS = {"route", "outcome"}


def stage(name: str) -> dict[str, str]:
    """The map of a stage of the pipeline, `name = "value"`."""
    body = re.search(rf"stage\.{name} \{{\s*(?:expressions|values) = \{{(.*?)\n    \}}", ALLOY, re.S)
    assert body
    return dict(re.findall(r'^\s*([a-z]+)\s*= "([^"]*)",$', body[1], re.M))


async def written() -> list[dict[str, Any]]:
    """Lines as `mmcache serve --json` writes them."""
    lines: list[str] = []
    journal = Journal(lines.append, as_json=True)
    journal.tell("POST", "/v1/embeddings", 200, Verdict("hit"), 0.000123)
    journal.tell("POST", "/v1/chat/completions", 200, Verdict("bypass", "no-store"), 0.5)
    journal.tell("POST", "/v1/embeddings", 0, None, 0.2)
    journal.say("switched", route="/v1/embeddings", mode="off")
    journal.trouble("/v1/embeddings", ValueError("what was asked"))
    journal.flush()
    return [json.loads(line) for text in lines for line in text.splitlines()]


async def test_every_field_that_is_taken_out_is_in_real_lines() -> None:
    lines = await written()
    requests = [line for line in lines if "event" not in line]
    taken = set(stage("json"))
    assert all(taken - {"event"} == line.keys() & taken for line in requests)
    assert all({"time", "event"} <= line.keys() for line in lines if line not in requests)
    assert {name for line in requests for name in line} <= taken, "a field of the log goes nowhere"


def test_labels_are_those_with_few_values_and_nothing_is_both() -> None:
    labels, metadata = set(stage("labels")), set(stage("structured_metadata"))
    assert labels == LABELS
    assert labels | metadata | {"time"} == set(stage("json"))
    assert not labels & metadata


def test_braces_are_closed_and_parts_lead_on() -> None:
    bare = re.sub(r'"[^"]*"|//[^\n]*', "", ALLOY)
    assert all(bare.count(a) == bare.count(b) for a, b in ("{}", "[]", "()"))
    made = set(re.findall(r'^([a-z_.]+) "([a-z]+)" \{', ALLOY, re.M))
    for kind, name in re.findall(r"\[?([a-z]+\.[a-z_]+)\.([a-z]+)\.(?:receiver|targets)", ALLOY):
        assert (kind, name) in made


async def test_a_time_is_seconds_with_a_fraction_as_both_pipelines_expect() -> None:
    assert all(re.fullmatch(r"\d{10}(\.\d{1,3})?", str(line["time"])) for line in await written())
    assert 'format = "Unix"' in ALLOY
    (parser, *_) = load("loki/access-log.yaml")["receivers"]["filelog/mmcache"]["operators"]
    assert parser["timestamp"] == {"parse_from": "attributes.time", "layout_type": "epoch", "layout": "s.ms"}


def test_the_collectors_pipeline_makes_the_same_labels() -> None:
    text = (DEPLOY / "loki/access-log.yaml").read_text(encoding="utf-8")
    moved = {
        each["to"].removeprefix("resource.")
        for each in load("loki/access-log.yaml")["receivers"]["filelog/mmcache"]["operators"] if each["type"] == "move"
    }  # fmt: skip
    assert moved == LABELS
    (told,) = re.findall(r"action: index_label, attributes: \[([^]]+)\]", text)
    assert set(told.split(", ")) == LABELS | {"service.name"}


def test_queries_select_by_labels_and_filter_by_metadata() -> None:
    text = (DEPLOY / "loki/queries.logql").read_text(encoding="utf-8")
    queries = [block for block in re.sub(r"^#.*\n", "", text, flags=re.M).split("\n\n") if block.strip()]
    assert len(queries) >= 5
    for query in queries:
        (selector,) = re.findall(r"\{([^}]*)\}", query)
        assert set(re.findall(r"([a-z_]+)(?:=~|!=|=)", selector)) <= LABELS | {"job"}
        assert set(re.findall(r"\| (?:unwrap )?([a-z]+)", query)) <= set(stage("structured_metadata"))
        assert set(re.findall(r"by \(([^)]*)\)", query)) <= {"route", "outcome", "route, reason"}
