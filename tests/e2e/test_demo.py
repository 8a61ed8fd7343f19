"""`mmcache demo --quick` as a user runs it: equal outputs, honest misses, a page."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(place: Path) -> dict[str, Any]:
    code = (
        "import sys; from pathlib import Path; from mmcache.lab.demo import run; sys.exit(run(quick=True, json=True))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_outputs_are_equal_and_nothing_is_a_wrong_hit(demo: dict[str, Any]) -> None:
    assert demo["ok"]
    assert demo["equal"]
    assert demo["unequal_outputs"] == 0


def test_reencoded_and_respelled_hit_and_resized_misses(demo: dict[str, Any]) -> None:
    kinds = demo["passes"]["first"]["by_kind"]
    for kind in ("repeat", "re-encoded", "respelled"):
        assert kinds[kind]["computed"] == 0, kind
    for kind in ("new", "resized"):
        assert kinds[kind]["hit"] == 0, kind
    assert 0 < kinds["crop"]["computed"] < kinds["crop"]["blocks"]


def test_the_restarted_process_computes_nothing(demo: dict[str, Any]) -> None:
    restarted = demo["passes"]["restarted"]
    assert restarted["computed"] == 0
    assert restarted["misses"] == 0
    assert restarted["load_seconds"] == 0
    assert demo["passes"]["no cache"]["computed"] == restarted["blocks"]


def test_cache_counters_agree_with_what_the_models_saw(demo: dict[str, Any]) -> None:
    first = demo["passes"]["first"]
    assert first["misses"] == first["computed"] == sum(first["miss_reasons"].values())
    assert first["hits"] + first["misses"] == first["blocks"]


def test_int4_keeps_its_bound(demo: dict[str, Any]) -> None:
    assert 0 < demo["int4"]["largest_share_of_bound"] <= 1
    assert demo["int4"]["computed_again"] == 0


def test_what_a_prefetcher_brought_is_what_would_have_been_computed(demo: dict[str, Any]) -> None:
    visits = demo["visits"]
    assert visits["unequal_outputs"] == 0
    assert visits["without"]["lookups"] == visits["foreseen"]["lookups"] > 0
    assert visits["without"]["joined"] == 0
    assert 0 <= visits["foreseen"]["warm"] + visits["foreseen"]["joined"] <= visits["foreseen"]["lookups"]
    assert 0 <= visits["used"] <= visits["brought"] + visits["brought_before"]


def test_report_and_json_are_written(demo: dict[str, Any], place: Path) -> None:
    report = place / "demo-report"
    assert json.loads((report / "demo.json").read_text()) == demo
    assert "<svg" in (report / "index.html").read_text()


def test_two_hosts_share_a_cluster_of_which_a_node_dies(place: Path) -> None:
    code = "import sys; from mmcache.lab.demo_cluster import run; sys.exit(run(seconds=1.0, json=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ok"]
    assert found["wrong"] == 0
    before, *_ = found["phases"]
    assert before["outcomes"].get("valkey"), "one host found nothing that the other had stored"
