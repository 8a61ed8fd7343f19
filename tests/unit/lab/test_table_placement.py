"""The arms of table `placement`, on features made up for the test."""

from __future__ import annotations

import numpy as np
import pytest

from mmcache.lab import placement_arms, table_placement
from mmcache.lab.placement_space import alignment_rows, deviation_rows
from mmcache.lab.placement_stream import LANGUAGES, TEXTS, Block, Corpus, stream
from mmcache.placement.moves import Price

COUNT = 40


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    random = np.random.default_rng(0)
    texts = {name: random.standard_normal((COUNT, 384)).astype(np.float32) for name in LANGUAGES}
    pictures = np.concatenate([texts["en"] + texts["fr"], texts["fr"]], axis=1)
    blocks: dict[Block, np.ndarray[tuple[int, ...], np.dtype[np.float16]]] = {}
    for n in range(COUNT):
        blocks["picture", n] = random.standard_normal((256, 384)).astype(np.float16)
        for name in LANGUAGES:
            blocks[name, n] = texts[name][n : n + 1].astype(np.float16)
    return Corpus(pictures, texts, blocks)


def test_a_stream_is_the_same_each_time_and_drifts_halfway(corpus: Corpus) -> None:
    requests = list(stream(corpus, 40, 3))
    assert requests == list(stream(corpus, 40, 3))
    assert {len(request.blocks) for request in requests} == {2 * (1 + TEXTS)}
    spoken = [{name for name, _ in request.blocks} - {"picture"} for request in requests]
    assert spoken == [{"en"}] * 20 + [{"fr"}] * 20


def test_moved_blocks_lie_better_and_say_what_they_said(corpus: Corpus) -> None:
    requests = list(stream(corpus, 1600, 0))
    none = placement_arms.churned(corpus, 0)
    moved = placement_arms.arm(corpus, placement_arms.arrivals(corpus, 0), Price(1.0, 0.1))
    still = placement_arms.arm(corpus, placement_arms.likeness(corpus, 0), Price(1.0, 1e6))
    for one in (none, moved, still):
        one.serve(requests)
        assert one.whole(corpus)
        one.arena.check()
    assert np.mean(moved.shares[400:800]) < 0.7 * np.mean(none.shares[400:800])
    assert moved.copied > 0
    assert still.copied == none.copied == 0
    assert len(moved.ticks) == 50


@pytest.mark.slow
def test_rows_of_the_space_and_of_gathering(corpus: Corpus) -> None:
    rows = {row.id: row for row in [*alignment_rows(corpus, [0]), *deviation_rows(corpus, [0])]}
    assert rows["align/difference"].met
    assert rows["deviation/0.0"].ours == 100.0
    requests = list(stream(corpus, 64, 0))
    arms = {name: [placement_arms.churned(corpus, 0)] for name in table_placement.PUBLISHED}
    for made in arms.values():
        made[0].serve(requests)
    names = {row.id for row in [*table_placement._laid(arms), *table_placement._times(arms, requests[-8:], True)]}
    assert {"none/fragmentation", "dynamic/gather/speed-up", "static/gather-file"} <= names
