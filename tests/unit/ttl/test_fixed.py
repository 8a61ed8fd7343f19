"""Fixed lifetimes, with and without jitter."""

from __future__ import annotations

from statistics import mean

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.testing import make_key
from mmcache.ttl.fixed import FixedTTL

FACTS = Facts(1)


def test_for_ever() -> None:
    assert FixedTTL().deadline(make_key(1), FACTS, 5.0) is None


@pytest.mark.parametrize("seconds", [0, 1.5, 3600])
def test_fixed(seconds: float) -> None:
    assert FixedTTL(seconds).deadline(make_key(1), FACTS, 5.0) == 5.0 + seconds


@given(st.binary(min_size=48, max_size=48), st.floats(0, 0.99))
def test_jitter_shortens_within_bounds_and_is_repeatable(raw: bytes, jitter: float) -> None:
    key = Key.from_bytes(raw)
    deadline = FixedTTL(100, jitter).deadline(key, FACTS, 0.0)
    assert deadline == FixedTTL(100, jitter).deadline(key, FACTS, 0.0)
    assert deadline is not None
    assert 100 * (1 - jitter) - 1e-9 <= deadline <= 100


def test_jitter_spreads_also_the_tiles_of_one_picture() -> None:
    digests = [blake3(bytes([n])).digest(length=16) for n in range(200)]
    for keys in ([Key(bytes(16), d) for d in digests], [Key(bytes(16), digests[0], d) for d in digests]):
        deadlines = [FixedTTL(100, 0.5).deadline(key, FACTS, 0.0) or 0.0 for key in keys]
        assert len(set(deadlines)) == 200
        assert mean(deadlines) == pytest.approx(75, abs=5)


@pytest.mark.parametrize(
    ("seconds", "jitter"), [(-1, 0), (float("inf"), 0), (float("nan"), 0), (1, 1.0), (1, -0.1), (1, float("nan"))]
)
def test_settings_out_of_bounds(seconds: float, jitter: float) -> None:
    with pytest.raises(SettingsError):
        FixedTTL(seconds, jitter)
