"""What is told of a cluster, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.operator.test_definition import closed, root
from tests.unit.operator.wishes import resource, wish

from mmcache.operator import status as told_status
from mmcache.scale.status import Condition, Phase, Progress, Status

jsonschema = pytest.importorskip("jsonschema")
EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:09Z"


def made(**changes: Any) -> Status:
    fields: dict[str, Any] = {
        "phase": Phase.STEADY, "shards": 3, "wanted": 3, "nodes": 6, "ready_nodes": 6, "qps": 1234.5,
        "baseline_qps": 1000.4, "hit_ratio": 0.87654, "keys": 10, "used_bytes": 20, "max_bytes": 30, "reason": "Steady",
        "message": "fine", "conditions": (Condition("Available", True, "AllSlotsServed", "yes"),),
    }  # fmt: skip
    return Status(**{**fields, **changes})


def patched(before: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**before, **change}.items() if value is not None}


def test_it_fits_its_schema_and_is_json() -> None:
    for one in (
        made(),
        made(baseline_qps=None, hit_ratio=None, progress=Progress(3, 9)),
        *(made(phase=p) for p in Phase),
    ):
        told = told_status.told(one, wish(), {}, EARLY)
        assert json.loads(json.dumps(told)) == told
        jsonschema.validate({**resource({}), "status": told}, closed(root()))
        assert set(told) <= set(root()["properties"]["status"]["properties"])


def test_figures_are_rounded_and_what_is_unknown_is_absent() -> None:
    told = told_status.told(made(hit_ratio=None), wish(), {}, EARLY)
    assert (told["qps"], told["baselineQps"]) == (1230.0, 1000.0)
    assert "hitRatio" not in told
    assert told["observedGeneration"] == 3
    assert told["address"] == "valkey://shared.inference.svc:6379?cluster=true"


def test_a_transition_is_a_change_of_the_status_only() -> None:
    first = told_status.told(made(), wish(), {}, EARLY)
    other = made(conditions=(Condition("Available", True, "Other", "words"),))
    second = told_status.told(other, wish(), first, LATE)
    assert second["conditions"][0]["lastTransitionTime"] == EARLY
    assert second["conditions"][0]["reason"] == "Other"
    fallen = made(conditions=(Condition("Available", False, "SlotsMissing", "no"),))
    third = told_status.told(fallen, wish(), second, LATE)
    assert third["conditions"][0]["lastTransitionTime"] == LATE
    assert third["conditions"][0]["status"] == "False"


def test_a_patch_changes_what_differs_and_takes_away_what_is_gone() -> None:
    before = told_status.told(made(progress=Progress(1, 2)), wish(), {}, EARLY)
    after = told_status.told(made(keys=11), wish(), before, LATE)
    change = told_status.change(before, after)
    assert change == {"keys": 11, "progress": None}
    assert patched(before, change) == after
    assert told_status.change(after, after) == {}


def test_what_others_wrote_stays() -> None:
    assert told_status.change({"theirs": 1}, told_status.told(made(), wish(), {}, EARLY)).get("theirs", 1) == 1


@pytest.mark.parametrize(
    ("changes", "urgent"),
    [
        ({"qps": 99.0, "keys": 4, "message": "512 slots are to move", "progress": Progress(1, 2)}, False),
        ({"conditions": (Condition("Available", True, "AllSlotsServed", "other words"),)}, False),
        ({"conditions": (Condition("Available", True, "OtherReason", "yes"),)}, True),
        ({"conditions": (Condition("Available", False, "SlotsMissing", "no"),)}, True),
        ({"phase": Phase.SCALING_OUT}, True),
        ({"shards": 4}, True),
        ({"ready_nodes": 5}, True),
    ],
    ids=["figures", "words", "reason", "condition", "phase", "shards", "ready"],
)
def test_figures_can_wait(changes: dict[str, Any], urgent: bool) -> None:
    before = told_status.told(made(), wish(), {}, EARLY)
    change = told_status.change(before, told_status.told(made(**changes), wish(), before, LATE))
    assert change
    assert told_status.urgent(change, before) == urgent


def test_a_refusal_leaves_what_is_known_of_the_cluster() -> None:
    before = told_status.told(made(progress=Progress(1, 2)), wish(), {}, EARLY)
    after = told_status.refused("InvalidSpec", "minShards must be…", 7, before, LATE)
    assert (after["phase"], after["reason"], after["observedGeneration"]) == ("Blocked", "InvalidSpec", 7)
    assert (after["shards"], after["nodes"]) == (3, 6)
    assert "progress" not in after
    states = {one["type"]: one["status"] for one in after["conditions"]}
    assert states == {"Available": "True", "Progressing": "False"}
    jsonschema.validate({**resource({}), "status": after}, closed(root()))
    assert told_status.refused("InvalidSpec", "minShards must be…", 7, after, "2027-01-01T00:00:00Z") == after


def test_a_refusal_of_a_new_resource() -> None:
    after = told_status.refused("InvalidSpec", "x" * 9000, 1, {}, EARLY)
    assert len(after["message"]) == 1024
    jsonschema.validate({**resource({}), "status": after}, closed(root()))
