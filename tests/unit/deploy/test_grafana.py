"""The Grafana board and its provisioning, by schema: Grafana itself is not to be had as a package."""

from __future__ import annotations

import re

from tests.unit.deploy.kit import complaints, load

BOARD = load("grafana/board.json")
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def test_the_board_fits_the_schema() -> None:
    assert complaints(BOARD, "grafana/board.schema.json") == []


def test_the_schema_notices_what_is_wrong() -> None:
    board = load("grafana/board.json")
    board["panels"][1]["gridpos"] = board["panels"][1].pop("gridPos")
    assert complaints(board, "grafana/board.schema.json")
    board = load("grafana/board.json")
    board["panels"][1]["targets"][0]["datasource"]["uid"] = "my-own"
    assert complaints(board, "grafana/board.schema.json")


def test_provisioning_fits_the_schema() -> None:
    for name in ("datasources", "dashboards"):
        assert complaints(load(f"grafana/provisioning/{name}/mmcache.yaml"), "grafana/provisioning.schema.json") == []


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    taken: dict[tuple[int, int], str] = {}
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


def test_every_variable_that_is_used_is_there_and_the_other_way_round() -> None:
    names = {variable["name"] for variable in BOARD["templating"]["list"]}
    text = str(BOARD)
    assert all(f"${name}" in text or f"${{{name}}}" in text for name in names)
    used = {
        word for panel in PANELS for target in panel.get("targets", ())
        for word in re.findall(r"\$([a-z_]+)", target["expr"]) if not word.startswith("__")
    }  # fmt: skip
    assert used <= names


def test_a_dot_on_a_latency_panel_opens_its_trace() -> None:
    shown = [p["title"] for p in PANELS if any(target.get("exemplar") for target in p.get("targets", ()))]
    assert shown == ["Lookup", "Computing"]
    (source,) = load("grafana/provisioning/datasources/mmcache.yaml")["datasources"]
    (link,) = source["jsonData"]["exemplarTraceIdDestinations"]
    assert link["name"] == "trace_id"
    assert link["url"].endswith("/?trace=$${__value.raw}")  # Grafana makes one dollar of two


def test_a_ratio_without_hits_is_nothing_and_without_lookups_it_is_none() -> None:
    """A share of hits that are not born is not a panel without data, and one of no lookups is not a number."""
    for panel in PANELS:
        for target in panel.get("targets", ()):
            if 'outcome!="miss"' in target["expr"]:
                assert " or 0 * " in target["expr"], panel["title"]
                assert target["expr"].endswith(" > 0)"), panel["title"]


def test_what_only_spans_fill_says_so() -> None:
    for panel in PANELS:
        asked = " ".join(target["expr"] for target in panel.get("targets", ()))
        if re.search(r"mmcache_(lookup|compute)_duration_", asked):
            assert "telemetry.otlp" in panel.get("description", ""), panel["title"]


def test_what_must_be_seen_is_on_it() -> None:
    titles = {panel["title"] for panel in PANELS}
    for axis in ("client region", "modality", "route", "tenant"):
        assert f"Hit ratio by {axis}" in titles
    assert {"Misses by reason", "Model time saved", "Bytes served from the cache", "Fill", "Evictions"} <= titles
