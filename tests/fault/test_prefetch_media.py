"""Warming a video is killed (`kill -9`), at different moments, and goes on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
from PIL import Image, ImageDraw, ImageFont

from mmcache import Cache
from mmcache.lab.film import film, steady
from mmcache.lab.warm_kill import Calls, kill
from mmcache.prefetch.media import Timeline, warm_video
from mmcache.prefetch.media.journal import FOLDER

STOPS_AT = (1, 5, 9, 14)
"""Computations before which it is killed."""


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("video") / "talk.mp4"
    shown = []
    for number in range(4):
        page = Image.new("RGB", (320, 180), "white")
        ImageDraw.Draw(page).text((20, 60), f"Page {number}", fill="black", font=ImageFont.load_default(28))
        shown.append((1000 * number, page))
    time = np.arange(4 * 16_000) / 16_000
    sound = 0.5 * (time % 1 < 0.6) * np.sin(2 * np.pi * 440 * time)
    film(path, shown, steady(4000, 10), sound.astype(np.float32))
    return path


@pytest.fixture(scope="module")
def whole(video: Path) -> tuple[Timeline, int]:
    """The timeline of a run that nobody stops, and its computations."""
    calls = Calls()
    with Cache() as cache:
        return warm_video(cache, video, calls.encoders(cache)).timeline, calls.total


@pytest.mark.parametrize("stop", STOPS_AT)
def test_a_killed_run_goes_on_where_it_was(video: Path, whole: tuple[Timeline, int], tmp_path: Path, stop: int) -> None:
    timeline, everything = whole
    assert everything > max(STOPS_AT)
    kill(tmp_path, video, stop)
    calls = Calls()
    with Cache(tmp_path) as cache:
        warmed = warm_video(cache, video, calls.encoders(cache))
    assert warmed.timeline == timeline
    assert warmed.timeline.complete
    # Blocks that the kill caught on their way to the disk are computed again, and nothing else is.
    assert everything - (stop - 1) <= calls.total <= everything


def test_a_journal_that_was_torn_anywhere_costs_work_and_no_more(
    video: Path, whole: tuple[Timeline, int], tmp_path: Path
) -> None:
    with Cache(tmp_path) as cache:
        warm_video(cache, video, Calls().encoders(cache))
        (journal,) = (tmp_path / FOLDER).glob("*.jsonl")
        size = journal.stat().st_size
        for share in (0.0, 0.1, 0.37, 0.62, 0.9, 0.999):
            os.truncate(journal, int(share * size))
            assert warm_video(cache, video, Calls().encoders(cache)).timeline == whole[0]
            assert journal.stat().st_size == size
