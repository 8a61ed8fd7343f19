"""What is no evidence must not be used: another tenant's hit, another signature's, a put that no tier took."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.dashboard.store_world import HOUR_AGO, call, put
from tests.unit.dashboard.store_world import lookup as sent
from tests.unit.dashboard.test_explained import NEW, NOON, OLD, lookup, rows, said

from mmcache.dashboard.app import Dashboard
from mmcache.dashboard.explained import explain
from mmcache.dashboard.rows import REASONS, SignatureRow

A = "a" * 16


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("other", [{"tenant": "rival"}, {"attributes": OLD | {"cache.namespace": "another"}}])
def test_another_realm_is_no_evidence(reason: str, other: dict[str, Any]) -> None:
    strange = lookup(NOON - 4, signature=A, instance="theirs", **other)
    stored = replace(strange, lookup=False, hit=False, name="cache.put")
    found = explain(rows(lookup(NOON, reason=reason), [strange, stored], [replace(strange, start=NOON + 9)]))
    assert found.before is None
    assert found.moved == ()
    assert "theirs" not in said(found)


async def test_the_store_hands_out_no_other_tenants_rows(app: Dashboard) -> None:
    """Nor do they push out the tenant's own, however many there are."""
    content = "ab" * 16
    own = sent(HOUR_AGO, content=content, signature="1" * 16, tenant="ours", modality="image", instance="two")
    miss = sent(HOUR_AGO + 60, "signature", content=content, signature="2" * 16, tenant="ours", modality="image")
    theirs = [
        sent(HOUR_AGO + 1 + at / 10, content=content, signature="1" * 16, tenant="rival", instance="theirs")
        for at in range(80)
    ]
    put(app.store, own, miss, *theirs, sent(HOUR_AGO + 90, content=content, tenant="rival", instance="theirs"))
    found = (await call(app, f"/api/v1/explain/{miss.trace.hex()}/{miss.span.hex()}")).json
    assert found["before"]["span"] == own.span.hex()
    assert not [line for line in found["text"] if "theirs" in line and "hit" in line.split("theirs")[0]]


@pytest.mark.parametrize("reason", [reason for reason in REASONS if reason not in ("absent", "signature")])
def test_another_signatures_hit_blames_nothing(reason: str) -> None:
    """Two models run side by side; one of them misses for want of room."""
    hit = lookup(NOON - 4, signature=A)
    stored = replace(hit, lookup=False, hit=False, name="cache.put", start=NOON - 400)
    found = explain(rows(lookup(NOON, reason=reason), [hit, stored]))
    assert found.moved == ()
    assert found.before is None
    assert "had been stored" not in said(found)


def test_what_is_new_for_this_signature_says_so() -> None:
    found = explain(rows(lookup(NOON, reason="absent"), [lookup(NOON - 4, signature=A)]))
    assert "never stored for this signature" in said(found)
    assert "model_version was clip-1.4.0, is clip-1.5.0" in said(found)
    assert "It was here" not in said(found)


def test_what_another_process_had_was_not_here() -> None:
    found = explain(rows(lookup(NOON, reason="absent"), [lookup(NOON - 4, instance="encoder-1")]))
    assert "in another process and not in this one" in said(found)
    assert "was here" not in said(found)


@pytest.mark.parametrize("reason", ["absent", "signature", "expired"])
def test_a_put_that_no_tier_took_stored_nothing(reason: str) -> None:
    refused = lookup(NOON - 9, signature=A if reason == "signature" else "b" * 16, lookup=False, hit=False,
                     name="cache.put", attributes=OLD | {"cache.stored": False})  # fmt: skip
    found = explain(rows(lookup(NOON, reason=reason), [refused]))
    assert found.before is None
    assert "stored at" not in said(found)


def test_the_signature_that_the_detail_names_is_held_against() -> None:
    """Not whichever hit last: a third one is tried elsewhere."""
    third = lookup(
        NOON - 1, signature="c" * 16, instance="encoder-9", attributes=OLD | {"cache.signature.dtype": "int8"}
    )
    hit = lookup(NOON - 60, signature=A)
    missed = lookup(NOON, reason="signature", detail=f"{A} is stored: model_version differs")
    for span in (missed, replace(missed, detail="")):  # else its own process tells
        found = explain(rows(span, [third, hit]))
        assert found.before == hit
        assert [one.component for one in found.moved] == ["model_version"]


@pytest.mark.parametrize("side", ["hit", "miss"])
def test_fields_that_were_not_recorded_did_not_move(side: str) -> None:
    bare = {"cache.content": "c0"}
    hit = lookup(NOON - 4, signature=A, attributes=bare if side == "hit" else OLD)
    found = explain(rows(lookup(NOON, reason="signature", attributes=bare if side == "miss" else NEW), [hit]))
    assert found.moved == ()
    assert "(none)" not in said(found)
    assert found.before == hit


def used(signature: str, model: str, hits: float, since: float = 0.0) -> SignatureRow:
    fields = {"model_version": model, "dtype": "float16"}
    return SignatureRow(
        "encoders", "encoder-2", "image", signature, fields, hits, 5.0, since, 0.0, NOON - 3000, NOON - 1
    )


def test_another_model_of_the_process_is_not_what_was_replaced() -> None:
    missed = lookup(NOON, reason="signature")
    still = used("d" * 16, "dino-2", 9000.0, 50.0)
    assert [one.was for one in explain(rows(missed, signatures=[still, used(A, "clip-1.4.0", 9.0)])).moved] == [
        "clip-1.4.0"
    ]
    assert explain(rows(missed, signatures=[still])).moved == ()
    both = [used("d" * 16, "dino-2", 9000.0), used(A, "clip-1.4.0", 9.0)]  # nobody knows which of the two
    assert explain(rows(missed, signatures=both)).moved == ()
    assert [one.was for one in explain(rows(replace(missed, detail=f"stored under {A}"), signatures=both)).moved] == [
        "clip-1.4.0"
    ]  # fmt: skip


def test_a_limit_of_the_callers_is_not_mended_by_a_longer_lifetime() -> None:
    stored = lookup(NOON - 300, lookup=False, hit=False, name="cache.put")
    text = said(explain(rows(lookup(NOON, reason="expired", detail="older than the caller takes"), [stored])))
    assert "no `ttl` changes that" in text
    assert "longer `ttl`" not in text


def test_a_later_hit_of_another_signature_healed_nothing() -> None:
    missed = lookup(NOON, reason="signature")
    assert "for another signature" in explain(rows(missed, later=[lookup(NOON + 5, signature=A)])).text[-1]
    assert "for another signature" not in explain(rows(missed, later=[lookup(NOON + 5)])).text[-1]
    stored = lookup(NOON + 1, lookup=False, hit=False, name="cache.put")
    assert "missed again" in explain(rows(missed, later=[stored, lookup(NOON + 5, reason="evicted")])).text[-1]
