"""Table `decay`: drawn logs have the law they are drawn from, and the table runs without traces and says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from mmcache.lab import decay_logs, table_decay
from mmcache.lab.table import silent
from mmcache.ttl.decay import fit_decay


@pytest.mark.parametrize("law", decay_logs.AGES)
def test_drawn_logs_have_their_law(law: str) -> None:
    fit = fit_decay(decay_logs.draw(law, 0, 1000), replicates=0)
    assert fit.law == (law if law in table_decay.PUBLISHED_R2 else "neither")
    if fit.half_life_seconds is not None:
        truth = decay_logs.true_half_life(law, fit.youngest, fit.oldest)
        assert fit.half_life_seconds == pytest.approx(truth, rel=0.15)


def test_without_traces_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MMCACHE_TRACES", str(tmp_path))
    monkeypatch.setattr(table_decay, "QUICK", (2, 400))
    table = table_decay.DecayTable()
    result = table.run(True, [0], silent)
    assert any("no published trace" in line for line in result.simulated)
    assert all(row.id.startswith("drawn/") for row in result.rows)
    figure = Figure()
    table.plot(result, figure)
    assert figure.axes
