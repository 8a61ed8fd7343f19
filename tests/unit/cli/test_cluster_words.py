"""What `mmcache cluster` says to somebody who has made a mistake, or whose cluster is not well."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from mmcache.cli import main
from mmcache.cli.cluster_options import in_options
from mmcache.cli.cluster_view import DISK_FULL, Glance, as_data, view
from mmcache.model.errors import ScaleError
from mmcache.scale.local import Handle
from mmcache.scale.local.files import Told, Wanted
from mmcache.scale.observed import Observed
from mmcache.scale.spec import MOST_MEMORY, ClusterSpec
from mmcache.scale.status import Phase, Progress, Status

STATUS = Status(Phase.SCALING_OUT, 4, 5, 8, 8, 0.0, None, None, 0, 0, 0, "Moving", "slots go", (), Progress(3072, 7372))
GLANCE = Glance("/some/where", None, 7, Wanted(ClusterSpec()), Told(1000.0, 7, 1, STATUS), Observed(), {}, now=1001.0)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--memory", "17TiB", "--memory must be 16 MiB to 16 TiB a node"),
        ("--memory", str(MOST_MEMORY + 1), "not 17592186044417 bytes"),
        ("--memory", "999999999TiB", "over 1024 PiB"),
        ("--memory", "1" * 400, "--memory: no size is so large"),
        ("--memory", "lots", "--memory: not a size"),
        ("--shards", "10000", "--shards must be 3..500, not 10000"),
        ("--shards", "2", "fewer have no majority"),
        ("--max-shards", "501", "--max-shards must be --shards..500 (3..500), not 501"),
        ("--replicas", "-1", "--replicas must be 0..5"),
        ("--qps-threshold", "nan", "--qps-threshold is in thousands"),
        ("--qps-threshold", "1e400", "--qps-threshold is in thousands"),
        ("--factor", "inf", "--factor must be above 1 and at most 100"),
        ("--window", "9" * 400, "--window must be 1..3600"),
        ("--quiet", "999h", "--quiet must be 0..86400"),
        ("--fewest-samples", "9" * 30, "--fewest-samples must be 1..3600"),
        ("--step", "0", "--step must be 1..50"),
    ],
    ids=lambda value: value[:12],
)
def test_absurd_wishes_are_refused_in_their_own_words_and_nothing_is_begun(
    option: str, value: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cluster"
    assert main(["cluster", "up", option, value, "--folder", str(folder), "--json"]) == 3
    out, err = capsys.readouterr()
    assert said in err
    assert said in json.loads(out)["message"]
    assert not folder.exists()


def test_a_message_names_options_not_fields() -> None:
    told = "burst.endFactor must be from 1 to below burst.factor (1.5), not 2"
    assert in_options(told) == "--end-factor must be from 1 to below --factor (1.5), not 2"


@pytest.mark.parametrize("command", ["status", "url", "password", "scale 4", "down"])
def test_a_cluster_that_there_is_not_is_told_beside_those_that_there_are(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    words = ["cluster", *command.split(), "--name", "mine"]
    assert main(words) == 3
    assert capsys.readouterr().err.strip().endswith("/mine: mmcache cluster up --name mine makes one")
    for name in ("default", "other"):
        there = tmp_path / "mmcache" / "cluster" / name
        there.mkdir(parents=True)
        (there / "spec.json").write_text("{}")
    assert main(words) == 3
    assert "makes one; there are --name default, --name other" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle(tmp_path / "cluster")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(handle, "_allowed", lambda *_: ClusterSpec())
    monkeypatch.setattr(handle.files, "make", full)
    with pytest.raises(ScaleError, match=r"cannot write into .*: No space left on device: .*--folder"):
        handle.up({})


def shown(found: Glance) -> str:
    console = Console(width=200, record=True, file=StringIO())
    console.print(view(found))
    return console.export_text()


def test_the_whole_way_is_shown() -> None:
    assert "3,072 of 7,372 slots have moved (42%)" in shown(GLANCE)
    assert as_data(GLANCE)["status"]["progress"] == {"moved": 3072, "total": 7372}


def test_what_was_told_long_ago_says_so() -> None:
    assert " ago" not in shown(GLANCE)
    assert "ScalingOut, 9 s ago" in shown(replace(GLANCE, now=1009.0))


def test_a_full_disk_is_told() -> None:
    assert DISK_FULL not in shown(GLANCE)
    full = replace(GLANCE, full=True)
    assert DISK_FULL in shown(full)
    assert as_data(full)["disk_full"]
