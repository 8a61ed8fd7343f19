"""Table `likeness`: its counts and intervals, and what its edits are."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("PIL", reason="pictures need Pillow")
pytest.importorskip("scipy", reason="intervals need scipy")

from PIL import Image

from mmcache.lab import edited_pictures, edited_sounds
from mmcache.lab.likeness_runs import Tally, contrary_questions, interval
from mmcache.lab.table_likeness import LikenessTable, rows_of
from mmcache.likeness.base import Nearness
from mmcache.model.errors import AssetError


def test_intervals_are_clopper_and_pearsons() -> None:
    assert interval(0, 100_000) == pytest.approx((0.0, 3.6888e-5), rel=1e-3)
    assert interval(10, 10) == pytest.approx((0.6915, 1.0), abs=1e-4)
    assert interval(5, 10) == pytest.approx((0.1871, 0.8129), abs=1e-4)


def test_rows_count_reencoded_copies_apart_from_crops() -> None:
    tally = Tally()
    for said in (Nearness.SAME, Nearness.REENCODED, Nearness.TRIMMED, Nearness.UNLIKE):
        tally.add(said)
    assert [row.ours for row in rows_of("frames/same/jpeg-75", tally)] == [50]
    assert [row.ours for row in rows_of("frames/crop/side-2", tally)] == [75]
    share, upper = rows_of("drawings/other/random", tally)
    assert share.spread is not None
    assert (share.ours, upper.ours) == (75, share.spread[1])
    assert share.target is None
    assert upper.met is False
    assert LikenessTable.name == "likeness"


def test_a_redrawn_shape_fills_the_same_box() -> None:
    sheet = np.full((64, 64, 3), 240, np.uint8)
    sheet[20:40, 10:30] = (200, 0, 0)
    forms = edited_pictures.redrawn(Image.fromarray(sheet))
    assert (np.asarray(forms["rectangle"]) == sheet).all()
    for form in forms.values():
        inked = (np.asarray(form) != 240).any(axis=2)
        assert inked[20:40, 10:30].any(axis=1).all()
        inked[20:40, 10:30] = False
        assert not inked.any()
    assert edited_pictures.redrawn(Image.new("RGB", (64, 64), "white")) == {}


def test_what_only_moved_does_not_count_as_changed() -> None:
    sheet = np.full((64, 64, 3), 240, np.uint8)
    sheet[20:40, 20:40] = (200, 0, 0)
    names = {name for name, _ in edited_pictures.changed(Image.fromarray(sheet), np.random.default_rng(0))}
    assert names == {"red-for-blue", "spot-1/16", "spot-1/10"}
    sheet[25:30, 50:60] = (0, 0, 200)
    names = {name for name, _ in edited_pictures.changed(Image.fromarray(sheet), np.random.default_rng(0))}
    assert {"mirrored", "upside-down", "turned-180"} <= names


def test_edits_of_sounds_repeat_for_a_seed() -> None:
    samples = np.random.default_rng(0).standard_normal(48_000).astype(np.float32)
    one, other = (dict(edited_sounds.changed(samples, samples[::-1], np.random.default_rng(1))) for _ in range(2))
    assert all((one[name] == other[name]).all() for name in one)
    assert one["cut-250ms"].size == 48_000 - 4000


def test_questions_with_contrary_answers_always_differ_in_words() -> None:
    try:
        pairs, missed = contrary_questions()
    except AssetError as error:
        pytest.skip(str(error))
    assert pairs > 1000
    assert missed == 0
