"""What the table `vllm` makes of answers; the engines themselves are in tests/vllm."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from mmcache.lab.engines import process, vlm_stream
from mmcache.lab.engines.process import Answer, Asking
from mmcache.lab.engines.vllm_scenes import CLOSE, Found, Right, Scenes, total
from mmcache.lab.table_vllm import _gains, _rows
from mmcache.model.errors import AssetError

BASE = Answer(100.0, (1, 2), ({"1": -0.1, "3": -2.0}, {"2": -0.2}), 1, 0, 1000)


def test_an_answer_is_right_by_its_tokens_and_their_probabilities() -> None:
    assert BASE.differs(BASE) == 0.0
    assert BASE.differs(dataclasses.replace(BASE, tokens=(1, 3))) == float("inf")
    moved = dataclasses.replace(BASE, likely=({"1": -0.15, "3": -2.0}, {"2": -0.2}))
    assert moved.differs(BASE) == pytest.approx(0.05)
    missing = dataclasses.replace(BASE, likely=({"1": -0.1}, {"2": -0.2}))
    assert missing.differs(BASE) > 90


class Fake:
    """An engine that says the picture's number, sees no difference within a uuid, and keeps what it is told."""

    def __init__(self, believes: bool) -> None:
        self.believes, self.names = believes, {}  # type: ignore[var-annotated]
        self.asked: list[Asking] = []

    def ask(
        self, picture: Path, text: str, *, uuid: str | None = None, salt: str | None = None, tokens: int = 4
    ) -> Answer:
        self.asked.append(Asking(picture, text, uuid, salt))
        if uuid is not None and self.believes:
            picture = self.names.setdefault(uuid, picture)
        number = float(picture.stem)
        return Answer(10.0, (1,), ({"1": -number},), 0, 0, 0)

    def flush(self) -> None:
        """Nothing waits."""


@pytest.fixture
def scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    from mmcache.lab.engines.vllm_scenes import Pictures

    files = tuple(tmp_path / f"{number}.png" for number in range(4))
    pictures = Pictures(files, tmp_path / "0.bmp", tmp_path / "5.jpg")
    (tmp_path / "around-ours" / "store").mkdir(parents=True)

    def made(believes: bool) -> Found:
        one = Scenes("ours", tmp_path, pictures, Right(Fake(False)), {})  # type: ignore[arg-type]
        one.first(Fake(believes))  # type: ignore[arg-type]
        return one.found

    return made


def test_who_believes_a_uuid_is_found_out(scenes: Any) -> None:
    assert total(scenes(False).wrong) == 0
    found = scenes(True)
    assert sum(found.wrong["uuid"]) == 2
    rows = {row.id: row for row in _rows("ours", found, True)}
    assert rows["ours/uuid/wrong"].met is False
    assert rows["ours/outside"].met is True


def test_what_lies_outside_is_counted(scenes: Any, tmp_path: Path) -> None:
    (tmp_path / "around-ours" / "outside").mkdir()
    (tmp_path / "around-ours" / "outside" / "x").write_text("")
    assert scenes(False).outside == 2


def test_pictures_that_the_model_cannot_tell_apart_end_the_run(tmp_path: Path) -> None:
    right = Right(Fake(False))  # type: ignore[arg-type]
    right.check([tmp_path / "1.png", tmp_path / "2.png"])
    with pytest.raises(AssetError):
        right.check([tmp_path / "1.png", tmp_path / f"{1 + CLOSE}.png"])


def test_gains_are_picture_by_picture() -> None:
    ours = Found(ms={"cold": [100.0, 50.0], "evicted": [10.0, 10.0], "restarted": [20.0, 5.0]})
    stock = Found(ms={"cold": [100.0, 100.0]})
    rows = {row.id: row.ours for row in _gains({"ours": ours, "stock": stock})}
    assert rows == {"gain/evicted": 7.5, "gain/restarted": 7.5, "cost/cold": 0.75}


def test_without_vllm_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "VENV", "no-such-environment")
    with pytest.raises(AssetError, match="make vllm-venv"):
        vlm_stream.run_vllm([], "ours", folder=tmp_path)
