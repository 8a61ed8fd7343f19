"""The log-mel front end: shapes, bounds, refusals. Parity with transformers: tests/e2e/test_models.py."""

import numpy as np
import pytest

from mmcache.lab.models.mel import BANDS, RATE, filters, log_mel
from mmcache.model.errors import InvalidInputError


def tone(hertz: float, seconds: float = 1.0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE, dtype=np.float32)


def test_filters_cover_every_bin_below_the_top() -> None:
    bank = filters()
    assert bank.shape == (BANDS, 201)
    assert (bank >= 0).all()
    assert (bank.sum(axis=0)[1:200] > 0).all()


@pytest.mark.parametrize("hertz", [200.0, 1000.0, 4000.0])
def test_a_tone_is_loudest_in_its_band(hertz: float) -> None:
    mel = log_mel(tone(hertz))
    assert mel.shape == (BANDS, 100)
    assert mel.dtype == np.float32
    centre = np.fft.rfftfreq(400, 1 / RATE)[filters()[mel.mean(axis=1).argmax()].argmax()]
    assert abs(centre - hertz) <= 0.05 * hertz + 40


def test_range_is_eight_decades() -> None:
    mel = log_mel(tone(440))
    assert mel.max() - mel.min() <= 2.0 + 1e-6


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(399, np.float32),
        np.zeros(30 * RATE + 1, np.float32),
        np.zeros((2, RATE), np.float32),
        np.full(RATE, np.nan, np.float32),
        np.full(RATE, np.inf, np.float32),
    ],
)
def test_what_is_not_speech_is_refused(samples: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    with pytest.raises(InvalidInputError):
        log_mel(samples)


def test_silence_is_finite() -> None:
    assert np.isfinite(log_mel(np.zeros(RATE, np.float32))).all()
