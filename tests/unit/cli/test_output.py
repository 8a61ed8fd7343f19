"""What commands share: choosing blocks, sizes, ages, finding the checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmcache.cli import checkout
from mmcache.cli.choose import Choice, parse_age
from mmcache.cli.output import Speak, show, size
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.tiers.base import Held


def held(**changes: object) -> Held:
    parts: dict[str, object] = {
        "key": Key(bytes(16), bytes(16)), "size": 1, "deadline": None, "created": 1000.0, "tenant": "acme",
        "namespace": "default", "model": "clip-vit@a1", "modality": "image",
    }  # fmt: skip
    return Held(**(parts | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("choice", "fits"),
    [
        (Choice(), True),
        (Choice(tenant="acme"), True),
        (Choice(tenant="acm"), False),
        (Choice(tenant="ACME"), False),
        (Choice(model="clip*"), True),
        (Choice(model="clip"), False),
        (Choice(modality="text"), False),
        (Choice(namespace="default", tenant="globex"), False),
        (Choice(older_than="1m"), False),
        (Choice(older_than="59s"), True),
    ],
)
def test_a_choice_fits_what_it_names_and_nothing_else(choice: Choice, fits: bool) -> None:
    assert choice.matcher(wall=1060.0)(held()) is fits


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5h", 5400), ("7d", 604800), (" 2w ", 1209600)])
def test_ages(text: str, seconds: float) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "7 years", "1d2h", "nan s"])
def test_what_is_no_age(text: str) -> None:
    with pytest.raises(SettingsError, match="not an age"):
        parse_age(text)


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_the_checkout_is_found_from_inside_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mmcache"\n')
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert checkout.find() == tmp_path
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert checkout.find() != tmp_path
    (tmp_path / "pyproject.toml").write_bytes(b"\xff not toml")
    assert checkout.find() != tmp_path


def test_json_has_no_infinity_and_survives_odd_paths(capsys: pytest.CaptureFixture[str]) -> None:
    show(Speak(json=True), {"a": [float("inf"), float("nan"), 1.5], "path": "caf\udce9"}, lambda: "")
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": [None, None, 1.5],
        "path": "caf\udce9",
    }
