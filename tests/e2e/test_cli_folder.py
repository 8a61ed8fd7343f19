"""The command line on a real cache folder that real processes filled."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from mmcache import Cache
from mmcache.cli import main
from mmcache.cli.folder import disk_tier
from mmcache.cli.output import Exit, Folder
from mmcache.model.frame import Frame
from mmcache.testing.frames import make_frame, make_key

SECRET_TEXT = "the quarterly figures of acme"


def embed(text: str) -> npt.NDArray[np.float32]:
    return np.full(256, len(text), np.float32)


def encode(picture: Image.Image) -> npt.NDArray[np.float16]:
    return np.asarray(picture, np.float16)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two tenants' texts by two model versions, and one picture."""
    folder = tmp_path / "cache"
    picture = tmp_path / "picture.png"
    Image.linear_gradient("L").save(picture)
    with Cache(folder, memory="16MiB", disk="64MiB") as cache:
        for version in ("embedder-1", "embedder-2"):
            cached = cache.wrap(embed, modality="text", signature=version)
            for tenant in ("acme", "globex"):
                for text in (SECRET_TEXT, "bb", "ccc"):
                    cached.options(tenant=tenant)(text)
        cache.wrap(encode, modality="image", signature="tower-1")(picture)
    return folder


class Told:
    """Runs commands with --json and gives what they print."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self._capsys = root, capsys

    def __call__(self, *words: str, code: Exit = Exit.DONE, root: Path | None = None) -> Any:
        where = ["--root", str(root or self.root)] if words[:2] != ("snapshot", "show") else []
        assert main([*words, *where, "--json"]) == code, self._capsys.readouterr().err
        return json.loads(self._capsys.readouterr().out)


@pytest.fixture
def tell(root: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(root, capsys)


def computes(root: Path, tenant: str = "acme") -> int:
    """How many of a tenant's three texts a fresh process must compute."""
    with Cache(root, disk="64MiB") as cache:
        cached = cache.wrap(embed, modality="text", signature="embedder-1", tenant=tenant)
        for text in (SECRET_TEXT, "bb", "ccc"):
            assert cached(text)[0] == len(text)
        return cache.stats().computes


def test_stats_count_blocks_by_owner(tell: Told) -> None:
    page = tell("stats")
    assert page["blocks"] == 13
    groups = {(group["tenant"], group["model"]): group["blocks"] for group in page["groups"]}
    assert groups == {
        ("acme", "embedder-1"): 3, ("acme", "embedder-2"): 3, ("globex", "embedder-1"): 3, ("globex", "embedder-2"): 3,
        ("default", "tower-1"): 1,
    }  # fmt: skip


def test_inspect_finds_a_key_by_its_first_digits(root: Path, tell: Told) -> None:
    with Cache(root, disk="64MiB") as cache:
        key = cache.wrap(embed, modality="text", signature="embedder-1", tenant="acme").key("bb")
    for text in (str(key), str(key).upper()[:50]):
        (page,) = tell("inspect", text)
        assert page["key"] == str(key)
        assert (page["tenant"], page["model"], page["modality"], page["intact"]) == ("acme", "embedder-1", "text", True)
        assert page["arrays"][0]["dtype"] == "<f4"
        assert page["arrays"][0]["shape"] == [256]
    same_content = tell("inspect", key.digest.hex()[:12])
    assert {page["model"] for page in same_content} == {"embedder-1", "embedder-2"}
    assert tell("inspect", "00000000", code=Exit.NO) == []
    assert tell("inspect", "xyz", code=Exit.FAILED)["error"] == "InvalidInputError"


def test_explain_says_what_is_stored_for_a_file(root: Path, tell: Told) -> None:
    picture = root.parent / "picture.png"
    again = root.parent / "again.bmp"
    Image.open(picture).save(again)
    for path in (picture, again):
        page = tell("explain", str(path))
        assert [block["model"] for block in page["stored"]] == ["tower-1"]
    assert tell("explain", str(picture), "--tenant", "acme", code=Exit.NO)["stored"] == []


def test_verify_finds_one_flipped_bit(root: Path, tell: Told) -> None:
    page = tell("verify")
    assert (page["ok"], page["blocks"], page["corrupt"]) == (True, 13, [])
    segment = max(
        (path for path in root.rglob("*") if path.is_file() and path.stat().st_size > 4096), key=segment_bytes
    )
    damage(segment)
    page = tell("verify", code=Exit.NO)
    assert not page["ok"]
    assert page["corrupt"]


def segment_bytes(path: Path) -> int:
    """How much of the file is payload: the value 2.0 as float32, repeated."""
    return path.read_bytes().count(np.full(4, 2, np.float32).tobytes())


