"""Table `ttl`: its traffic repeats, its replay counts what happens, on a handful of requests."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.lab import ttl_replay, ttl_traffic
from mmcache.lab.table_ttl import ARMS, OURS, rows
from mmcache.lab.ttl_replay import Outcome, avalanches, replay
from mmcache.lab.ttl_traffic import CHANGE_SECONDS, LATENCY, Traffic, draw
from mmcache.ttl.fixed import FixedTTL
from mmcache.ttl.gamma import Gamma


def traffic(times: list[float], contents: list[int]) -> Traffic:
    return Traffic(np.array(times), np.array(contents), ("text",) * (max(contents) + 1), ())


@pytest.fixture(autouse=True)
def _from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ttl_replay, ttl_traffic):
        monkeypatch.setattr(module, "WARM_UP", 0.0)
    monkeypatch.setitem(LATENCY, "text", Gamma(1e4, 0.1 / 1e4))  # 0.1 s, nearly always


def test_traffic_repeats_and_is_in_order() -> None:
    one, two, other = draw(1, 20.0), draw(1, 20.0), draw(2, 20.0)
    assert (one.times == two.times).all()
    assert (one.contents == two.contents).all()
    assert one.times.size != other.times.size
    assert (np.diff(one.times) >= 0).all()
    assert len(one.modality) == one.contents.max() + 1


def test_hits_waits_and_joins() -> None:
    found = replay(traffic([1.0, 1.05, 2.0, 10.0], [0, 0, 0, 0]), FixedTTL(5.0), 0)
    assert found.hits == 0.25  # the second waits for the first, the last comes too late
    assert found.p99 == pytest.approx(0.1, rel=0.05)
    assert found.saved == pytest.approx(0.5, rel=0.01)


def test_the_older_an_answer_the_likelier_its_source_has_changed() -> None:
    found = replay(traffic([1.0, 2.0, 3.0], [0] * 3), FixedTTL(100.0), 0)
    assert found.hits == pytest.approx(2 / 3)
    assert found.stale == pytest.approx(1.5 / CHANGE_SECONDS, rel=0.01)


def test_grace_answers_all_but_the_one_that_refreshes() -> None:
    asked = traffic([1.0, 7.0, 7.05, 7.06, 8.0], [0] * 5)
    assert replay(asked, FixedTTL(5.0), 0).hits == pytest.approx(1 / 5)
    assert replay(asked, FixedTTL(5.0), 0, grace=10.0).hits == pytest.approx(3 / 5)


def test_early_refresh_begins_before_the_end() -> None:
    times = [1.0, *np.arange(2.0, 20.0, 0.01).tolist()]
    plain, early = (replay(traffic(times, [0] * len(times)), FixedTTL(5.0), 0, beta=beta) for beta in (0.0, 3.0))
    assert early.hits > plain.hits


def test_an_avalanche_is_many_at_once() -> None:
    times = np.sort(np.tile(np.arange(0.0, 20.0), 10) + np.repeat(np.arange(10) / 100, 20))
    asked = traffic(times.tolist(), [round(100 * (t % 1)) for t in times])
    together = [(10.01, n) for n in range(10)]
    apart = [(5.05 + n, n) for n in range(10)]
    assert avalanches(asked, together) == 1.0
    assert avalanches(asked, apart) == 0.0
    assert avalanches(asked, []) == 0.0


def test_rows_hold_ours_against_the_fixed_lifetime_that_is_as_stale() -> None:
    def outcome(hits: float, stale: float) -> Outcome:
        return Outcome(hits, dict.fromkeys(LATENCY, hits), 0.2, stale, 0.0, hits)

    arms = {name: [outcome(0.8, (0.01 * 0.03) ** 0.5)] for name in ARMS}
    fixed = {2.0: [outcome(0.6, 0.01)], 8.0: [outcome(0.8, 0.03)]}
    found = {row.id: row for row in rows(arms, fixed)}
    assert found[f"hindsight/{OURS}/hits"].ours == pytest.approx(10.0)
    assert found[f"hindsight/{OURS}/hits"].met
    assert found["static/hits"].published == 68.3
    assert found[f"{OURS}/hits"].target == 89.1
