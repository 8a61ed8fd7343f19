"""Frames that are worth a model's time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mmcache.model.errors import SettingsError
from mmcache.prefetch.media.scenes import HEIGHT, WIDTH, Grey, SceneOptions, Scenes


def grey(level: int, lines: int = 0) -> Grey:
    picture = np.full((HEIGHT, WIDTH), level, np.uint8)
    for line in range(lines):
        picture[4 + 6 * line : 7 + 6 * line, 8:48] = 40
    return picture


def kept(frames: list[tuple[int, Grey]], options: SceneOptions | None = None) -> list[tuple[int, int]]:
    scenes: Scenes[int] = Scenes(options or SceneOptions())
    found = [(one.start_ms, one.frame_ms) for ms, picture in frames for one in scenes.look(ms, picture, ms)]
    return found + [(one.start_ms, one.frame_ms) for one in scenes.end()]


def still(picture: Grey, begin: int, end: int, step: int = 40) -> list[tuple[int, Grey]]:
    return [(ms, picture) for ms in range(begin, end, step)]


def test_the_first_frame_of_each_scene_is_kept() -> None:
    frames = still(grey(240), 0, 1000) + still(grey(240, 1), 1000, 2000) + still(grey(240, 2), 2000, 3000)
    assert kept(frames) == [(0, 0), (1000, 1000), (2000, 2000)]


def test_noise_is_no_change() -> None:
    random = np.random.default_rng(0)
    frames = [
        (ms, (grey(200, 2) + random.integers(-3, 4, (HEIGHT, WIDTH))).astype(np.uint8)) for ms in range(0, 4000, 40)
    ]
    assert kept(frames) == [(0, 0)]


def test_of_a_fade_the_picture_after_it_is_kept_and_its_start_is_told() -> None:
    fade = [(1000 + 40 * n, grey(240 - 20 * n)) for n in range(11)]
    frames = still(grey(240), 0, 1000) + fade + still(grey(40), 1440, 3000)
    (_, _), (start, frame) = kept(frames)
    assert start == 1040
    assert 1400 <= frame <= 1440


def test_a_flash_is_no_scene() -> None:
    frames = [*still(grey(240, 1), 0, 1000), (1000, grey(255)), *still(grey(240, 1), 1040, 2000)]
    assert kept(frames) == [(0, 0)]


def test_one_frame_that_is_shown_long_is_a_scene() -> None:
    assert kept([(0, grey(240)), (5000, grey(100)), (9000, grey(20))]) == [(0, 0), (5000, 5000), (9000, 9000)]


def test_what_never_rests_is_kept_now_and_then() -> None:
    random = np.random.default_rng(0)
    frames = [(40 * n, random.integers(0, 255, (HEIGHT, WIDTH)).astype(np.uint8)) for n in range(250)]
    found = kept(frames)
    assert 4 <= len(found) <= 6
    assert all(later - earlier >= 2000 for (_, earlier), (_, later) in pairwise(found))


def test_what_never_changes_is_kept_at_the_longest_gap() -> None:
    options = SceneOptions(longest_gap_ms=10_000)
    assert kept(still(grey(90), 0, 35_000, 500), options) == [(ms, ms) for ms in (0, 10_000, 20_000, 30_000)]


def test_a_video_of_one_frame_and_of_none() -> None:
    assert kept([(0, grey(1))]) == [(0, 0)]
    assert kept([]) == []


@pytest.mark.parametrize(
    "options", [{"changed_share": 0.0}, {"moving_level": 0}, {"changed_level": 3}, {"settled_ms": 0}]
)
def test_options_that_make_no_sense(options: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        SceneOptions(**options)
