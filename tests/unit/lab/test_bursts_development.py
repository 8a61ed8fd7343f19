"""Streams that are drawn: their rates are what they say, and they repeat."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.lab.bursts_development import MOVING, STEADY, drawn

HOURS_12 = 12 * 3600.0
RATES = {"poisson-0.3": 0.3, "switched-fast": 10 / 3, "switched-rare": 3.0, "gamma-0.2": 3.0, "gamma-0.02": 3.0}


@pytest.mark.parametrize("name", [*STEADY, *MOVING])
def test_streams_repeat_and_are_in_order(name: str) -> None:
    stream, again, other = (drawn(name, seed, 3600.0) for seed in (0, 0, 1))
    assert (stream.times == again.times).all()
    assert len(stream.times) != len(other.times) or (stream.times != other.times).any()
    assert (np.diff(stream.times) >= 0).all()
    assert stream.times[0] >= 0
    assert stream.times[-1] < 3600


@pytest.mark.parametrize("name", [*STEADY])
def test_rates_are_as_told(name: str) -> None:
    rate = RATES.get(name, 5.0 if name == "poisson-5" else 4.0)
    assert len(drawn(name, 0, HOURS_12).times) / HOURS_12 == pytest.approx(rate, rel=0.12)


def test_clusters_are_wider_than_poisson() -> None:
    dispersion = {}
    for name in STEADY:
        counts = drawn(name, 0, HOURS_12).counts(60.0)
        dispersion[name] = float(counts.var() / counts.mean())
    assert dispersion.pop("poisson-0.3") == pytest.approx(1, abs=0.2)
    assert dispersion.pop("poisson-5") == pytest.approx(1, abs=0.2)
    assert min(dispersion.values()) > 3


def test_a_weekend_has_fewer() -> None:
    counts = drawn("weekly", 0, 7 * 86_400.0).counts(86_400.0)
    assert counts[5:].mean() == pytest.approx(0.4 * counts[:5].mean(), rel=0.02)
