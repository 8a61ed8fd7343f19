"""Traces, and what `mmcache explain TRACE` says of them."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mmcache import Cache, Signature
from mmcache.cli import main
from mmcache.cli.output import Exit
from mmcache.keys.drift import Trace, TraceLog, digest_tokens
from mmcache.keys.drift.culprit import compare
from mmcache.keys.drift.trace import COMPONENTS, is_trace, make_trace, read_traces
from mmcache.model.errors import FormatVersionError, InvalidInputError

TEXT = "the quarterly figures of acme"
MODEL = Signature(model_version="tower-1", tokenizer="bpe-1", preprocess="rgb-224")


def trace(outcome: str = "hit (memory)", source: str = "cat", **components: str) -> Trace:
    fields: dict[str, Any] = {"model_version": "tower-1", "preprocess": "rgb-224", "tokenizer": "bpe-1"}
    named: dict[str, Any] = {
        name: components.pop(name) for name in ("statistics", "tokens", "region") if name in components
    }
    content = components.pop("content", "c0")
    parts = {name[5:]: value for name, value in components.items() if name.startswith("part_")}
    fields |= {name: value for name, value in components.items() if not name.startswith("part_")}
    return make_trace(
        when=1.0, source=source, outcome=outcome, key=repr(sorted((fields | named | parts).items())),
        signature=fields, tenant="acme", namespace="default", content=content, parts=parts, **named,
    )  # fmt: skip


def miss(**components: str) -> Trace:
    return trace("miss (absent)", **components)


@pytest.mark.parametrize(
    ("before", "now", "culprits"),
    [
        (trace(), miss(tokenizer="bpe-2"), ("tokenizer",)),
        (trace(tokens="aa"), miss(tokenizer="bpe-2", tokens="bb"), ("tokenizer",)),
        (trace(tokens="aa"), miss(tokens="bb"), ("tokens",)),
        (trace(statistics="f1"), miss(statistics="f2", preprocess="rgb-224-f2"), ("statistics",)),
        (trace(), miss(preprocess="rgb-336"), ("preprocess",)),
        (trace(), miss(model_version="tower-2"), ("model",)),
        (trace(), miss(region="r1"), ("region",)),
        (trace(decoder="pillow-12"), miss(decoder="pillow-13", content="c1"), ("decoder",)),
        (trace(part_ocr="a"), miss(part_ocr="b"), ("part:ocr",)),
        (trace(), miss(model_version="tower-2", tokenizer="bpe-2"), ("tokenizer", "model")),
        (trace(), miss(), ()),
    ],
)
def test_the_culprit_is_what_moved_by_itself(before: Trace, now: Trace, culprits: tuple[str, ...]) -> None:
    found = compare([before, now])
    assert found is not None
    assert found.culprits == culprits
    assert all(name in found.told for name in culprits)
    moved = {change.component for change in found.changes if change.changed}
    assert moved >= set(culprits)


def test_the_last_miss_is_held_against_the_latest_hit_of_its_own_source() -> None:
    old, new = trace(tokenizer="bpe-0"), trace()
    found = compare([old, new, miss(source="dog"), miss(tokenizer="bpe-2"), miss(source="never hit")])
    assert found is not None
    assert (found.hit, found.miss.source) == (new, "cat")
    assert compare([miss(), trace()]) is None, "a hit that came later explains nothing"
    assert compare([]) is None


def test_a_block_that_is_gone_is_told_from_a_key_that_moved() -> None:
    evicted = trace("miss (evicted)")
    found = compare([trace(), evicted])
    assert found is not None
    assert "key is the same" in found.told
    assert "evicted" in found.told
    unknown = compare([trace(), Trace(1, 1.0, "cat", "miss (absent)", "another", trace().components)])
    assert unknown is not None
    assert "record more" in unknown.told


def test_the_cache_makes_traces_and_the_command_line_names_what_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "requests.jsonl"
    log = TraceLog(path)
    with Cache(memory="1MiB") as cache:
        for number, signature in enumerate((MODEL, MODEL, replace(MODEL, tokenizer="bpe-2"))):
            asked: dict[str, Any] = {"modality": "text", "signature": signature}
            log.write(cache.explain(TEXT, **asked).trace(when=float(number)))
            cache.get_or_compute(cache.key(TEXT, **asked), lambda: np.zeros(4))
    page = path.read_bytes()
    assert b"acme" not in page, "digests, never content"
    assert path.stat().st_mode & 0o077 == 0
    assert is_trace(path)
    assert [one.hit for one in read_traces(path)] == [False, True, False]
    assert main(["explain", str(path), "--json"]) == Exit.DONE
    told = json.loads(capsys.readouterr().out)
    assert told["culprits"] == ["tokenizer"]
    assert {c["component"] for c in told["components"] if not c["changed"]} >= {"content", "model", "preprocess"}
    assert (told["requests"], told["hits"]) == (3, 1)
    assert main(["explain", str(path)]) == Exit.DONE
    said = capsys.readouterr().out
    assert "CHANGED" in said
    assert "bpe-1 → bpe-2" in said


def test_nothing_to_explain_is_the_answer_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.jsonl"
    TraceLog(path).write(miss())
    assert main(["explain", str(path), "--json"]) == Exit.NO
    said = capsys.readouterr()
    assert json.loads(said.out) == {"requests": 1, "hits": 0}
    assert "earlier hit" in said.err


def test_the_log_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for start in (0, 30):  # a second run goes on with the file
        log = TraceLog(path, most=20)
        for number in range(start, start + 30):
            log.write(trace(source=str(number)))
            assert len(path.read_bytes().splitlines()) <= 20
    kept = [int(one.source) for one in read_traces(path)]
    assert kept == list(range(kept[0], 60))
    assert len(kept) >= 10


def test_a_log_that_was_taken_away_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    log = TraceLog(path, most=4)
    for _ in range(4):
        log.write(trace())
    path.unlink()
    log.write(trace(source="new"))
    assert [one.source for one in read_traces(path)] == ["new"]


def test_a_line_that_was_cut_off_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    log = TraceLog(path)
    log.write(trace())
    log.write(miss(tokenizer="bpe-2"))
    path.write_bytes(path.read_bytes() + b'{"mmcache_trace":1,"when":')
    assert len(read_traces(path)) == 2


def test_a_json_list_or_object_will_do(tmp_path: Path) -> None:
    lines = tmp_path / "t.jsonl"
    log = TraceLog(lines)
    log.write(trace())
    log.write(miss(tokenizer="bpe-2"))
    whole = [json.loads(line) for line in lines.read_text().splitlines()]
    (tmp_path / "list.json").write_text(json.dumps(whole, indent=1))
    (tmp_path / "one.json").write_text(json.dumps(whole[0]))
    assert is_trace(tmp_path / "list.json")
    assert read_traces(tmp_path / "list.json") == read_traces(lines)
    assert read_traces(tmp_path / "one.json") == read_traces(lines)[:1]


DEEP = '{"mmcache_trace":1,"x":' + "[" * 50_000 + "]" * 50_000 + "}"


@pytest.mark.parametrize(
    "page",
    ['{"mmcache_trace":1}', '{"mmcache_trace":"x"}', "[1]", "nonsense", '[{"a":', DEEP, f"[{DEEP}]"],
    ids=range(7),
)
def test_what_is_no_trace_is_refused(page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(page)
    with pytest.raises(InvalidInputError):
        read_traces(path)
    assert main(["explain", str(path), "--modality", "trace"]) == Exit.FAILED
    assert "is no trace" in capsys.readouterr().err


def test_newer_and_missing_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"mmcache_trace":2}\n')
    with pytest.raises(FormatVersionError):
        read_traces(path)
    assert not is_trace(tmp_path / "absent")
    assert not is_trace(tmp_path)
    with pytest.raises(InvalidInputError, match="cannot read"):
        read_traces(tmp_path / "absent")
    with pytest.raises(InvalidInputError):
        TraceLog(path, most=1)


def test_token_digests_are_keyed() -> None:
    assert digest_tokens([1, 2], bytes(32)) != digest_tokens([1, 2], b"x" * 32)
    assert digest_tokens([1, 2], bytes(32)) != digest_tokens([12], bytes(32))
    assert len(digest_tokens([], bytes(32))) == 32


def test_every_field_of_a_signature_is_a_component() -> None:
    names = {"schema_hash": "schema", "model_version": "model"}
    assert {names.get(field.name, field.name) for field in dataclasses.fields(Signature)} <= set(COMPONENTS)