def damage(path: Path) -> None:
    page = bytearray(path.read_bytes())
    page[page.index(np.full(64, 2, np.float32).tobytes()) + 100] ^= 1
    path.write_bytes(page)


def test_purge_removes_one_tenant_for_good_and_nobody_else(root: Path, tell: Told) -> None:
    would = tell("purge", "--tenant", "acme", "--dry-run")
    assert computes(root) == 0, "a dry run changes nothing"
    done = tell("purge", "--tenant", "acme")
    assert (done["blocks"], would["blocks"]) == (6, 6)
    assert done["bytes"] > 6 * 1024
    assert computes(root, "globex") == 0
    assert not [path for path in root.rglob("*") if path.is_file() and b"acme" in path.read_bytes()]
    assert computes(root) == 3


def test_a_purge_reaches_the_memory_of_programs_that_run(root: Path, tell: Told) -> None:
    with Cache(root, memory="16MiB", disk="64MiB") as cache:
        cached = cache.wrap(embed, modality="text", signature="embedder-1", tenant="acme")
        key = cached.key("bb")
        assert cache.get(key) is not None
        assert cache.peek(key) is not None
        tell("purge", "--tenant", "acme")
        assert cache.peek(key) is None
        assert cache.get(key) is None
        assert cached("bb")[0] == 2
        assert cache.stats().computes == 1


def test_purge_by_model_and_age(tell: Told) -> None:
    assert tell("purge", "--older-than", "1h")["blocks"] == 0
    assert tell("purge", "--model", "embedder-1", "--tenant", "globex")["blocks"] == 3
    assert tell("purge", "--model", "embedder*")["blocks"] == 9
    assert tell("purge", "--all")["blocks"] == 1


def test_a_snapshot_warms_a_cold_folder_that_has_the_secret(root: Path, tell: Told, tmp_path: Path) -> None:
    file = str(tmp_path / "warm.safetensors")
    saved = tell("snapshot", "save", file, "--model", "embedder-1")
    assert saved["blocks"] == 6
    assert tell("snapshot", "show", file) == saved
    cold = tmp_path / "cold"
    error = tell("snapshot", "load", file, root=cold, code=Exit.FAILED)
    assert "realm secret" in error["message"]
    shutil.copy(root / "realm.key", cold / "realm.key")
    assert tell("snapshot", "load", file, root=cold)["blocks"] == 6
    assert computes(cold) == 0
    assert tell("verify", root=cold)["ok"]


def test_rekey_leaves_nothing_that_the_old_secret_opens(root: Path, tell: Told) -> None:
    old = (root / "realm.key").read_bytes()
    assert tell("rekey")["blocks"] == 13
    assert (root / "realm.key").read_bytes() != old
    assert (root / "realm.key").stat().st_mode & 0o077 == 0
    assert computes(root) == 3
    assert computes(root) == 0


@pytest.mark.parametrize("words", [["stats"], ["verify"], ["purge", "--all", "--dry-run"], ["inspect", "0" * 64]])
def test_people_get_tables(words: list[str], root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*words, "--root", str(root)])
    said = capsys.readouterr()
    assert "{" not in said.out
    assert "Traceback" not in said.err


def test_a_text_that_cannot_be_read_is_an_error(tell: Told, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("binary", "absent", "."):
        told = tell("explain", str(tmp_path / name), "--modality", "text", code=Exit.FAILED)
        assert told["error"] == "InvalidInputError"


def test_a_folder_that_cannot_be_used_keeps_its_secret(tell: Told, root: Path) -> None:
    before = (root / "realm.key").read_bytes()
    (root / "FORMAT").write_text("mmcache-disk 99\n")
    assert tell("rekey", code=Exit.FAILED)["error"] == "FormatVersionError"
    assert (root / "realm.key").read_bytes() == before


def test_a_mistyped_snapshot_makes_no_cache(tell: Told, tmp_path: Path) -> None:
    told = tell("snapshot", "load", str(tmp_path / "absent"), root=tmp_path / "new", code=Exit.FAILED)
    assert told["error"] == "SnapshotError"
    assert not (tmp_path / "new").exists()


def test_a_block_of_an_impossible_time_can_be_inspected(tell: Told, root: Path) -> None:
    key = make_key(7)
    with disk_tier(Folder(root=root)) as tier:
        frame = make_frame(key, b"x" * 64)
        header = msgspec.structs.replace(frame.header, created=1e300, cost=float("inf"))
        tier.put([Frame.seal(header, frame.payload)], [None])
    (page,) = tell("inspect", str(key))
    assert (page["created"], page["compute_seconds"]) == ("1e+300 s", None)
