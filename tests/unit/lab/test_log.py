"""A user's access log becomes a trace, or a message with the line that cannot be used."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mmcache.lab.traces.encoder_costs import seconds_a_byte
from mmcache.lab.traces.log import read_log
from mmcache.lab.traces.synthetic import log_lines
from mmcache.model.errors import InvalidInputError

FULL = """\
time,key,bytes,cost,tenant,modality
2026-06-01T10:00:00Z,a,100,0.5,shop,image
2026-06-01T10:00:01+00:00,b,50,,shop,text
2026-06-01T10:00:02,a,120,0.7,shop,
2026-06-01 10:00:03,a,,0.1,export,image
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(text: str | bytes, name: str = "access.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return written


def test_all_columns(write: Callable[..., Path]) -> None:
    trace = read_log(write(FULL))
    assert trace.ids.tolist() == [0, 1, 0, 2]
    assert np.diff(trace.times).tolist() == [1, 1, 1]
    assert trace.sizes.tolist() == [120, 50, 4096]
    assert trace.costs.tolist() == pytest.approx([0.6, 0.35, 0.1])
    assert [trace.tenants[owner] for owner in trace.owners] == ["shop", "shop", "export"]
    assert [trace.modalities[kind] for kind in trace.kinds] == ["image", "text", "image"]
    assert any("1 of 3 blocks have no bytes" in note for note in trace.notes)
    assert any("1 of 3 blocks have no cost" in note for note in trace.notes)


def test_only_a_key(write: Callable[..., Path]) -> None:
    trace = read_log(write("URL\nx\ny\nx\n"))
    assert trace.ids.tolist() == [0, 1, 0]
    assert trace.costs.tolist() == [1, 1]
    assert len(trace.notes) == 3


@pytest.mark.parametrize("header", ["object-id;Timestamp;SIZE;latency_ms", "key\tts\tcontent_length\tduration ms"])
def test_other_names_and_delimiters(write: Callable[..., Path], header: str) -> None:
    mark = ";" if ";" in header else "\t"
    trace = read_log(write(f"{header}\n" + mark.join(["k", "1780000000123", "9", "250"]) + "\n"))
    assert trace.sizes.tolist() == [9]
    assert trace.costs.tolist() == [0.25]
    assert trace.times.tolist() == [1780000000.123]


@pytest.mark.parametrize("moment", ["1780000000", "1780000000000", "1780000000000000", "1780000000000000000"])
def test_unix_times_of_any_unit(write: Callable[..., Path], moment: str) -> None:
    assert read_log(write(f"time,key\n{moment},a\n")).times.tolist() == [1_780_000_000]


def test_rows_out_of_order_are_sorted_with_all_that_they_say(write: Callable[..., Path]) -> None:
    trace = read_log(write("time,key,bytes,cost,tenant,modality\n2,b,2,2,t2,text\n1,a,1,1,t1,image\n3,b,3,4,t2,text\n"))
    assert trace.ids.tolist() == [0, 1, 1]
    assert trace.sizes.tolist() == [1, 3]
    assert trace.costs.tolist() == [1, 3]
    assert [trace.tenants[owner] for owner in trace.owners] == ["t1", "t2"]
    assert [trace.modalities[kind] for kind in trace.kinds] == ["image", "text"]
    assert any("sorted" in note for note in trace.notes)


def test_the_same_key_of_two_tenants_is_two_blocks(write: Callable[..., Path]) -> None:
    assert read_log(write("key,tenant\na,x\na,y\n")).ids.tolist() == [0, 1]


def test_costs_come_from_the_encoders_where_modalities_are_known(write: Callable[..., Path]) -> None:
    trace = read_log(write("key,bytes,modality\na,1000,image\nb,1000,text\n"))
    assert trace.costs.tolist() == pytest.approx([1000 * seconds_a_byte("image"), 1000 * seconds_a_byte("text")])


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)])
def test_compressed(write: Callable[..., Path], ending: str, pack: Callable[[bytes], bytes]) -> None:
    assert len(read_log(write(pack(FULL.encode()), "a.csv" + ending))) == 4
    with pytest.raises(InvalidInputError, match=r"cut short or no \.\w+ file"):
        read_log(write(pack(FULL.encode())[:-12], "b.csv" + ending))


def test_json_lines(write: Callable[..., Path]) -> None:
    lines = list(log_lines(500, seed=1))
    trace = read_log(write("\n".join(lines) + "\n\n", "log.jsonl"))
    assert len(trace) == 500
    assert trace.notes == ()
    assert set(trace.tenants) == {"shop", "export"}
    assert lines == list(log_lines(500, seed=1))


