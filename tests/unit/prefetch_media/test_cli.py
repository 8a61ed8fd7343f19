"""`mmcache warm`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("av")
from PIL import Image

from mmcache.cli.app import run
from mmcache.lab.film import cut_short, film, steady
from mmcache.prefetch.media import Timeline

PLAIN = ("--encoders", "mmcache.lab.warm_models:make")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("video") / "talk.mkv"
    shown = [(at, Image.new("RGB", (160, 96), colour)) for at, colour in ((0, "white"), (500, "navy"), (1000, "gold"))]
    film(path, shown, steady(1500), 0.3 * np.sin(np.arange(24_000) / 5).astype(np.float32))
    return path


def test_a_timeline_and_figures(video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["warm", "--video", str(video), "--ocr", "--asr", *PLAIN, "--root", str(tmp_path / "c")]
    assert run([*words, "--timeline", str(tmp_path / "t.json"), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["scenes"], told["speech"], told["complete"], told["frames_seen"]) == (3, 1, True, 37)
    assert told["done"]["frame"] == 3
    assert len(Timeline.from_json((tmp_path / "t.json").read_bytes()).scenes) == 3
    assert run(words) == 0
    assert "talk.mkv" in capsys.readouterr().out
    assert run([*words, "--json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)
    assert again["known"]["frame"] == 3
    assert again["done"]["frame"] == 0


def test_several_files_one_of_them_broken(video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.mkv"
    bad.write_bytes(b"no video")
    words = ["warm", "--video", str(video), str(bad), *PLAIN, "--root", str(tmp_path / "c"), "--json"]
    assert run([*words, "--timeline", str(tmp_path / "lines")]) == 3
    out, err = capsys.readouterr()
    assert [set(one) & {"error"} for one in json.loads(out)] == [set(), {"error"}]
    assert "bad.mkv" in err
    assert [path.name for path in (tmp_path / "lines").iterdir()] == ["talk.json"]


def test_a_file_of_which_something_is_missing_is_a_no(
    video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut_short(video, tmp_path / "cut.mkv", 0.8)
    words = ["warm", *PLAIN, "--root", str(tmp_path / "c"), "--json"]
    code = run([*words, "--video", str(tmp_path / "cut.mkv")])
    (told,) = json.loads(capsys.readouterr().out)
    assert code == (1 if told["fault_count"] else 0)
    assert run([*words, "--video", str(video), "--budget-bytes", "1"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["complete"] is False


def test_of_an_empty_file_nothing_is_shown_but_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "e.mp4").write_bytes(b"")
    assert run(["warm", *PLAIN, "--root", str(tmp_path / "c"), "--video", str(tmp_path / "e.mp4")]) == 3
    out, err = capsys.readouterr()
    assert (out, err) == ("", "mmcache: e.mp4 is empty\n")


def test_a_timeline_that_cannot_be_written_is_said_before_the_work(
    video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["warm", *PLAIN, "--root", str(tmp_path / "c"), "--video", str(video)]
    (tmp_path / "t.json").write_text("")
    for more, says in (
        (["--timeline", str(tmp_path)], "is a folder"),
        (["--timeline", str(tmp_path / "no" / "t.json")], "no folder"),
        ([str(video), "--timeline", str(tmp_path / "t.json")], "is a file"),
    ):
        assert run([*words, *more]) == 3
        assert says in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(("module", "option"), [("rapidocr_onnxruntime", "--ocr"), ("faster_whisper", "--asr")])
def test_what_is_not_installed_is_named(
    video: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    module: str, option: str,
) -> None:  # fmt: skip
    for place in ("ocr", "speech"):
        monkeypatch.setattr(f"mmcache.prefetch.media.{place}.find_spec", lambda name: None)
    assert run(["warm", "--video", str(video), option, "--root", str(tmp_path / "c")]) == 3
    assert "pip install 'mmcache[warm]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--video", "missing.mp4"], 3, "no video file missing.mp4"),
        ([], 2, "--video"),
        (["--video", __file__, "--encoders", "nowhere"], 3, "MODULE:FUNCTION"),
        (["--video", __file__, "--encoders", "no.such.module:make"], 3, "cannot import"),
        (["--video", __file__, "--encoders", "mmcache.lab.warm_models:INK"], 3, "no function"),
        (["--video", __file__, "--budget-seconds", "0"], 3, "budget"),
        (["--video", __file__, "--budget-bytes", "many"], 3, "many"),
        (["--video", __file__, *PLAIN], 3, "cannot be opened"),
    ],
    ids=["missing", "none", "name", "module", "function", "seconds", "bytes", "format"],
)
def test_what_cannot_be_done_is_said(
    words: list[str], code: int, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["warm", *words, "--root", str(tmp_path / "c")]) == code
    assert says in capsys.readouterr().err
