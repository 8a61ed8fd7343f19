"""The incident, rehearsed: three real processes tell a real dashboard by OTLP, which says why the hit ratio fell."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

for name in ("duckdb", "uvicorn", "opentelemetry.proto", "opentelemetry.sdk"):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install 'mmcache[dashboard]'")

from mmcache.lab.incident.rehearsal import CHANGED, INSTANCES, Plan, Rehearsal  # noqa: E402
from mmcache.lab.incident.relay import MINUTE_SECONDS  # noqa: E402
from mmcache.lab.incident.worker import NEW, OLD  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with Rehearsal(tmp_path_factory.mktemp("night"), Plan()) as rehearsal:
        rehearsal.play()
        yield rehearsal


def window(rehearsal: Rehearsal) -> dict[str, float]:
    start, end = rehearsal.plan.window
    return {"from": start, "to": end}


def causes(rehearsal: Rehearsal) -> dict[str, dict[str, Any]]:
    return {one["cause"]: one for one in rehearsal.get("causes", **window(rehearsal))["causes"]}


def test_both_causes_are_shown_apart(played: Rehearsal) -> None:
    plan, found = played.plan, causes(played)
    flood, swap = found["flood"], found["signature"]
    assert flood["where"] == {"tenant": "batch"}
    assert swap["where"] == {"instance": CHANGED}
    assert swap["moved"] == [{"component": "model_version", "was": OLD, "now": NEW}]
    assert 0.6 < flood["share"] < 0.85
    assert 0.15 < swap["share"] < 0.4
    assert sum(one["share"] for one in found.values()) == pytest.approx(1.0)
    assert plan.swap <= swap["since"] < plan.swap + MINUTE_SECONDS
    assert abs(flood["since"] - plan.flood_at) < MINUTE_SECONDS
    assert next(iter(found)) == "flood"  # most of the fall first
    assert flood["examples"]
    assert swap["examples"]


def test_shares_are_what_was_done(played: Rehearsal) -> None:
    """What is counted by the dashboard is what the processes did: every lookup, by tenant, reason and process."""
    plan = played.plan
    said = played.get("ratio", **window(played), by="tenant", points=40)
    looked = {one["name"]: round(sum(one["hits"]) + sum(one["misses"])) for one in said["series"]}
    minutes, flooded = plan.before + plan.after, plan.after - plan.flood_after
    assert looked["batch"] == len(INSTANCES) * ((minutes - flooded) * plan.batch + flooded * plan.flood)
    assert looked["shop"] + looked["search"] == len(INSTANCES) * minutes * plan.lookups
    reasons = played.get("reasons", **window(played), points=40)["reasons"]
    misses = sum(round(sum(one["misses"])) for one in said["series"])
    assert sum(round(sum(counts)) for counts in reasons.values()) == misses
    swapped = played.get("ratio", **window(played), by="instance", points=40, reason="signature")
    assert {one["name"] for one in swapped["series"] if sum(one["misses"]) > 0} == {CHANGED}


def test_explain_names_what_moved_and_where(played: Rehearsal) -> None:
    lasts = []
    for example in causes(played)["signature"]["examples"]:
        found = played.get(f"explain/{example['trace']}/{example['span']}")
        assert found["verdict"] == "miss (signature)"
        assert found["moved"] == [{"component": "model_version", "was": OLD, "now": NEW}]
        assert found["text"][0] == f"This input is stored for another signature: model_version was {OLD}, is {NEW}."
        missed = {one["instance"]: one["misses"] for one in found["spread"]["instances"]}
        assert missed.pop(CHANGED) > 100
        assert set(missed.values()) == {0}
        lasts.append(found["before"])
    seen = [last for last in lasts if last is not None]
    for last in seen:
        hit = played.get(f"explain/{last['trace']}/{last['span']}")
        assert hit["verdict"].startswith("hit") or hit["verdict"] == "cache.put"


def test_before_it_all_nothing_fell(played: Rehearsal) -> None:
    start, _ = played.plan.window
    said = played.get("causes", **{"from": start + 5 * MINUTE_SECONDS, "to": played.plan.swap - MINUTE_SECONDS})
    assert said["causes"] == []


def test_each_alone_is_one_cause(played: Rehearsal) -> None:
    """Before the flood there is the signature alone; among the users' lookups, too, and among the batch's the flood."""
    start, end = played.plan.window
    early = played.get("causes", **{"from": start, "to": played.plan.flood_at})["causes"]
    assert [one["cause"] for one in early if one["share"] > 0.1] == ["signature"]
    users = played.get("causes", **window(played), tenant="shop")["causes"]
    assert [one["cause"] for one in users if one["share"] > 0.1] == ["signature"]
    others = played.get("causes", **{"from": start, "to": end}, instance="encoder-3")["causes"]
    assert [one["cause"] for one in others if one["share"] > 0.1] == ["flood"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed: apt-get install chromium")
def test_the_page_shows_both(played: Rehearsal, tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    from mmcache.lab.incident import screens

    with screens.browser() as started:
        page = screens.opened(started, screens.story(played.page, played.plan.window))
        listed = page.locator("#causes li.cause")
        flood, swap = listed.filter(has_text="A flood"), screens.signature_cause(page)
        assert "tenant batch" in flood.inner_text()
        assert f"instance {CHANGED}" in swap.inner_text()
        assert swap.locator(".moved del").inner_text() == OLD
        assert swap.locator(".moved ins").inner_text() == NEW
        swap.get_by_role("link", name="example 1").click()
        page.locator(".explain .movedtable").wait_for()
        moved = page.locator(".explain .movedtable tbody tr")
        assert moved.locator("th").all_inner_texts() == ["model_version"]
        assert moved.locator("del").all_inner_texts() == [OLD]
        assert moved.locator("ins").all_inner_texts() == [NEW]
    taken = screens.take(played.get, played.page, played.plan.window, tmp_path)
    assert all(path.stat().st_size > 10_000 for path in taken)
