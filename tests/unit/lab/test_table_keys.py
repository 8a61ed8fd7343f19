"""The table `keys`: its pairs are what they claim to be, and its figures add up."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.keys.media import noise

from mmcache.lab import table_keys
from mmcache.lab.table import silent


def test_pairs_are_told_apart() -> None:
    image = noise(24, 16)
    equal, unequal = list(table_keys._equal(image)), list(table_keys._unequal(image, np.random.default_rng(0)))
    assert len(equal) == 7
    assert len(unequal) == 9
    assert all(one == two for one, two in equal)
    assert all(one != two for one, two in unequal)


@pytest.mark.slow
def test_the_quick_table_meets_its_exact_targets() -> None:
    found = {row.id: row for row in table_keys.KeysTable().run(True, (0,), silent).rows}
    assert found["equal/missed"].ours == 0
    assert found["unequal/shared"].ours == 0
    assert (found["equal/pairs"].ours or 0) > 400
    assert (found["unequal/pairs"].ours or 0) > 10_000
