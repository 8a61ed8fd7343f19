"""How far warming has come."""

from __future__ import annotations

import os
from pathlib import Path

from mmcache.model.key import Key
from mmcache.prefetch.media import journal as journals
from mmcache.prefetch.media.journal import Journal
from mmcache.prefetch.media.task import Task

KEYS = [Key(bytes([n] * 16), bytes([n + 1] * 16)) for n in range(3)]
PAGE = Task("ocr", frame_ts=40)
LINE = Task("ocr", frame_ts=40, roi_bbox=(1, 2, 30, 4))
SENTENCE = Task("asr", asr_offset=1.5, asr_end=2.25)


def write(path: Path) -> None:
    journal = Journal(path)
    journal.begin(fresh=True)
    journal.scene(0, 40)
    journal.spoken(1500, 2250)
    journal.done(PAGE, KEYS[:1])
    journal.done(LINE, KEYS[1:])
    journal.done(SENTENCE, [])
    journal.ended("video", {"frames": 7})
    journal.close()
    journal.close()


def test_what_is_noted_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path)
    noted = Journal(path).read()
    assert (noted.scenes, noted.speech, noted.ended) == ([(0, 40)], [(1500, 2250)], {"video": {"frames": 7}})
    assert noted.done == {PAGE: tuple(KEYS[:1]), LINE: tuple(KEYS[1:]), SENTENCE: ()}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_torn_line_ends_it_and_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert Journal(path).read().ended == {}
    journal = Journal(path)
    journal.begin(fresh=False)
    journal.ended("video", {"frames": 8})
    journal.close()
    noted = Journal(path).read()
    assert noted.ended == {"video": {"frames": 8}}
    assert len(noted.done) == 3


def test_damage_in_the_middle_loses_what_follows_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path)
    lines = path.read_bytes().splitlines(keepends=True)
    for nonsense in (b"\xff\xfe\n", b"[]\n", b'{"done":{"kind":"ocr"},"keys":["00"]}\n', b'{"scene":[1]}\n', b"{}\n"):
        path.write_bytes(b"".join([*lines[:2], nonsense, *lines[2:]]))
        noted = Journal(path).read()
        assert (noted.lines, noted.scenes, noted.done) == (2, [(0, 40)], {})


def test_fresh_forgets(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path)
    journal = Journal(path)
    journal.begin(fresh=True)
    journal.close()
    assert Journal(path).read().lines == 0


def test_without_a_folder_nothing_is_kept() -> None:
    journal = Journal.under(None, b"name")
    journal.begin(fresh=True)
    journal.scene(1, 2)
    journal.close()
    assert journal.read().lines == 0


def test_a_journal_that_cannot_be_kept_is_done_without(tmp_path: Path) -> None:
    (tmp_path / journals.FOLDER).write_text("in the way")
    journal = Journal.under(tmp_path, b"name")
    journal.begin(fresh=False)
    journal.scene(0, 40)
    assert journal.lost
    assert journal.read().lines == 0
    if not Path("/dev/full").exists():
        return
    full = Journal(Path("/dev/full"))
    full.begin(fresh=True)
    assert not full.lost
    full.scene(0, 40)
    full.scene(40, 80)
    assert full.lost


def test_the_folder_keeps_a_bounded_number(tmp_path: Path) -> None:
    folder = tmp_path / journals.FOLDER
    folder.mkdir()
    for n in range(journals.MOST_FILES + 3):
        (folder / f"{n}.jsonl").touch()
        os.utime(folder / f"{n}.jsonl", (n, n))
    Journal.under(tmp_path, b"\x01")
    left = {path.stem for path in folder.iterdir()}
    assert len(left) == journals.MOST_FILES
    assert not {"0", "1", "2"} & left


def test_a_journal_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path)
    os.truncate(path, journals.MOST_BYTES + 1)
    assert Journal(path).read().lines == 0
