"""The made-up weeks are what they say, and the cache of the table is a real one."""

from __future__ import annotations

import numpy as np
from tests.unit.hotkeys.test_lifetime_watch import steady

from mmcache.lab.lifetime_cache import serve
from mmcache.lab.lifetime_days import DAY, START, WIDTH, generate
from mmcache.lab.lifetime_ways import blind
from mmcache.learn.lifetime_history import Counted
from mmcache.lifespan.inputs import LifeScale
from mmcache.lifespan.model import LifeModel


def test_weeks_repeat_and_topics_change_on_their_day() -> None:
    one, other = (generate(3, keys=300, days=20, change=12, per_day=800.0) for _ in range(2))
    assert np.array_equal(one.uses.at, other.uses.at)
    assert np.array_equal(one.uses.key, other.uses.key)
    uses = one.uses
    assert (np.diff(uses.at) >= 0).all()
    day = ((uses.at - START) // DAY).astype(int)
    assert set(day.tolist()) == set(range(20))
    new = {key for key in set(uses.key.tolist()) if day[uses.key == key].min() >= 12}
    before, after = ((day >= first) & (day < first + 3) for first in (8, 15))
    share = [np.mean([key in new for key in uses.key[its].tolist()]) for its in (before, after)]
    assert share[0] == 0.0
    assert share[1] > 0.3
    assert 0.1 < 1 - uses.text.any(axis=1).mean() < 0.3
    assert not blind(uses).text.any()


def test_tiers_act_on_a_real_cache() -> None:
    counted = Counted(generate(3, keys=80, days=14, change=12, per_day=150.0).uses, LifeScale())
    plain = serve(counted, None, 0, None, most=400)
    made = steady()
    wide = LifeModel(
        made.scale,
        {**made.weights, "about.text": np.zeros((32, WIDTH), np.float32)},
        made.calibration,
        np.zeros((0, WIDTH), np.float32),
        made.image_groups,
    )
    tiered = serve(counted, wide, 0, None, most=400)
    assert 0 < tiered.refused < 100
    assert 0 < tiered.hits <= plain.hits
    assert plain.refused == plain.withheld == 0.0
