"""Frames and sound of real files, made by the test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
from PIL import Image, ImageDraw, ImageFont

from mmcache.keys.content import ContentOptions, identify
from mmcache.lab.film import cut_short, film, scratched, steady
from mmcache.model.errors import InvalidInputError
from mmcache.prefetch.media.container import facts
from mmcache.prefetch.media.frames import Reel, Still, frame_at, stills
from mmcache.prefetch.media.scenes import SceneOptions
from mmcache.prefetch.media.sound import RATE, Mono, segments, sound_of
from mmcache.prefetch.media.task import Faults

SLIDES = [(0, "Alpha"), (2000, "Beta and more"), (4000, "Gamma")]
TONES = [(1.0, 1.5), (3.0, 3.75)]


def slides() -> list[tuple[int, Image.Image]]:
    found = []
    for at, text in SLIDES:
        page = Image.new("RGB", (320, 180), "white")
        ImageDraw.Draw(page).text((20, 40), text, fill="black", font=ImageFont.load_default(24))
        found.append((at, page))
    return found


def tones(seconds: float = 6.0) -> Mono:
    time = np.arange(int(seconds * RATE)) / RATE
    on = sum((begin <= time) & (time < end) for begin, end in TONES)
    return (0.5 * on * np.sin(2 * np.pi * 440 * time)).astype(np.float32)


def looked(path: Path) -> tuple[list[Still], Reel, Faults]:
    reel, faults = Reel(), Faults()
    return list(stills(path, SceneOptions(), faults, reel)), reel, faults


def loud(samples: Mono) -> list[tuple[int, int]]:
    steps = np.abs(samples[: samples.size // 160 * 160].reshape(-1, 160)).max(axis=1) > 0.1
    edges = np.flatnonzero(np.diff(np.r_[False, steps, False].astype(int)))
    return [(10 * int(begin), 10 * int(end)) for begin, end in edges.reshape(-1, 2)]


def near(found: list[tuple[int, int]], wanted: list[tuple[float, float]], by_ms: int = 25) -> bool:
    return len(found) == len(wanted) and all(
        abs(one - 1000 * other) <= by_ms
        for pair, times in zip(found, wanted, strict=True)
        for one, other in zip(pair, times, strict=True)
    )


@pytest.mark.parametrize("ending", ["mp4", "mkv"])
def test_scenes_start_where_the_picture_changes(tmp_path: Path, ending: str) -> None:
    film(tmp_path / f"a.{ending}", slides(), steady(6000), tones())
    found, reel, faults = looked(tmp_path / f"a.{ending}")
    assert [(one.start_ms, one.frame_ms) for one in found] == [(at, at) for at, _ in SLIDES]
    assert (reel.frames, reel.width, reel.height, faults.count) == (150, 320, 180, 0)
    for one in found:
        assert one.make().tobytes() == frame_at(tmp_path / f"a.{ending}", one.frame_ms).tobytes()
        assert one.size == 320 * 180 * 3


def test_variable_frame_rates_go_by_timestamps(tmp_path: Path) -> None:
    film(tmp_path / "v.mp4", slides(), [0, 40, 1990, 2000, 3500, 4000, 4040], None)
    found, reel, _ = looked(tmp_path / "v.mp4")
    assert [one.start_ms for one in found] == [0, 2000, 4000]
    assert reel.frames == 7


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_rotated_frames_are_the_pictures_that_keys_are_made_of(tmp_path: Path, rotation: int) -> None:
    path = tmp_path / "r.mp4"
    film(path, slides(), steady(1000, 10), None, rotation=rotation)
    found, reel, _ = looked(path)
    assert (reel.rotation, reel.width, reel.height) == (rotation, 320, 180)
    upright = found[0].make()
    assert np.abs(np.asarray(upright, int) - np.asarray(slides()[0][1])).mean() < 2
    canonical = identify(path, "video", salt=bytes(32), options=ContentOptions(frame_seconds=0)).canonical()
    assert upright.tobytes() == canonical[0].tobytes()


def test_any_frame_by_its_time(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    film(path, slides(), steady(6000), None)
    assert frame_at(path, 1999).tobytes() == frame_at(path, 1960).tobytes()
    assert frame_at(path, 10**6).tobytes() == frame_at(path, 5960).tobytes()
    assert frame_at(path, 3000).tobytes() != frame_at(path, 1000).tobytes()


def test_sound_lies_where_it_is_heard(tmp_path: Path) -> None:
    for ending in ("mp4", "mkv"):
        film(tmp_path / f"a.{ending}", slides(), steady(6000), tones())
        assert near(loud(sound_of(tmp_path / f"a.{ending}", 0, 6000)), TONES)


def test_a_track_that_begins_late_stays_in_place(tmp_path: Path) -> None:
    film(tmp_path / "late.mp4", slides(), steady(8000), tones(), sound_from_ms=1500)
    found = loud(sound_of(tmp_path / "late.mp4", 0, 8000))
    assert near(found, [(begin + 1.5, end + 1.5) for begin, end in TONES])


def test_segments_are_the_samples_that_are_given_later(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    film(path, slides(), steady(6000), tones())
    found = list(segments(path, loud, Faults()))
    assert near([(one.start_ms, one.end_ms) for one in found], TONES)
    for one in found:
        assert np.array_equal(one.make(), sound_of(path, one.start_ms, one.end_ms))
        assert one.size == one.make().nbytes


def test_speech_across_a_window_is_listened_to_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.mp4"
    film(path, slides(), steady(6000), tones())
    monkeypatch.setattr("mmcache.prefetch.media.sound.WINDOW", RATE * 13 // 4)  # cuts the second tone in two
    windows: list[int] = []

    def listen(samples: Mono) -> list[tuple[int, int]]:
        windows.append(samples.size)
        return [(start, end) for start, end in loud(samples)]

    found = list(segments(path, listen, Faults()))
    assert near([(one.start_ms, one.end_ms) for one in found], TONES)
    assert windows[0] == RATE * 13 // 4
    assert sum(windows) > 6 * RATE


def test_files_without_sound_or_pictures(tmp_path: Path) -> None:
    film(tmp_path / "mute.mp4", slides(), steady(1000), None)
    assert facts(tmp_path / "mute.mp4").has_audio is False
    assert list(segments(tmp_path / "mute.mp4", loud, Faults())) == []
    with pytest.raises(InvalidInputError, match="no sound"):
        sound_of(tmp_path / "mute.mp4", 0, 100)
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "a.wav", tones(), RATE)
    with pytest.raises(InvalidInputError, match="no video"):
        frame_at(tmp_path / "a.wav", 0)
    assert looked(tmp_path / "a.wav")[0] == []
    assert len(list(segments(tmp_path / "a.wav", loud, Faults()))) == 2


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_of_a_file_that_is_cut_short_what_is_there_is_used(tmp_path: Path, share: float) -> None:
    film(tmp_path / "a.mkv", slides(), steady(6000), tones())
    cut_short(tmp_path / "a.mkv", tmp_path / "cut.mkv", share)
    found, reel, _ = looked(tmp_path / "cut.mkv")
    assert [one.start_ms for one in found] == [at for at, _ in SLIDES if at <= reel.last_ms]
    assert 0 < reel.frames < 150


def test_of_a_scratched_file_what_can_be_read_is_used(tmp_path: Path) -> None:
    film(tmp_path / "a.mkv", slides(), steady(6000), tones())
    for seed in range(8):
        scratched(tmp_path / "a.mkv", tmp_path / "bad.mkv", seed)
        found, reel, faults = looked(tmp_path / "bad.mkv")
        assert found[0].start_ms == 0
        assert reel.frames <= 150
        assert faults.count or reel.frames < 150 or len(found) >= 3
        list(segments(tmp_path / "bad.mkv", loud, faults))


@pytest.mark.parametrize(
    "data", [b"", b"no video", bytes(5000), b"RIFF" + bytes(100), b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n"]
)
def test_what_is_no_video(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.mp4").write_bytes(data)
    with pytest.raises(InvalidInputError):
        frame_at(tmp_path / "x.mp4", 0)
    with pytest.raises(InvalidInputError):
        frame_at(tmp_path / "missing.mp4", 0)
    with pytest.raises(InvalidInputError):
        frame_at(tmp_path, 0)


LISTS = {
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:1.0,\na.ts\n#EXT-X-ENDLIST\n",
    "ffconcat": "ffconcat version 1.0\nfile a.ts\n",
    "sdp": "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video 45454 RTP/AVP 96\r\n"
    "a=rtpmap:96 H264/90000\r\n",
    "text": "hello\n" * 1000,
}
"""What FFmpeg opens, too: other files, a port where it waits for packets, a picture of a terminal."""


@pytest.mark.parametrize("ending", ["mp4", "m3u8", "txt", "sdp"])
@pytest.mark.parametrize("kind", LISTS)
def test_a_playlist_leads_to_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, ending: str
) -> None:
    film(tmp_path / "a.ts", slides(), steady(1000), None)
    monkeypatch.chdir(tmp_path)  # where the names in it would be found
    path = tmp_path / f"list.{ending}"
    path.write_text(LISTS[kind])
    with pytest.raises(InvalidInputError, match="cannot be opened"):
        facts(path)
    for modality in ("video", "audio"):
        with pytest.raises(InvalidInputError):
            identify(path, modality, salt=bytes(32))


@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi", "ts", "mpg", "flv", "h264"])
def test_a_kept_frame_is_found_again_by_its_time(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    film(path, slides(), steady(6000), None)
    found, _, _ = looked(path)
    assert len(found) == len(SLIDES)
    for one in found:
        assert one.make().tobytes() == frame_at(path, one.frame_ms).tobytes()


def test_a_frame_is_the_one_that_pyav_decodes(tmp_path: Path) -> None:
    import av

    path = tmp_path / "a.mp4"
    film(path, slides(), steady(3000), None)
    with av.open(str(path)) as container:
        own = {round(1000 * frame.time): frame.to_image() for frame in container.decode(video=0)}
    for one in looked(path)[0]:
        assert one.make().tobytes() == own[one.frame_ms].tobytes()


def test_frames_that_are_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    film(tmp_path / "a.mp4", slides(), steady(1000), None)
    monkeypatch.setattr("mmcache.prefetch.media.frames.MOST_PIXELS", 1000)
    with pytest.raises(InvalidInputError, match="pixels"):
        looked(tmp_path / "a.mp4")
