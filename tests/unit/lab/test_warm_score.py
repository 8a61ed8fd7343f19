"""How a timeline is compared with the talk that it was made of."""

from __future__ import annotations

from pathlib import Path

from mmcache.lab.talks import Printed, Said, Talk
from mmcache.lab.warm_score import Score, distance, overlap, plain
from mmcache.prefetch.media.timeline import ReadRegion, Scene, Speech, Timeline

TALK = Talk(
    Path("talk.mp4"), 4000, (0, 2000), (Printed("Hit rate 90", (10, 10, 100, 20), 2000, 4000),),
    (Said("The cache keeps it.", 500.0, 1500.0),), 100,
)  # fmt: skip


def test_errors_and_shares() -> None:
    line = Timeline(
        4000, 320, 180, 0, True, (Scene(0, 2040, 0), Scene(2040, 3000, 2040), Scene(3000, 4000, 3000)),
        (ReadRegion(2040, 3000, 2040, (10, 10, 100, 20), "Hitrate 90", 1.0),),
        (Speech(480, 1600, "the cash keeps it"), Speech(3000, 3500, "what")),
    )  # fmt: skip
    score = Score()
    score.add(TALK, line)
    assert (score.scene_ms, score.changes, score.scenes) == ([0, 40], 2, 3)
    assert (score.line_ms, score.lines, score.exact, score.exact_but_spaces, score.overlap) == ([40], 1, 0, 1, [1.0])
    assert (score.start_ms, score.end_ms, score.segments, score.sentences) == ([20.0], [100.0], 2, 1)
    assert (score.words, score.wrong_words) == (4, 1)


def test_what_was_not_found_is_no_error_but_missing() -> None:
    score = Score()
    score.add(TALK, Timeline(4000, 320, 180, 0, True))
    assert (score.scene_ms, score.line_ms, score.start_ms) == ([], [], [])
    assert (score.changes, score.lines, score.sentences, score.wrong_words) == (2, 1, 1, 4)
    score.add(TALK, Timeline(4000, 320, 180, 0, True), until_ms=1000)
    assert (score.changes, score.lines, score.sentences) == (3, 1, 1)


def test_overlap_words_and_edits() -> None:
    assert overlap((0, 0, 10, 10), (5, 0, 10, 10)) == 50 / 150
    assert overlap((0, 0, 10, 10), (20, 20, 5, 5)) == 0.0
    assert plain("The then-coder's 3rd, word.") == ["the", "then", "coder's", "3rd", "word"]
    assert distance("kitten", "sitting") == 3
    assert distance([], ["a"]) == 1
