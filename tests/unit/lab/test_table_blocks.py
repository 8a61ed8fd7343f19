"""Table `blocks`: its requests are what it says; the two sides agree. With a tiny encoder instead of the real one."""

from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image

from mmcache.lab import pages
from mmcache.lab.models import ImageEncoder
from mmcache.lab.table_blocks import (
    STRIDE,
    WINDOW,
    Encoder,
    Floats,
    Request,
    blocks_of,
    crops,
    revisions,
    windows,
    work,
)


class Mean(ImageEncoder):
    """The mean colour: float32 [3]."""

    def encode_batch(self, pictures: Sequence[Image.Image]) -> list[Floats]:
        return [np.asarray(one, np.float32).reshape(-1, 3).mean(axis=0) for one in pictures]


def noise(seed: int, width: int = 700, height: int = 500) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (height, width, 3), np.uint8))


def test_overlapping_crops_share_tiles() -> None:
    picture = noise(0)
    requests: list[Request] = [
        (picture, (0, 0, 300, 300)),
        (picture, (100, 100, 400, 300)),
        (picture, (0, 0, 300, 300)),
    ]
    asked, whole, parts = work(requests, Encoder(Mean()))
    assert (asked, whole, parts) == (4 + 4 + 4, 4, 4)


def test_windows_share_frames() -> None:
    frames = [noise(number, 20, 20) for number in range(WINDOW + 2 * STRIDE)]
    requests = list(windows(frames, STRIDE))
    asked, whole, parts = work(requests, Encoder(Mean()))
    assert len(requests) == 3
    assert (asked, whole, parts) == (3 * WINDOW, 3 * WINDOW, len(frames))


def test_drawn_requests_are_inside_and_repeat_for_a_seed() -> None:
    pictures = [noise(1), noise(2)]
    drawn = [list(crops(np.random.default_rng(3), 30, pictures)) for _ in range(2)]
    assert [blocks_of(one) for one in drawn[0]] == [blocks_of(one) for one in drawn[1]]
    for request in drawn[0]:
        assert isinstance(request, tuple)
        picture, (left, upper, right, lower) = request
        assert 0 <= left < right <= picture.width
        assert 0 <= upper < lower <= picture.height


@pytest.mark.parametrize(("edit", "kept"), [(pages.corrected, True), (pages.extended, False)])
def test_an_edit_changes_one_page_or_all_that_follow(edit: object, kept: bool) -> None:
    assert callable(edit)
    document = tuple(f"line {number}" for number in range(5 * pages.LINES))
    before, after = pages.pages(document), pages.pages(edit(document, np.random.default_rng(0)))
    equal = [one == other for one, other in zip(before, after, strict=False)]
    assert equal.count(False) == (1 if kept else len(equal) - equal.index(False))


def test_documents_are_real_and_long() -> None:
    chapters = pages.documents(3)
    assert all(len(pages.pages(chapter)) >= 3 for chapter in chapters)
    assert pages.pages(chapters[0])[0].getextrema() == ((0, 255),) * 3
    requests = list(revisions(np.random.default_rng(0), 4, chapters, pages.corrected))
    assert work(requests, Encoder(Mean()))[2] < work(requests, Encoder(Mean()))[0]
