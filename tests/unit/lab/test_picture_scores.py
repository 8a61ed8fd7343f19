"""What table `vqa` measures with: marks, baselines, masks, the pointing game."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageDraw

from mmcache.lab.data.picture_questions import Asked, kind
from mmcache.lab.picture_scores import (
    blind,
    box_of,
    cells_of,
    intersection_over_union,
    mark,
    overlap,
    painted_over,
    point,
    shape_mask,
)

QUESTIONS = [
    Asked("what color is the shape?", "red", 0),
    Asked("is there a circle?", "yes", 0),
    Asked("what color is the shape?", "blue", 1),
    Asked("is there not a circle?", "yes", 1),
]


def knowing(picture: int, questions: Sequence[str | None]) -> list[str]:
    """Knows everything, and answers for the picture that it is shown."""
    right = {(one.picture, one.question): one.answer for one in QUESTIONS}
    return [right.get((picture, question or ""), "no") for question in questions]


@pytest.fixture
def circle(tmp_path: Path) -> Path:
    picture = Image.new("RGB", (64, 64), (240, 230, 250))
    ImageDraw.Draw(picture).ellipse((8, 8, 23, 23), fill=(255, 0, 0))
    picture.save(tmp_path / "0.png")
    return tmp_path / "0.png"


def test_marks_count_right_answers_by_type() -> None:
    found = mark(QUESTIONS, knowing)
    assert found.right.tolist() == [1, 1, 1, 1]
    assert found.of("colour").right.size == 2
    assert found.by_picture(draws=10) == [100.0] * 10
    shown = mark(QUESTIONS, knowing, {0: 1, 1: 0})
    assert shown.right.tolist() == [0, 0, 0, 0]


def test_types_of_questions() -> None:
    assert [kind(one.question) for one in QUESTIONS] == ["colour", "is there", "colour", "is there not"]
    assert kind("what shape is present?") == kind("what is the red shape?") == "shape"
    assert kind("is no teal shape present?") == "is there not"


def test_the_blind_baseline_gives_each_questions_commonest_answer() -> None:
    taught = [*QUESTIONS, Asked("what color is the shape?", "blue", 2)]
    assert blind(taught)(7, ["what color is the shape?", "is there a circle?", "never asked", None]) == [
        "blue",
        "yes",
        "",
        "",
    ]


def test_overlap_of_words() -> None:
    assert overlap("a red circle", "a red circle") == 1
    assert overlap("red circle", "blue circle") == 0.5
    assert overlap("", "x") == 0


def test_the_shapes_pixels_and_cells(circle: Path) -> None:
    mask = shape_mask(circle)
    assert box_of(mask) == (8, 8, 24, 24)
    assert 150 < mask.sum() < 256
    assert np.argwhere(cells_of(mask)).min() == 2
    assert np.argwhere(cells_of(mask)).max() == 5
    painted = np.asarray(painted_over(circle, (8, 8, 24, 24)))
    assert len(np.unique(painted.reshape(-1, 3), axis=0)) == 1


def test_intersection_over_union() -> None:
    assert intersection_over_union((0, 0, 2, 2), (0, 0, 2, 2)) == 1
    assert intersection_over_union((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert intersection_over_union((0, 0, 1, 1), (5, 5, 6, 6)) == 0


def test_pointing_at_the_shape_is_a_hit_and_beside_it_none(circle: Path) -> None:
    masks = {0: shape_mask(circle), 1: np.roll(shape_mask(circle), 32, axis=1)}

    def look(picture: int) -> tuple[npt.NDArray[np.float32], Sequence[str], int]:
        attention = np.full((3, 16, 16), 1e-4, np.float32)
        attention[:, 2:6, 2:6] = 1 / 16
        return attention, ["what", "shape", "circle"], 2

    on, beside = point([0, 1], look, masks)
    assert (on.hit, on.overlap, on.elsewhere) == (1, 1, 0)
    assert on.box == (8, 8, 24, 24)
    assert (beside.hit, beside.overlap, beside.elsewhere) == (0, 0, 1)
    assert on.chance == beside.chance == cells_of(masks[0]).mean()
    assert on.inside > 0.9 > beside.inside
