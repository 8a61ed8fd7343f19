"""Admission by size: the bound itself is still admitted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.admission.base import Admit, Reject
from mmcache.admission.size import Always, LargestShare
from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.event import RefuseReason
from mmcache.testing import make_key


@given(st.integers(0, 1 << 50))
def test_always(size: int) -> None:
    assert Always().judge(make_key(1), Facts(size), 0.0) == Admit()


@pytest.mark.parametrize(("size", "admitted"), [(0, True), (250, True), (251, False), (1 << 40, False)])
def test_largest_share(size: int, admitted: bool) -> None:
    verdict = LargestShare(0.25, 1000).judge(make_key(1), Facts(size), 0.0)
    assert verdict == (Admit() if admitted else Reject(RefuseReason.TOO_LARGE))


@pytest.mark.parametrize(("share", "limit"), [(0.0, 1), (1.01, 1), (float("nan"), 1), (0.5, -1)])
def test_settings_out_of_bounds(share: float, limit: int) -> None:
    with pytest.raises(SettingsError):
        LargestShare(share, limit)