def test_rows_of_json_need_not_have_the_same_names(write: Callable[..., Path]) -> None:
    lines = ['{"key": "a", "time": 1}', '{"time": 2, "key": "b", "cost": 3}', '{"time": 3, "key": "a", "cost": 5}']
    trace = read_log(write("\n".join(lines), "x.jsonl"))
    assert trace.costs.tolist() == [5, 3]
    path = write(lines[0] + '\n{"key": "b"}\n', "y.jsonl")
    with pytest.raises(InvalidInputError, match="line 2: it has no time, though others have"):
        read_log(path)
    path = write('{"key": "b"}\n' + lines[0], "z.jsonl")
    with pytest.raises(InvalidInputError, match="line 2: it has a time, though earlier ones have none"):
        read_log(path)


def test_of_several_columns_that_fit_the_plainest_is_taken(write: Callable[..., Path]) -> None:
    trace = read_log(write("path,latency_ms,timestamp,key,time,cost\n/x,9,7,a,5,1\n"))
    assert (trace.times.tolist(), trace.costs.tolist()) == ([5], [1])


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("1,,5,1", "no key"),
        ("yesterday,a,5,1", "neither ISO 8601 nor Unix time"),
        (",a,5,1", "neither ISO 8601 nor Unix time"),
        ("inf,a,5,1", "not finite"),
        ("1,a,-5,1", "bytes must be finite, 0 or more"),
        ("1,a,5,nan", "cost must be finite"),
        ("1,a,big,1", "bytes is not a number: 'big'"),
        ("1,a", "2 cells under a header of 4"),
    ],
)
def test_a_bad_row_is_named_by_its_line(write: Callable[..., Path], row: str, wrong: str) -> None:
    path = write(f"time,key,bytes,cost\n1,a,5,1\n{row}\n2,b,5,1\n")
    with pytest.raises(InvalidInputError, match=f"line 3: .*{wrong}.*--skip-bad"):
        read_log(path)
    trace = read_log(path, skip_bad=True)
    assert len(trace) == 2
    assert "1 rows that could not be used were left out" in trace.notes


@pytest.mark.parametrize(
    ("line", "wrong"),
    [("{", "not JSON"), ("[1]", "not a JSON object"), ('{"key": {}}', "no key"), ('{"x": 1}', "no key")],
)
def test_a_bad_json_row_too(write: Callable[..., Path], line: str, wrong: str) -> None:
    with pytest.raises(InvalidInputError, match=f"line 3: {wrong}|line 3: it has {wrong}"):
        read_log(write('{"key": "a"}\n\n' + line + "\n", "x.jsonl"))


@pytest.mark.parametrize(
    ("text", "wrong"), [("", "no usable row"), ("key\n", "no usable row"), ("a,b\n1,2\n", "no column for the key")]
)
def test_a_file_without_rows_or_key(write: Callable[..., Path], text: str, wrong: str) -> None:
    with pytest.raises(InvalidInputError, match=wrong):
        read_log(write(text))


def test_bytes_that_are_no_text_do_not_stop_it(write: Callable[..., Path]) -> None:
    assert len(read_log(write(b"key\n\xff\xfe\n\xff\xfe\n"))) == 2


def test_progress_ends_at_the_whole_file(write: Callable[..., Path]) -> None:
    path, seen = write(FULL), []
    read_log(path, progress=lambda what, done, total: seen.append((what, done, total)))
    assert seen[-1] == ("reading access.csv", path.stat().st_size, path.stat().st_size)


def test_text_that_no_file_can_hold_is_written_out(write: Callable[..., Path]) -> None:
    """Halves of surrogate pairs, which JSON allows: two tenants stay two, and all can be printed."""
    rows = [
        f'{{"key": "{key}", "tenant": "{tenant}"}}' for key in ("a", "\\ud802") for tenant in ("\\ud800", "\\ud801")
    ]
    trace = read_log(write("\n".join(rows), "access.jsonl"))
    assert trace.tenants == (r"\ud800", r"\ud801")
    assert len(trace.sizes) == 4


@pytest.mark.parametrize("column", ["time", "bytes", "cost"])
def test_numbers_that_are_too_large_are_bad_rows(write: Callable[..., Path], column: str) -> None:
    row = f'{{"key": 1, "{column}": {10**400}}}'
    with pytest.raises(InvalidInputError, match="line 1"):
        read_log(write(row, "access.jsonl"))


def test_a_block_of_more_than_a_tebibyte_is_a_mistake(write: Callable[..., Path]) -> None:
    with pytest.raises(InvalidInputError, match="line 3: bytes must be finite, 0 or more, and not above"):
        read_log(write(f"key,bytes\na,{1 << 40}\nb,{1 << 60}\n"))


def test_what_is_no_bzip2_is_said_to_be_none(write: Callable[..., Path]) -> None:
    with pytest.raises(InvalidInputError, match=r"no \.bz2 file"):
        read_log(write("key\na\n", "access.bz2"))
