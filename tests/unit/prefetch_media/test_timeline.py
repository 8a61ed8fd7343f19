"""The timeline and its JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmcache.model.errors import InvalidInputError
from mmcache.prefetch.media.task import MOST_FAULTS, Fault, Faults, Task
from mmcache.prefetch.media.timeline import ReadRegion, Scene, Speech, Timeline

LINE = ReadRegion(1000, 3000, 1040, (1, 2, 30, 4), "hit rate", 0.98)
TIMELINE = Timeline(
    3000, 320, 180, 90, True, (Scene(0, 1000, 0), Scene(1000, 3000, 1040)), (LINE,), (Speech(500, 1500, "so"),),
    (Fault("video", 7, "a frame is damaged"),), 1,
)  # fmt: skip


def test_there_and_back(tmp_path: Path) -> None:
    assert Timeline.from_json(TIMELINE.to_json()) == TIMELINE
    TIMELINE.write(tmp_path / "t.json")
    assert Timeline.from_json((tmp_path / "t.json").read_bytes()) == TIMELINE
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
    assert TIMELINE.as_dict()["regions"][0]["bbox"] == (1, 2, 30, 4)


def test_what_there_is_at_a_time() -> None:
    assert TIMELINE.at(700).scene == TIMELINE.scenes[0]
    assert TIMELINE.at(700).regions == ()
    assert TIMELINE.at(700).speech == TIMELINE.speech[0]
    assert TIMELINE.at(2000).regions == (LINE,)
    assert TIMELINE.at(2000).speech is None
    assert Timeline(0, 0, 0, 0, True).at(5).scene is None


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"duration_ms": "x"}', TIMELINE.to_json().replace(b'"version": 1', b'"version": 2')]
)
def test_what_is_no_timeline(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        Timeline.from_json(data)


def test_faults_are_bounded() -> None:
    faults = Faults()
    for n in range(MOST_FAULTS + 50):
        faults.add("video", n, "x" * 1000)
    assert (len(faults.first), faults.count, len(faults.first[0].what)) == (MOST_FAULTS, MOST_FAULTS + 50, 200)
    other = Faults()
    other.take(faults.first, faults.count)
    other.take(faults.first, faults.count)
    assert (len(other.first), other.count) == (MOST_FAULTS, 2 * faults.count)


def test_where_a_task_lies() -> None:
    assert Task("asr", asr_offset=1.25).at_ms == 1250
    assert Task("frame", frame_ts=80).at_ms == 80
