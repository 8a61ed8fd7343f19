"""Table `coldstart`: what counts as warm, and that its requests repeat for a seed. Nothing is encoded."""

import pytest

from mmcache.lab.table_coldstart import WINDOW, Run, draw, rows


def run(hits: list[bool], ready: float = 1.0) -> Run:
    return Run(ready, (0.5,) * len(hits), tuple(hits))


COLD = run([False] * WINDOW + [True] * 3 * WINDOW)
WARM = run([True] * 4 * WINDOW, ready=2.0)
NEVER = run([False] * 2 * WINDOW)


def test_warm_is_a_whole_window() -> None:
    assert COLD.steady() == 1.0
    assert COLD.warm(0.9) == WINDOW + round(0.9 * WINDOW)
    assert WARM.warm(0.9) == WINDOW
    assert NEVER.warm(0.9) == 2 * WINDOW


def test_waiting_includes_loading() -> None:
    assert WARM.elapsed(2) == 2.0 + 2 * 0.5


def test_rows_compare_with_the_empty_start() -> None:
    found = {row.id: row for row in rows({"empty": [COLD], "snapshot": [WARM], "stale-snapshot": [COLD]})}
    assert found["steady"].ours == 100
    assert found["snapshot/requests"].ours == WINDOW
    assert found["snapshot/first-window"].ours == 100
    assert found["empty/first-window"].ours == 0
    assert found["snapshot/sooner"].ours == pytest.approx((1 + 0.5 * 76) / (2 + 0.5 * 40))
    assert found["snapshot/sooner"].met
    assert found["stale-snapshot/sooner"].ours == 1.0


def test_draw_repeats_and_a_stale_sample_differs() -> None:
    one, two, other = draw(1, quick=True), draw(1, quick=True), draw(2, quick=True)
    assert one == two
    assert one.fresh != other.fresh
    assert not set(one.fresh) <= set(one.stale)
    gone = set(one.stale) - set(one.sample) - set(one.fresh)
    assert gone
