"""Table `joint`: its stream, its figures, and what counts as cold. No model runs, nothing is fetched."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmcache.keys.joint import Alignment
from mmcache.lab.data.gimp_help import LONGEST, Figure, figures
from mmcache.lab.joint_corpus import Store
from mmcache.lab.joint_runs import WINDOW, Costs, Run, compare
from mmcache.lab.joint_stream import EDITS, KINDS, WORDINGS, edited, requests
from mmcache.lab.table_joint import rows
from mmcache.model.errors import AssetError

COSTS = Costs(0.07, 0.015, 0.001, 0.0001)


@pytest.fixture
def manual(tmp_path: Path) -> list[Figure]:
    found = []
    for number in range(4):
        path = tmp_path / f"{number}.png"
        Image.effect_noise((40, 30), 20 + number).convert("RGB").save(path)
        found.append(Figure(path, f"caption {number}", f"page {number}", "text"))
    return found


def run(hits: list[bool], change: int, refresh: float = 0.0) -> Run:
    kinds = [list(KINDS)[place % len(KINDS)] for place in range(len(hits))]
    return Run(hits, kinds, seconds=[0.5] * len(hits), change=change, refresh=refresh)


def test_requests_repeat_for_a_seed_and_keep_their_shares(manual: list[Figure]) -> None:
    one, other = requests(manual, [0, 1, 2], 2000, 0), requests(manual, [0, 1, 2], 2000, 0)
    assert one == other
    assert {request.figure for request in one} == {0, 1, 2}
    for kind, share in KINDS.items():
        assert sum(request.kind == kind for request in one) / 2000 == pytest.approx(share, abs=0.04)
    originals = {figure.picture.read_bytes() for figure in manual}
    first = {wordings[0].format(caption=f.caption, page=f.page) for wordings in WORDINGS for f in manual}
    for request in one:
        assert (request.picture in originals) == (request.kind in ("repeat", "words"))
        assert (request.words in first) == (request.kind in ("repeat", "picture"))


@pytest.mark.parametrize("edit", EDITS)
def test_edits_change_the_pixels_and_keep_the_picture(manual: list[Figure], edit: str) -> None:
    file = manual[0].picture.read_bytes()
    with Image.open(io.BytesIO(edited(file, edit))) as copy, Image.open(io.BytesIO(file)) as original:
        assert copy.mode == "RGB"
        small = [np.asarray(one.convert("RGB").resize((4, 4)), np.float32) for one in (copy, original)]
        assert copy.size != original.size or copy.tobytes() != original.tobytes()
    assert np.abs(small[0] - small[1]).mean() < 30


def test_cold_ends_where_the_next_window_hits_again() -> None:
    steady = [True] * 10 * WINDOW
    assert run(steady + steady, 10 * WINDOW).gap(10 * WINDOW) == 0.0
    cold = run([*steady, *[False] * 50, *steady], 10 * WINDOW)
    assert cold.gap(10 * WINDOW) == pytest.approx(0.5 * (50 - WINDOW // 10))  # a tenth of the window may miss
    assert run(cold.hits, 10 * WINDOW, refresh=2.0).gap(10 * WINDOW) == pytest.approx(0.5 * 40 + 2.0)
    assert run(cold.hits, 10 * WINDOW, refresh=2.0).gap(0) == 0.0
    assert run([*steady, *[False] * 300], 10 * WINDOW).gap(10 * WINDOW) == 0.5 * (300 - WINDOW)  # never warm


def test_near_hits_are_compared_with_the_store() -> None:
    found = Run()
    compare(found, [1, 2, 3], [1, 2, 4], 4)
    compare(found, [5, 6, 7], [7, 6, 5], 7)
    assert (found.near, found.wrong, found.lost) == (2, 1, 1)
    assert found.overlap == pytest.approx(2 / 3 + 1)


def test_rows_put_published_figures_beside_their_strategy() -> None:
    one = run([False, True] * 5 * WINDOW, 5 * WINDOW)
    one.near, one.wrong, one.overlap = 10, 1, 9.0
    arms = ("published-key", "exact", "vision", "text", "joint", "refreshed", "restarted")
    found = {row.id: row for row in rows({arm: [one, one] for arm in arms}, COSTS)}
    assert found["vision/hits"].published == 58.2
    assert found["vision/hits"].target is None
    assert (found["joint/hits"].target, found["joint/hits"].ours) == (79.6, 50.0)
    assert found["joint/wrong"].ours == 10.0
    assert not found["joint/wrong"].met
    assert found["cost/picture"].ours == pytest.approx(70)
    assert found["refreshed/gap/corpus"].target == found["restarted/gap/restart"].target == 0.3
    assert found["refreshed/gap/corpus"].published is None


def test_the_store_leaves_out_what_is_gone() -> None:
    pytest.importorskip("usearch")
    random = np.random.default_rng(0)
    pictures, texts = random.standard_normal((2, 40, 8)).astype(np.float32)
    alignment = Alignment.fit(pictures, texts)
    whole, less = Store(alignment, pictures, texts), Store(alignment, pictures, texts, frozenset({3}))
    assert whole.search(pictures[3], texts[3], 5)[0] == 3
    assert 3 not in less.search(pictures[3], texts[3], 5)
    assert (whole.searches, less.searches) == (1, 1)


@pytest.mark.slow
def test_the_manual_is_the_pinned_one() -> None:
    try:
        found = figures()
    except AssetError as error:
        pytest.skip(str(error))
    assert len(found) == 1117
    assert len({one.picture for one in found}) == len(found)
    assert all(one.caption and one.page and len(one.passage) <= LONGEST for one in found)
    assert found[0].caption == "The “Print” dialog"
    assert sum(bool(one.passage) for one in found) > 950
