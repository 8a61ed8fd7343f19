"""Why one lookup missed: every reason has a sentence and a next step, and the component that moved is named."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mmcache.dashboard.explained import Explained, explain
from mmcache.dashboard.rows import REASONS, ExplainRows, InstanceRow, SignatureRow, SpanRow, Window

NOON = 1_790_216_100.0
"""2026-09-24 02:15:00 UTC."""
OLD = {"cache.signature.model_version": "clip-1.4.0", "cache.signature.dtype": "float16", "cache.content": "c0"}
NEW = OLD | {"cache.signature.model_version": "clip-1.5.0"}


def lookup(when: float, *, reason: str = "", signature: str = "b" * 16, **changes: Any) -> SpanRow:
    one = SpanRow(
        trace=f"{int(when):032x}", span=f"{int(when):016x}", parent="", name="cache.lookup", kind="internal",
        start=when, duration_ms=0.1, service="encoders", instance="encoder-2", status="unset", lookup=True,
        hit=not reason, outcome="miss" if reason else "hit", reason=reason, tier="" if reason else "memory",
        modality="image", tenant="shop", key="k" + signature[:15], content_id="d" * 32, signature=signature,
        attributes=NEW if signature[0] == "b" else OLD,
    )  # fmt: skip
    return replace(one, **changes)


def rows(
    span: SpanRow,
    earlier: Sequence[SpanRow] = (),
    later: Sequence[SpanRow] = (),
    spread: Sequence[InstanceRow] = (),
    signatures: Sequence[SignatureRow] = (),
) -> ExplainRows:
    return ExplainRows(span, [span], earlier, later, Window(NOON - 3600, NOON + 600), spread, signatures)


def said(found: Explained) -> str:
    json.dumps(found.to_dict(), allow_nan=False)
    return " ".join(found.text)


def test_the_component_that_moved_is_named_with_when_and_where() -> None:
    hit = lookup(NOON - 4, signature="a" * 16, instance="encoder-1")
    spread = [
        InstanceRow("encoders", "encoder-2", 812.0, 40.0, NOON + 0.5),
        InstanceRow("encoders", "encoder-1", 0.0, 900.0, None),
        InstanceRow("encoders", "encoder-3", 0.0, 870.0, None),
    ]
    again = lookup(NOON + 60)
    found = explain(rows(lookup(NOON + 30, reason="signature"), [hit], [again], spread))
    assert found.verdict == "miss (signature)"
    assert found.to_dict()["moved"] == [{"component": "model_version", "was": "clip-1.4.0", "now": "clip-1.5.0"}]
    assert found.to_dict()["before"] == {
        "trace": hit.trace, "span": hit.span, "when": hit.start, "instance": "encoder-1",
    }  # fmt: skip
    assert found.to_dict()["spread"]["since"] == NOON + 0.5
    assert found.to_dict()["spread"]["misses"] == 812
    text = said(found)
    assert "model_version was clip-1.4.0, is clip-1.5.0" in text
    assert "It last hit (memory) at 02:14:56 UTC in instance encoder-1, 34 s before" in text
    assert "812 misses since 02:15:00 UTC (encoder-2 812); none in encoder-1 and encoder-3." in text
    assert "hit again at 02:16:00 UTC" in text


def test_what_only_followed_comes_after_its_cause() -> None:
    old = {"cache.signature.decoder": "pillow-11", "cache.content": "c0", "cache.signature.model_version": "v1"}
    new = {"cache.signature.decoder": "pillow-12", "cache.content": "c1", "cache.signature.model_version": "v1"}
    hit = lookup(NOON - 4, signature="a" * 16, attributes=old)
    found = explain(rows(lookup(NOON, reason="signature", attributes=new), [hit]))
    assert [(one.component, one.follows) for one in found.moved] == [("decoder", False), ("content", True)]
    assert "decoder was pillow-11, is pillow-12." in said(found)
    assert "content changed with it" in said(found)


def test_a_hit_under_the_same_signature_says_nothing_of_another() -> None:
    own, other = lookup(NOON - 1), lookup(NOON - 9, signature="a" * 16)
    found = explain(rows(lookup(NOON, reason="signature"), [own, other]))
    assert found.before is other


def test_where_no_hit_was_recorded_the_put_tells() -> None:
    put = lookup(NOON - 9, signature="a" * 16, lookup=False, hit=False, outcome="", name="cache.put", tier="")
    found = explain(rows(lookup(NOON, reason="signature"), [put]))
    assert [one.component for one in found.moved] == ["model_version"]
    assert "It last was stored at 02:14:51 UTC" in said(found)


def test_where_nothing_of_this_input_was_recorded_the_process_tells() -> None:
    fields = {"model_version": "clip-1.4.0", "dtype": "float16"}
    used = [
        SignatureRow("encoders", "encoder-2", "image", "a" * 16, fields, 900.0, 50.0, 0.0, 0.0, NOON - 3000, NOON - 1),
        SignatureRow("encoders", "encoder-2", "image", "b" * 16, {}, 0.0, 0.0, 10.0, 300.0, NOON, NOON + 99),
        SignatureRow("encoders", "encoder-2", "image", "c" * 16, {}, 5.0, 1.0, 5.0, 1.0, NOON - 3000, NOON + 99),
    ]
    spread = [InstanceRow("encoders", "encoder-2", 300.0, 10.0, NOON)]
    found = explain(rows(lookup(NOON + 5, reason="signature"), spread=spread, signatures=used))
    assert [(one.component, one.was, one.now) for one in found.moved] == [
        ("model_version", "clip-1.4.0", "clip-1.5.0")
    ]  # fmt: skip
    assert "No hit of this input was recorded; 300 misses by the same change were: signature aaaa" in said(found)
    assert "until 02:14:59 UTC in instance encoder-2" in said(found)
    named = explain(rows(lookup(NOON, reason="signature", detail=f"{'c' * 16} is stored"), signatures=used))
    assert "c" * 16 in said(named)
    assert found.before is None


def test_what_a_process_was_before_it_was_restarted_others_tell() -> None:
    fields = {"model_version": "clip-1.4.0", "dtype": "float16"}
    others = [
        SignatureRow("encoders", "encoder-9", "image", "a" * 16, fields, 9.0, 5.0, 0.0, 0.0, NOON - 3000, NOON - 1),
        SignatureRow("encoders", "encoder-1", "image", "a" * 16, fields, 7.0, 5.0, 9.0, 1.0, NOON - 3000, NOON + 9),
        SignatureRow("encoders", "encoder-1", "image", "c" * 16, {}, 99.0, 1.0, 9.0, 1.0, NOON - 3000, NOON + 9),
    ]
    named = lookup(NOON, reason="signature", detail=f"{'a' * 16} is stored: model_version differs")
    assert [one.component for one in explain(rows(named, signatures=others)).moved] == ["model_version"]
    assert "in instance encoder-9" in said(explain(rows(named, signatures=others)))
    assert explain(rows(replace(named, detail=""), signatures=others)).moved == ()  # nobody knows which it was


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("known", [False, True])
def test_every_reason_says_what_happened_and_what_to_do(reason: str, known: bool) -> None:
    hit = lookup(NOON - 4, signature=("a" if reason == "signature" else "b") * 16)
    put = replace(hit, lookup=False, hit=False, name="cache.put", start=NOON - 400)
    found = explain(rows(lookup(NOON, reason=reason, detail="valkey: refused"), [hit, put] if known else []))
    assert found.verdict == f"miss ({reason})"
    assert len(said(found)) > 60
    assert (found.before is not None) is known
    assert len(found.text) >= (2 if known or reason != "absent" else 1)


def test_reasons_are_not_told_alike() -> None:
    texts = {explain(rows(lookup(NOON, reason=reason))).text[0] for reason in REASONS}
    assert len(texts) == len(REASONS)


def test_what_left_for_want_of_room() -> None:
    hit = lookup(NOON - 4)
    found = explain(rows(lookup(NOON, reason="evicted", detail="evicted from memory: quota"), [hit]))
    assert "left memory for want of room (quota)." in said(found)
    assert found.moved == ()


def test_what_expired_says_how_long_it_was_kept() -> None:
    hit = lookup(NOON - 30, attributes=NEW | {"cache.ttl.remaining_ms": 12_000.0})
    put = lookup(NOON - 318, lookup=False, hit=False, name="cache.put")
    text = said(explain(rows(lookup(NOON, reason="expired", detail="expired in memory"), [hit, put])))
    assert "(expired in memory)" in text
    assert "5.3 min before" in text
    assert "12 s left" in text


@pytest.mark.parametrize(
    ("detail", "words"),
    [("invalidated", "invalidated"), ("refused by memory: admission", "not kept"), ("", "never stored")],
)
def test_absent_is_told_apart_where_it_is_known(detail: str, words: str) -> None:
    assert words in said(explain(rows(lookup(NOON, reason="absent", detail=detail))))


def test_a_hit_and_what_is_no_lookup() -> None:
    assert explain(rows(lookup(NOON, saved_ms=74.0))).text == ("Answered from memory. It saved 74 ms of compute.",)
    server = lookup(NOON, lookup=False, hit=False, name="POST /v1/embeddings", kind="server", outcome="")
    inner = [server, lookup(NOON + 1), lookup(NOON + 2, reason="absent")]
    found = explain(replace(rows(server), trace=inner))
    assert found.verdict == "POST /v1/embeddings"
    assert "2 lookups were recorded in this trace, 1 missed (absent). Open one of them." in said(found)
    assert "No lookup" in said(explain(rows(server)))


def test_a_reason_of_a_newer_version_is_shown() -> None:
    assert "teleported" in said(explain(rows(lookup(NOON, reason="teleported"))))


def test_names_from_outside_cannot_hide_anything() -> None:
    evil = "\x1b]0;x\x07\u202e<script>"
    attributes = NEW | {"cache.signature.model_version": evil}
    hit = lookup(NOON - 4, signature="a" * 16, instance=evil, tier=evil)
    spread = [InstanceRow("s", evil, 9.0, 0.0, NOON), InstanceRow("s", evil, 0.0, 9.0, None)]
    for reason in REASONS:
        span = lookup(NOON, reason=reason, detail=evil, attributes=attributes, instance=evil)
        assert all(one.isprintable() for one in said(explain(rows(span, [hit], [hit], spread))))
