"""The table `clock`: what counts as early, late and an avalanche. No server is started."""

from __future__ import annotations

import pytest

from mmcache.lab.clock_night import NODES, WAYS, Life, Night, _Spending
from mmcache.lab.table_clock import rows


def night(*lives: Life) -> Night:
    return Night({name: {way: list(lives) for way in WAYS} for name in NODES})


def test_lives_become_rows() -> None:
    good = [Life(deadline=n, died=n + 0.1, past=0.05, asked=10) for n in range(1, 8)]
    early = Life(deadline=9.0, died=8.0, before=1.0, asked=10)
    late = Life(deadline=3.0, past=1.5, asked=10, unanswered=5)
    immortal = Life(deadline=9.0, asked=0, past=0.9)
    found = {row.id: row for row in rows([night(*good, early, late, immortal)])}
    assert found["back/ours/early"].ours == 10
    assert found["back/ours/before"].ours == 1
    assert found["back/ours/late"].ours == 10
    assert found["back/ours/past"].ours == 1.5
    assert found["back/ours/avalanche"].ours == 10
    assert found["ours/unanswered"].ours == pytest.approx(100 * 5 / 90)
    assert found["skewed/px/early"].target is None
    assert found["skewed/ours/early"].met is False


def test_what_vanishes_together_is_an_avalanche() -> None:
    lives = [Life(deadline=9.0, died=5.0 + n / 10) for n in range(6)] + [
        Life(deadline=9.0, died=float(n)) for n in range(4)
    ]
    for life in lives:
        life.asked = 1
    found = {row.id: row for row in rows([night(*lives)])}
    assert found["forward/ours/avalanche"].ours == 60
    assert found["forward/ours/avalanche"].met is False


def test_an_answer_proves_only_what_its_times_prove(monkeypatch: pytest.MonkeyPatch) -> None:
    spending = object.__new__(_Spending)
    times = iter([4.0, 4.9, 5.1, 5.4, 5.4, 5.6])
    monkeypatch.setattr(spending, "now", lambda: next(times), raising=False)
    lives = [Life(5.0), Life(5.0), Life(6.0)]
    spending._ask(lives, lambda numbers: [True, False, None])
    assert (lives[0].past, lives[0].before, lives[0].died) == (0.0, 0.0, None), "it was asked before the deadline"
    assert (lives[1].past, lives[1].before, lives[1].died) == (0.0, 0.0, 5.1), "it may have ended meanwhile"
    assert (lives[2].unanswered, lives[2].asked) == (1, 1)
    spending._ask(lives, lambda numbers: [True, False, False])
    assert lives[0].past == pytest.approx(0.4)
    assert lives[2].before == pytest.approx(0.4)
    assert lives[1].died == 5.1
