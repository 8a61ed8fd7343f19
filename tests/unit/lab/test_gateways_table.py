"""Table `gateways`: how answers are judged, its rows, and the real thing in small."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from mmcache.lab.gateways.contest import Contest, Found, Outcome, contest, judge
from mmcache.lab.gateways.install import OURS, STEPS
from mmcache.lab.gateways.processes import Got
from mmcache.lab.gateways.said import Said, number_of
from mmcache.lab.gateways.stream import CHANCE, ONE, TWO, Request, Tenant
from mmcache.lab.table import Result, silent
from mmcache.lab.table_gateways import GatewaysTable, rows
from mmcache.model.errors import AssetError

TRUTH = Said((("The answer is red.", "stop", ""),), False, 1)
OTHER = (("The answer is blue.", "stop", ""),)


def request(tenant: Tenant = ONE, family: str = "plain") -> Request:
    return Request(family, {}, tenant, ())


@pytest.mark.parametrize(
    ("said", "hit", "tenant", "family", "outcome"),
    [
        (TRUTH, False, ONE, "plain", "miss"),
        (Said(OTHER, False, 9), False, ONE, "plain", "changed"),
        (Said(OTHER, False, 9), False, ONE, CHANCE, "miss"),
        (TRUTH, True, ONE, "plain", "right"),
        (Said(TRUTH.choices, False, None), True, ONE, "plain", "right"),
        (Said(OTHER, False, 1), True, ONE, "plain", "wrong"),
        (Said(TRUTH.choices, True, 1), True, ONE, "plain", "wrong"),
        (TRUTH, True, TWO, "plain", "leak"),
        (Said(OTHER, False, 1), True, TWO, "plain", "leak"),
        (TRUTH, True, TWO, CHANCE, "leak"),
        (Said(OTHER, False, 1), True, ONE, CHANCE, "frozen"),
        (None, False, ONE, "plain", "failed"),
    ],
)
def test_an_answer_is_held_against_the_truth(
    said: Said | None, hit: bool, tenant: Tenant, family: str, outcome: Outcome
) -> None:
    assert judge(request(tenant, family), TRUTH, Got(said, 1.0, hit), {1: ONE}) == outcome


def test_misses_tell_whose_an_answer_is() -> None:
    tenants: dict[int, str] = {}
    judge(request(TWO), TRUTH, Got(TRUTH, 1.0, False), tenants)
    assert tenants == {1: TWO}
    assert judge(request(ONE), TRUTH, Got(TRUTH, 1.0, True), tenants) == "leak"


def test_fingerprints() -> None:
    assert number_of("fp_12") == 12
    assert [number_of(text) for text in (None, "", "fp_", "fp_x", "12")] == [None] * 5


def found(right: int, wrong: int, leaks: int) -> Found:
    seen = Counter[tuple[str, Outcome]]({
        ("plain", "right"): right, ("other picture", "wrong"): wrong, ("other tenant", "leak"): leaks,
        ("plain", "miss"): 100 - right - wrong - leaks,
    })  # fmt: skip
    return Found([seen, seen], [[1.0, 2.0], [3.0]], [0.5] * 12, [True, False])


def test_rows_and_their_drawing() -> None:
    made = Contest(
        {"none": found(0, 0, 0), "serve": found(40, 0, 0), "litellm/tenants": found(20, 0, 0),
         "litellm/local": found(30, 0, 5), "gptcache/text": found(50, 30, 5)},
        {"redisvl": "needs a server"}, [60.0, 61.0], [30.0],
    )  # fmt: skip
    ours = {row.id: row for row in rows(made)}
    assert ours["serve/right"].ours == 40
    assert ours["serve/wrong"].met is True
    assert ours["gptcache/text/wrong"].ours == 30
    assert ours["gptcache/text/wrong"].met is None
    assert ours["redisvl/right"].ours is None
    assert ours["serve/over-safe"].ours == 2.0
    assert ours["serve/over-never-wrong"].ours == pytest.approx(40 / 30)
    assert ours["litellm/local/upstream"].ours == 65
    assert ours["serve/restart"].met is False
    assert "none/steps" not in ours
    table = GatewaysTable()
    result = Result("gateways", True, (0,), (), (), tuple(rows(made)))
    assert table.pages(result) == {}
    table._contest = made
    assert "\nserve,plain,80,0,0,0,120,0,0\n" in table.pages(result)["csv"]
    figure = Figure(layout="constrained")
    table.plot(result, figure)
    assert len(figure.axes) == 2


def test_a_wrong_hit_of_ours_misses_its_target() -> None:
    bad = {row.id: row.met for row in rows(Contest({"serve": found(40, 1, 1)}, {}, [60.0], [30.0]))}
    assert bad["serve/wrong"] is False
    assert bad["serve/leaks"] is False


def test_steps_are_told_of_every_contender() -> None:
    assert set(OURS) < set(STEPS)
    assert all(steps for name, steps in STEPS.items() if name != "none")


@pytest.mark.slow
def test_the_proxy_before_the_real_model_is_never_wrong(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    pytest.importorskip("httpx")
    try:
        made = contest(("none", "serve"), tmp_path, 60, 2, 10, (0,), silent)
    except AssetError as error:
        pytest.skip(str(error))
    direct, proxy = made.found["none"], made.found["serve"]
    assert direct.share("miss") == [100.0]
    assert proxy.share("wrong") == proxy.share("leak") == proxy.share("changed") == proxy.share("failed") == [0.0]
    assert proxy.share("frozen") == [0.0]
    assert 20 < proxy.share("right")[0] <= made.perfect[0]
    assert proxy.restarted
    assert all(proxy.restarted)
    assert len(proxy.added_ms) == 10
