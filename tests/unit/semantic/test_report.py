"""The report knows each population's own settings."""

from __future__ import annotations

from functools import partial

from tests.unit.semantic.world import MODEL, Model, semantic, teach

from mmcache import Cache


def test_the_report_knows_the_share_of_checks() -> None:
    model = Model()
    with Cache(semantic=semantic(check_share=0.3)) as cache:
        teach(partial(cache.ask, answer=model, model=MODEL), model, rounds=700)
        (found,) = cache.meaning.report()
        assert cache.meaning.planner is not None
        (learner,) = cache.meaning.planner.populations._learners.values()
        share = learner.calibration.summary()["check_share"]
    assert found.state == f"serving, 1 of {1 / share:.0f} checked"
