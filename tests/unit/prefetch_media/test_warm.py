"""The pipeline, with real files and plain models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av")
from PIL import Image, ImageDraw, ImageFont

from mmcache import Cache
from mmcache.encoder import Encoder
from mmcache.keys.region import Region
from mmcache.lab import warm_models
from mmcache.lab.film import cut_short, film, steady
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.prefetch.media import Encoders, Uses, WarmOptions, frame_at, sound_of, warm_video
from mmcache.prefetch.media.journal import FOLDER
from mmcache.prefetch.media.scenes import SceneOptions

LINES = [(0, ("Alpha",)), (2000, ("Alpha", "and Beta")), (4000, ("Gamma",))]
TONES = [(1.0, 1.5, 440), (3.0, 3.75, 660)]
NAMES = ("frame", "find", "read", "listen", "hear", "text")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """6 s: three scenes, four lines, two tones."""
    path = tmp_path_factory.mktemp("video") / "talk.mp4"
    make_video(path)
    return path


def make_video(path: Path, *, mute: bool = False) -> None:
    shown = []
    for at, lines in LINES:
        page = Image.new("RGB", (320, 180), "white")
        for number, line in enumerate(lines):
            ImageDraw.Draw(page).text((20, 40 + 60 * number), line, fill="black", font=ImageFont.load_default(24))
        shown.append((at, page))
    time = np.arange(6 * 16_000) / 16_000
    sound = sum(
        0.5 * ((begin <= time) & (time < end)) * np.sin(2 * np.pi * pitch * time) for begin, end, pitch in TONES
    )
    film(path, shown, steady(6000, 12.5), None if mute else np.asarray(sound, np.float32))


class Counted:
    """Plain models that count their calls, and fail where they are told to."""

    def __init__(self, cache: Cache, **options: Any) -> None:
        self.calls: Counter[str] = Counter()
        self.fails: dict[str, Callable[[int], bool]] = {}
        self.encoders: dict[str, Encoder] = {}
        for name, encoder in warm_models.make(cache).items():
            modality = encoder.signature.modality
            function = self._counted(name, encoder.__wrapped__)
            self.encoders[name] = cache.wrap(function, modality=modality, signature=f"{name}-1", guard=False, **options)

    def _counted(self, name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counted(given: Any) -> Any:
            self.calls[name] += 1
            if name in self.fails and self.fails[name](self.calls[name]):
                raise RuntimeError("what a model may say of its input")
            return function(given)

        counted.__qualname__ = f"counted_{name}"
        return counted


def test_frames_print_and_speech_on_one_timeline(video: Path) -> None:
    with Cache() as cache:
        models = Counted(cache)
        warmed = warm_video(cache, video, models.encoders)
    line = warmed.timeline
    assert [(one.start_ms, one.end_ms, one.frame_ms) for one in line.scenes] == [
        (0, 2000, 0), (2000, 4000, 2000), (4000, 6000, 4000),
    ]  # fmt: skip
    assert [one.start_ms for one in line.regions] == [0, 2000, 2000, 4000]
    assert all(abs(one.bbox[0] - 20) <= 3 for one in line.regions)
    assert [one.text for one in line.speech] == ["440 Hz", "660 Hz"]
    for one, (begin, end, _) in zip(line.speech, TONES, strict=True):
        assert abs(one.start_ms - 1000 * begin) <= 30
        assert abs(one.end_ms - 1000 * end) <= 30
    assert (line.complete, line.fault_count, line.duration_ms) == (True, 0, 6000)
    assert warmed.done == {"frame": 3, "ocr": 3 + 4, "asr": 2}
    assert warmed.failed == 0
    assert line.at(2500).scene == line.scenes[1]
    assert len(line.at(2500).regions) == 2


def test_later_requests_hit(video: Path) -> None:
    with Cache() as cache:
        models = Counted(cache)
        line = warm_video(cache, video, models.encoders).timeline
        before, asked = Counter(models.calls), models.encoders
        for scene in line.scenes:
            asked["frame"](frame_at(video, scene.frame_ms))
            asked["find"](frame_at(video, scene.frame_ms))
        for one in line.regions:
            picture, (x, y, width, height) = frame_at(video, one.frame_ms), one.bbox
            found = asked["read"].region(picture, Region.whole(*picture.size).crop((x, y, x + width, y + height)))
            assert found["text"] == one.text
            asked["text"](one.text)
        for said in line.speech:
            found = asked["hear"]((sound_of(video, said.start_ms, said.end_ms), 16_000))
            assert found["text"] == said.text
        assert models.calls == before


def test_what_is_done_is_not_done_again_in_another_process(video: Path, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        first = warm_video(cache, video, Counted(cache).encoders)
    with Cache(tmp_path) as cache:
        models = Counted(cache)
        again = warm_video(cache, video, models.encoders)
    assert not models.calls
    assert again.timeline == first.timeline
    assert again.known == first.done
    assert sum(again.done.values()) == 0


def test_the_journal_holds_places_and_no_contents(video: Path, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        line = warm_video(cache, video, Counted(cache).encoders).timeline
    (journal,) = (tmp_path / FOLDER).glob("*.jsonl")
    text = journal.read_text()
    seen = [region.text for region in line.regions] + [speech.text for speech in line.speech]
    assert not any(one in text for one in seen)
    assert video.name not in text


def test_blocks_that_have_gone_are_computed_anew(video: Path, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        models = Counted(cache)
        first = warm_video(cache, video, models.encoders)
        gone = models.encoders["frame"].key(frame_at(video, 2000))
        assert cache.invalidate(gone) == 1
        heard = models.encoders["hear"].key(
            (sound_of(video, first.timeline.speech[0].start_ms, first.timeline.speech[0].end_ms), 16_000)
        )
        assert cache.invalidate(heard) == 1
        before = Counter(models.calls)
        again = warm_video(cache, video, models.encoders)
        assert again.timeline == first.timeline
        assert again.done == {"frame": 1, "ocr": 0, "asr": 1}
        assert models.calls - before == Counter(frame=1, hear=1)


def test_other_models_or_another_tenant_begin_anew(video: Path, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        warm_video(cache, video, Counted(cache).encoders)
        other = Counted(cache, tenant="somebody else")
        warmed = warm_video(cache, video, other.encoders)
        assert sum(warmed.known.values()) == 0
        assert other.calls["frame"] == 3
        assert len(list((tmp_path / FOLDER).glob("*.jsonl"))) == 2


def test_without_resuming_the_cache_answers(video: Path, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        models = Counted(cache)
        first = warm_video(cache, video, models.encoders)
        before = Counter(models.calls)
        again = warm_video(cache, video, models.encoders, WarmOptions(resume=False))
        assert models.calls == before
        assert again.timeline == first.timeline
        assert again.done == first.done


@pytest.mark.parametrize("budget", [{"budget_seconds": 7.0}, {"budget_bytes": 700}], ids=["seconds", "bytes"])
def test_a_budget_ends_it_and_the_next_call_goes_on(video: Path, tmp_path: Path, budget: dict[str, Any]) -> None:
    ticks = iter(range(10_000))
    with Cache(tmp_path) as cache:
        models = Counted(cache)
        first = warm_video(cache, video, models.encoders, WarmOptions(**budget), clock=lambda: float(next(ticks)))
        assert not first.timeline.complete
        assert 0 < sum(first.done.values()) < 12
        assert len({kind for kind, count in first.done.items() if count}) >= 2  # not one kind after another
        rest = warm_video(cache, video, models.encoders)
        assert rest.timeline.complete
        assert rest.known == first.done
        assert len(rest.timeline.regions) == 4
        assert models.calls["frame"] == 3
        assert models.calls["hear"] == 2


def test_a_model_that_fails_costs_its_own_tasks_alone(video: Path, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        models = Counted(cache)
        models.fails = {"read": lambda count: count == 2, "frame": lambda _: True}
        warmed = warm_video(cache, video, models.encoders)
        assert warmed.failed == 4
        assert warmed.timeline.complete
        assert (len(warmed.timeline.regions), len(warmed.timeline.speech)) == (3, 2)
        assert Counter(fault.where for fault in warmed.timeline.faults) == Counter(frame=3, read=1)
        assert {fault.what for fault in warmed.timeline.faults} == {"RuntimeError"}  # what it says may hold contents
        models.fails = {}
        again = warm_video(cache, video, models.encoders)
        assert again.done == {"frame": 3, "ocr": 1, "asr": 0}
        assert (again.failed, len(again.timeline.regions)) == (0, 4)


def test_what_was_read_stays_where_encoding_it_fails(video: Path, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        models = Counted(cache)
        models.fails = {"text": lambda _: True}
        warmed = warm_video(cache, video, models.encoders)
        assert (len(warmed.timeline.regions), len(warmed.timeline.speech)) == (4, 2)
        assert {fault.where for fault in warmed.timeline.faults} == {"text"}
        models.fails = {}
        again = warm_video(cache, video, models.encoders)
        assert (again.failed, len(again.timeline.regions)) == (0, 4)


def test_a_listener_that_fails_leaves_the_rest_and_is_asked_again(
    video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mmcache.prefetch.media.sound.WINDOW", 40_000)  # 2.5 s: three of them
    with Cache(tmp_path) as cache:
        models = Counted(cache)
        models.fails = {"listen": lambda count: count == 2}
        warmed = warm_video(cache, video, models.encoders)
        assert (len(warmed.timeline.speech), len(warmed.timeline.regions)) == (1, 4)
        assert [fault.where for fault in warmed.timeline.faults] == ["listen"]
        models.fails = {}
        for asked_again in (1, 0):
            before = models.calls["listen"]
            warmed = warm_video(cache, video, models.encoders)
            assert [one.text for one in warmed.timeline.speech] == ["440 Hz", "660 Hz"]
            assert (models.calls["listen"] - before, warmed.timeline.fault_count) == (asked_again, 0)


def test_what_limits_a_warming_is_not_taken_for_all_there_is(video: Path, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        models = Counted(cache)
        few = warm_video(cache, video, models.encoders, WarmOptions(most_frames=1, most_seconds=2.0))
        assert (len(few.timeline.scenes), len(few.timeline.speech)) == (1, 1)
        rare = WarmOptions(scenes=SceneOptions(changed_share=0.9))
        assert len(warm_video(cache, video, models.encoders, rare).timeline.scenes) == 1
        whole = warm_video(cache, video, models.encoders)
        assert (len(whole.timeline.scenes), len(whole.timeline.speech)) == (3, 2)


def test_two_processes_that_warmed_at_once_leave_one_timeline(video: Path, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        first = warm_video(cache, video, Counted(cache).encoders)
        (journal,) = (tmp_path / FOLDER).glob("*.jsonl")
        journal.write_bytes(2 * journal.read_bytes())
        assert warm_video(cache, video, Counted(cache).encoders).timeline == first.timeline


def test_a_file_that_goes_away_is_not_noted_as_read(
    video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path, *_: Any) -> Iterator[Any]:
        raise InvalidInputError(f"cannot read the video file {path}")
        yield

    with Cache(tmp_path) as cache:
        with monkeypatch.context() as patch:
            patch.setattr("mmcache.prefetch.media.sources.stills", gone)
            assert not warm_video(cache, video, Counted(cache).encoders).timeline.scenes
        (journal,) = (tmp_path / FOLDER).glob("*.jsonl")
        assert video.name not in journal.read_text()
        assert len(warm_video(cache, video, Counted(cache).encoders).timeline.scenes) == 3


@pytest.mark.parametrize("name", ["frame", "listen"])
def test_a_model_that_cannot_be_loaded_ends_it(video: Path, name: str) -> None:
    def unloaded(given: Any) -> Any:
        raise SettingsError("there are no weights")

    with Cache() as cache:
        encoders = Counted(cache).encoders
        modality = encoders[name].signature.modality
        encoders[name] = cache.wrap(unloaded, modality=modality, signature="unloaded-1", guard=False)
        with pytest.raises(SettingsError, match="no weights"):
            warm_video(cache, video, encoders)


def test_answers_that_make_no_sense_are_left_out(video: Path) -> None:
    with Cache() as cache:
        encoders = Counted(cache).encoders
        encoders["find"] = cache.wrap(lambda picture: "nothing", modality="image", signature="no-1", guard=False)
        encoders["hear"] = cache.wrap(lambda pcm: 7, modality="audio", signature="no-2", guard=False)
        warmed = warm_video(cache, video, encoders)
    assert (len(warmed.timeline.regions), len(warmed.timeline.speech), warmed.failed) == (0, 0, 5)


@pytest.mark.parametrize(
    ("switches", "called"),
    [
        ({"ocr": False, "asr": False}, {"frame"}),
        ({"frames": False, "asr": False}, {"find", "read", "text"}),
        ({"frames": False, "ocr": False}, {"listen", "hear", "text"}),
    ],
    ids=["frames", "ocr", "asr"],
)
def test_each_kind_alone(video: Path, switches: dict[str, bool], called: set[str]) -> None:
    with Cache() as cache:
        models = Counted(cache)
        warmed = warm_video(cache, video, models.encoders, WarmOptions(**switches))  # type: ignore[arg-type]
    assert set(models.calls) == called
    assert warmed.timeline.complete


def test_without_finder_and_listener_everything_is_read_and_heard(video: Path) -> None:
    with Cache() as cache:
        encoders = Counted(cache).encoders
        warmed = warm_video(cache, video, {"read": encoders["read"], "hear": encoders["hear"]})
    assert [one.bbox for one in warmed.timeline.regions] == [(0, 0, 320, 180)] * 3
    (heard,) = warmed.timeline.speech
    assert heard.start_ms == 0
    assert 6000 <= heard.end_ms <= 6100  # a codec fills its last frame


def test_a_mute_file_and_one_without_pictures(tmp_path: Path) -> None:
    make_video(tmp_path / "mute.mp4", mute=True)
    with Cache() as cache:
        warmed = warm_video(cache, tmp_path / "mute.mp4", Counted(cache).encoders)
        assert (len(warmed.timeline.scenes), warmed.timeline.speech, warmed.timeline.fault_count) == (3, (), 0)
        soundfile = pytest.importorskip("soundfile")
        soundfile.write(tmp_path / "a.wav", np.sin(np.arange(32_000) / 9).astype(np.float32), 16_000)
        heard = warm_video(cache, tmp_path / "a.wav", Counted(cache).encoders)
        assert (heard.timeline.scenes, len(heard.timeline.speech)) == ((), 1)


def test_a_broken_file_is_told_and_the_rest_is_warm(video: Path, tmp_path: Path) -> None:
    make_video(tmp_path / "a.mkv")
    cut_short(tmp_path / "a.mkv", tmp_path / "cut.mkv", 0.6)
    with Cache() as cache:
        warmed = warm_video(cache, tmp_path / "cut.mkv", Counted(cache).encoders)
        assert 1 <= len(warmed.timeline.scenes) <= 3
        (tmp_path / "no.mp4").write_bytes(b"no video")
        for bad in (tmp_path / "no.mp4", tmp_path / "missing.mp4", tmp_path):
            with pytest.raises(InvalidInputError):
                warm_video(cache, bad, Counted(cache).encoders)


def test_what_is_decoded_ahead_is_bounded(video: Path) -> None:
    with Cache() as cache:
        warmed = warm_video(cache, video, Counted(cache).encoders, WarmOptions(waiting_bytes=1, most_frames=2))
    assert len(warmed.timeline.scenes) == 2
    assert "left alone" in warmed.timeline.faults[0].what


def test_progress_rises_to_the_end(video: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with Cache() as cache:
        warm_video(cache, video, Counted(cache).encoders, progress=lambda *step: told.append(step))
    assert told[-1] == (video.name, 6, 6)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_use_is_learned_from_events_and_kept(video: Path, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        models, uses = Counted(cache), Uses.of(cache)
        warm_video(cache, video, models.encoders, uses=uses)
        uses.save()
    assert uses.counts()["frame"] == (3, 0)
    with Cache(tmp_path) as cache:
        models = Counted(cache)
        with Uses.of(cache) as uses:
            for _ in range(2):  # each block counts once
                models.encoders["frame"](frame_at(video, 0))
                models.encoders["frame"](frame_at(video, 1234))  # is the first scene's by pixels, or another: no matter
            uses.drain()
            assert uses.counts()["frame"][1] >= 1
    with Cache(tmp_path) as cache:
        known = Uses.of(cache)
        assert known.counts() == uses.counts()
        (tmp_path / FOLDER / "uses.json").write_text('{"frame": [1, 2]}')
        assert Uses.of(cache).counts()["frame"] == (0, 0)


def test_encoders_that_make_no_sense(video: Path) -> None:
    with Cache() as cache:
        encoders = Counted(cache).encoders
        with pytest.raises(SettingsError, match="called faces"):
            Encoders.of({"faces": encoders["frame"]})
        with pytest.raises(SettingsError, match=r"cache\.wrap"):
            Encoders.of({"frame": np.sum})
        with pytest.raises(SettingsError, match="mapping"):
            Encoders.of([encoders["frame"]])
        with pytest.raises(SettingsError, match="nothing to warm"):
            warm_video(cache, video, {"text": encoders["text"]})
        with pytest.raises(SettingsError, match="nothing to warm"):
            warm_video(cache, video, {"frame": encoders["frame"]}, WarmOptions(frames=False))
    for wrong in ({"budget_seconds": 0}, {"budget_bytes": -1}, {"most_frames": 0}, {"weights": {"frame": 1.0}}):
        with pytest.raises(SettingsError):
            WarmOptions(**wrong)
