"""Warming a video is killed (`kill -9`), at different moments, and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")
from PIL import Image, ImageDraw, ImageFont

from mmcache import Cache
from mmcache.encoder import Encoder
from mmcache.lab import warm_models
from mmcache.lab.film import film, steady
from mmcache.prefetch.media import Timeline, warm_video
from mmcache.prefetch.media.journal import FOLDER

STOPS = """
import sys
from functools import wraps
from mmcache import Cache
from mmcache.lab import warm_models
from mmcache.prefetch.media import warm_video

root, video, stop = sys.argv[1], sys.argv[2], int(sys.argv[3])
calls = 0

def counted(function):
    @wraps(function)
    def call(given):
        global calls
        calls += 1
        if calls == stop:
            print("here", flush=True)
            sys.stdin.read()  # until it is killed
        return function(given)
    return call

with Cache(root) as cache:
    encoders = {}
    for name, plain in warm_models.make(cache).items():
        wrapped = counted(plain.__wrapped__)
        encoders[name] = cache.wrap(wrapped, modality=plain.signature.modality, signature=plain.signature, guard=False)
    warm_video(cache, video, encoders)
print("done", flush=True)
"""


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


def counted(cache: Cache, calls: Counter[str]) -> dict[str, Encoder]:
    """Plain models, with the signatures of the child's, that count their calls."""

    def wrap(name: str, plain: Encoder) -> Encoder:
        def call(given: Any) -> Any:
            calls[name] += 1
            return plain.__wrapped__(given)

        return cache.wrap(call, modality=plain.signature.modality, signature=plain.signature, guard=False)

    return {name: wrap(name, plain) for name, plain in warm_models.make(cache).items()}


@pytest.fixture(scope="module")
def whole(video: Path) -> tuple[Timeline, int]:
    """The timeline of a run that nobody stops, and its computations."""
    calls: Counter[str] = Counter()
    with Cache() as cache:
        return warm_video(cache, video, counted(cache, calls)).timeline, calls.total()


STOPS_AT = (1, 5, 9, 14)


@pytest.mark.parametrize("stop", STOPS_AT)
def test_a_killed_run_goes_on_where_it_was(video: Path, whole: tuple[Timeline, int], tmp_path: Path, stop: int) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", STOPS, str(tmp_path), str(video), str(stop)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "here\n"
    finally:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
    timeline, everything = whole
    assert everything > max(STOPS_AT)
    calls: Counter[str] = Counter()
    with Cache(tmp_path) as cache:
        warmed = warm_video(cache, video, counted(cache, calls))
    assert warmed.timeline == timeline
    assert warmed.timeline.complete
    # Blocks that the kill caught on their way to the disk are computed again, and nothing else is.
    assert everything - (stop - 1) <= calls.total() <= everything


def test_a_journal_that_was_torn_anywhere_costs_work_and_no_more(
    video: Path, whole: tuple[Timeline, int], tmp_path: Path
) -> None:
    with Cache(tmp_path) as cache:
        warm_video(cache, video, warm_models.make(cache))
        (journal,) = (tmp_path / FOLDER).glob("*.jsonl")
        size = journal.stat().st_size
        for share in (0.0, 0.1, 0.37, 0.62, 0.9, 0.999):
            os.truncate(journal, int(share * size))
            assert warm_video(cache, video, warm_models.make(cache)).timeline == whole[0]
            assert journal.stat().st_size == size
