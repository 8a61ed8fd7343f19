"""What spans are made, whose children they are, and what they say."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from PIL import Image
from tests.unit.semantic.world import MODEL, WORDINGS, Model, picture, semantic, trust
from tests.unit.telemetry.recorded import Recorded, id_of, parent_of, trace_of

from mmcache import Cache
from mmcache.attribution import attributed
from mmcache.keys.region import Region
from mmcache.lookup import Lookup
from mmcache.model.event import Failed, MissReason
from mmcache.model.void import VoidKey
from mmcache.semantic.prompt import Prompt
from mmcache.testing import FakeClock


@pytest.fixture(autouse=True, params=[True, False], ids=["shorter", "the SDK's"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorded, "shorter", request.param)


def encoder(cache: Cache, model: Any = len, version: str = "encoder-1", **options: Any) -> Any:
    return cache.wrap(model, modality="text", signature=version, guard=False, **options)


def under(sampled: bool, state: str = "") -> Any:
    """A context inside another process's span."""
    parent = SpanContext(0xABC, 0xDEF, True, TraceFlags(sampled), TraceState.from_header([state] if state else []))
    return trace.use_span(NonRecordingSpan(parent))


def test_a_miss_and_what_follows_from_it_are_one_trace_and_a_hit_is_another() -> None:
    with Cache() as cache, Recorded(cache) as recorded:
        encode = encoder(cache)
        encode("a cat")
        encode("a cat")
        missed, hit = recorded.all("cache.lookup")
        computed, stored = recorded.one("cache.compute"), recorded.one("cache.put")
        assert parent_of(missed) is parent_of(hit) is None
        assert parent_of(computed) == parent_of(stored) == id_of(missed)
        assert trace_of(missed) == trace_of(computed) == trace_of(stored) != trace_of(hit)
        assert missed.start_time <= missed.end_time <= computed.start_time <= computed.end_time <= stored.end_time


def test_what_a_lookup_says() -> None:
    clock = FakeClock()
    with Cache(clock=clock, tenant="acme", namespace="shop") as cache, Recorded(cache) as recorded:
        encode = encoder(cache, ttl=60.0)
        with attributed(route="/search", client="openai-python/2", region="eu-west"):
            encode("a cat")
        clock.advance(10)
        encode("a cat")
        key = encode.key("a cat")
        missed, hit = recorded.told()
        scope = cache.scopes.require(key)
    assert missed["cache.hit"] is False
    assert (missed["cache.outcome"], missed["cache.miss.reason"]) == ("miss", "absent")
    assert not missed.keys() & {"cache.tier", "cache.saved_ms", "cache.bytes", "cache.miss.detail"}
    assert (missed["cache.route"], missed["cache.client"], missed["cache.client.region"]) == (
        "/search", "openai-python/2", "eu-west",
    )  # fmt: skip
    assert hit["cache.hit"] is True
    assert (hit["cache.outcome"], hit["cache.tier"], hit["cache.strategy"]) == ("hit", "memory", "exact")
    assert hit["cache.ttl.remaining_ms"] == pytest.approx(50_000)
    assert hit["cache.saved_ms"] > 0
    assert not hit.keys() & {"cache.miss.reason", "cache.route", "cache.client"}
    for told in (missed, hit):
        assert (told["cache.modality"], told["cache.tenant"], told["cache.namespace"]) == ("text", "acme", "shop")
        assert told["cache.signature"] == scope.signature.digest.hex()[:16]
        assert told["cache.signature.model_version"] == "encoder-1"
        assert told["cache.content"] == key.digest.hex()
        assert told["cache.content.id"] == scope.content_id(key).hex()
        assert told["cache.key.hash"] == key.short
        assert "cache.region" not in told
        assert told["cache.sampling.weight"] == 1.0


def test_one_content_under_two_signatures_has_one_content_id_and_says_which_is_stored() -> None:
    with Cache() as cache, Recorded(cache) as recorded:
        encoder(cache, version="v1")("a cat")
        encoder(cache, version="v2")("a cat")
        first, second = recorded.told()
    assert first["cache.content.id"] == second["cache.content.id"]
    assert first["cache.key.hash"] != second["cache.key.hash"]
    assert second["cache.miss.reason"] == "signature"
    assert second["cache.miss.detail"] == f"{first['cache.signature']} is stored: model_version differs"


def test_inside_a_sampled_span_everything_is_its_child_and_inside_another_nothing_is_recorded() -> None:
    with Cache() as cache, Recorded(cache, sample=0.0) as recorded:
        encode = encoder(cache)
        with under(sampled=False):
            encode("a dog")
            cache.invalidate(encode.key("a dog"))
        encode("a bird")
        assert recorded.all() == []
        with recorded.tracer.start_as_current_span("request") as request:
            encode("a cat")
            cache.invalidate(encode.key("a cat"))
        spans = [span for span in recorded.all() if span.name.startswith("cache.")]
        assert sorted(span.name for span in spans) == ["cache.compute", "cache.invalidate", "cache.lookup", "cache.put"]
        assert {parent_of(span) for span in spans} == {id_of(request)}
        assert recorded.told()[0]["cache.upstream.span_id"] == f"{id_of(request):016x}"
        with under(sampled=True):
            encode("a cat")
        *_, remote = recorded.all("cache.lookup")
        assert (trace_of(remote), parent_of(remote)) == (0xABC, 0xDEF)


@pytest.mark.parametrize(("state", "weight"), [("", 1.0), ("ot=th:c", 4.0), ("ot=rv:abc;th:8", 2.0), ("ot=th:x", 1.0)])
def test_a_child_weighs_what_its_trace_state_says(state: str, weight: float) -> None:
    with Cache() as cache, Recorded(cache, sample=0.0) as recorded:
        with under(sampled=True, state=state):
            encoder(cache)("a cat")
        weights = {
            told["cache.sampling.weight"] for name in ("cache.lookup", "cache.put") for told in recorded.told(name)
        }
        assert weights == {weight}


def test_a_child_weighs_what_its_parent_weighs() -> None:
    with Cache() as cache, Recorded(cache, sample=0.0) as recorded:
        with recorded.tracer.start_as_current_span("request", attributes={"cache.sampling.weight": 7.0}):
            encoder(cache)("a cat")
        assert recorded.told()[0]["cache.sampling.weight"] == 7.0
        assert recorded.told("cache.compute")[0]["cache.sampling.weight"] == 7.0


def test_a_batch_is_one_trace_and_of_a_large_one_a_part_stands_for_all() -> None:
    with Cache() as cache, Recorded(cache) as recorded:
        encode = encoder(cache)
        encode.batch(["a", "b", "c"])
        batch = recorded.one("cache.batch")
        assert {parent_of(span) for span in recorded.all("cache.lookup")} == {id_of(batch)}
        assert parent_of(recorded.one("cache.compute")) == id_of(batch)
        assert recorded.told("cache.compute")[0]["cache.count"] == 3
        assert {parent_of(span) for span in recorded.all("cache.put")} == {id_of(batch)}
        recorded.exporter.clear()
        encode.batch([f"text {n}" for n in range(999)] + ["a"])
        assert len(recorded.told()) <= 128
        assert recorded.weight(lambda told: told["cache.hit"]) == pytest.approx(1)
        assert recorded.weight(lambda told: not told["cache.hit"]) == pytest.approx(999)


def seen_by(model_spans: list[Any]) -> Any:
    def model(text: str) -> int:
        model_spans.append(trace.get_current_span().get_span_context())
        return len(text)

    return model


def test_what_the_model_calls_is_a_child_of_its_computation_in_every_kind_of_call() -> None:
    seen: list[Any] = []
    with Cache() as cache, Recorded(cache) as recorded:
        encode = encoder(cache, seen_by(seen))

        async def awaited(text: str) -> int:
            seen.append(trace.get_current_span().get_span_context())
            await asyncio.sleep(0)
            return len(text)

        async def tasks() -> None:
            await asyncio.gather(encode.a("in a thread"), encoder(cache, awaited).a("in a task"))
            await cache.a.get_or_compute(encode.key("plain"), lambda: seen_by(seen)("plain"))

        encode("directly")
        encode.options(bypass=True)("bypassed")
        asyncio.run(tasks())
        assert not trace.get_current_span().get_span_context().is_valid
        computed = {id_of(span) for span in recorded.all("cache.compute")}
        assert {context.span_id for context in seen} == computed
        assert len(computed) == 5
        lookups = {id_of(span) for span in recorded.all("cache.lookup")}
        assert {parent_of(span) for span in recorded.all("cache.compute")} <= lookups


def test_a_failing_model_is_told_by_type_and_never_by_its_words() -> None:
    def model(text: str) -> int:
        raise ValueError(f"cannot read {text}")

    with Cache() as cache, Recorded(cache) as recorded:
        encode = encoder(cache, model)
        with pytest.raises(ValueError, match="cannot read"):
            encode("a secret")
        span = recorded.one("cache.compute")
        assert not span.status.is_ok
        assert dict(span.attributes or {})["error.type"] == "ValueError"
        assert "secret" not in "".join(span.to_json() for span in recorded.all())
        with pytest.raises(ValueError, match="cannot read"):
            encode("a secret")
        assert len(recorded.all("cache.compute")) == 2, "each miss leads to its own"
        assert not trace.get_current_span().get_span_context().is_valid


def test_memory_hits_are_told_even_where_no_python_of_ours_runs() -> None:
    with Cache() as cache, Recorded(cache) as recorded:
        encode = encoder(cache)
        encode("a cat")
        key = encode.key("a cat")
        recorded.exporter.clear()
        with attributed(route="/search"):
            cache.peek(key)
        with recorded.tracer.start_as_current_span("request") as request:
            cache.get(key)
        with under(sampled=False):
            cache.get_or_compute(key, lambda: 0)
        cache.invalidate(key)
        peeked, got = recorded.all("cache.lookup")
        assert parent_of(peeked) is None
        assert parent_of(got) == id_of(request)
        first, second = recorded.told()
        assert first["cache.route"] == "/search"
        for told in (first, second):
            assert (told["cache.outcome"], told["cache.tier"], told["cache.hit"]) == ("hit", "memory", True)
            assert told["cache.content"] == key.digest.hex()


def test_a_tracer_that_fails_fails_nobody() -> None:
    class Broken:
        def start_span(self, *arguments: Any, **options: Any) -> Any:
            raise RuntimeError("no tracer today")

        ended = start_span

    with Cache() as cache, Recorded(cache) as recorded:
        recorded.spans._making._tracer = recorded.spans._making._provider = Broken()
        encode = encoder(cache)
        assert [encode("a cat"), encode("a cat"), cache.peek(encode.key("a cat"))] == [5, 5, 5]
        cache.invalidate(encode.key("a cat"))
        recorded.spans.flush()
        assert recorded.spans.dropped >= 4
        assert any(isinstance(event, Failed) and event.where == "telemetry" for event in cache.events.recent())


def test_closed_it_observes_no_more_and_leaves_nothing() -> None:
    before = {thread.name for thread in threading.enumerate()}
    with Cache() as cache:
        recorded = Recorded(cache)
        encode = encoder(cache)
        encode("a cat")
        assert "mmcache-spans" in {thread.name for thread in threading.enumerate()}
        recorded.spans.close()
        recorded.spans.close()
        told = len(recorded.told())
        encode("a dog")
        cache.peek(encode.key("a cat"))
        assert len(recorded.told()) == told == 1
        recorded.spans.thread.join(60)
        recorded.close()
        assert "mmcache-spans" not in {thread.name for thread in threading.enumerate()} - before


def test_a_region_a_stale_block_and_a_row_say_how_they_were_looked_for() -> None:
    clock = FakeClock()
    with Cache(clock=clock, stale_while_revalidate=30.0) as cache, Recorded(cache) as recorded:
        encode = cache.wrap(lambda picture: 1, modality="image", signature="v1", guard=False, ttl=5.0)
        seen = Image.fromarray(np.zeros((8, 8, 3), np.uint8))
        encode.region(seen, Region.whole(8, 8).crop((0, 0, 4, 4)))
        assert recorded.told()[-1]["cache.strategy"] == "region"
        assert recorded.told()[-1]["cache.region"]
        encode(seen)
        clock.advance(6)
        encode(seen)
        assert recorded.told()[-1]["cache.outcome"] == recorded.told()[-1]["cache.strategy"] == "stale"
        assert recorded.told()[-1]["cache.hit"] is True
        stale = recorded.all("cache.lookup")[-1]
        assert parent_of(recorded.all("cache.compute")[-1]) == id_of(stale), "it is computed anew in its trace"
        void = VoidKey.of(encode.key(seen).scope, MissReason.STALE_LEASE)
        cache.answers.count_miss([void], Lookup(None, reason=void.reason, detail="rows"), "row")
        told = recorded.told()[-1]
        assert (told["cache.strategy"], told["cache.miss.reason"]) == ("row", "stale-lease")
        assert not told.keys() & {"cache.key.hash", "cache.content", "cache.content.id"}


def test_an_answer_by_meaning_is_near_and_one_that_is_not_trusted_abstained() -> None:
    one, other, _ = WORDINGS["animal"]
    with Cache(semantic=semantic()) as cache:
        trust(cache)
        with Recorded(cache) as recorded:
            prompts = [Prompt(text, pictures=[picture(1)]) for text in (one, other, one, "Is it a dog?")]
            sources = [cache.ask(prompt, Model(), model=MODEL).source for prompt in prompts]
            told = sorted(recorded.all("cache.lookup"), key=lambda span: span.start_time or 0)
            assert sources == ["computed", "near", "exact", "computed"]
            first, near, exact, last = (dict(span.attributes or {}) for span in told)
            assert (near["cache.outcome"], near["cache.strategy"], near["cache.hit"]) == ("near", "near", True)
            assert near["cache.tier"] == "memory"
            assert near["cache.saved_ms"] >= 0
            assert (exact["cache.outcome"], exact["cache.strategy"]) == ("hit", "exact")
            assert first["cache.outcome"] == last["cache.outcome"] == "miss"
            assert last["cache.miss.reason"] in ("absent", "abstained")
            assert len(recorded.told("cache.compute")) == 2


def test_in_shadow_mode_what_is_computed_to_compare_is_told() -> None:
    with Cache(mode="shadow") as cache, Recorded(cache) as recorded:
        encode = encoder(cache)
        encode("a cat")
        encode("a cat")
        lookups = recorded.all("cache.lookup")
        computed = recorded.all("cache.compute")
        assert [parent_of(span) for span in computed] == [id_of(span) for span in lookups]


def test_who_measures_hears_of_what_is_recorded() -> None:
    heard: list[tuple[str, str, float]] = []

    def measured(kind: str, outcome: str, seconds: float, weight: float, context: Any) -> None:
        assert trace.get_current_span(context).get_span_context().is_valid
        assert seconds > 0
        heard.append((kind, outcome, weight))

    with Cache() as cache, Recorded(cache, measured=measured) as recorded:
        encode = encoder(cache)
        encode("a cat")
        encode("a cat")
        cache.peek(encode.key("a cat"))  # whose time nobody takes
        recorded.all()
    assert heard == [("lookup", "miss", 1.0), ("compute", "ok", 1.0), ("lookup", "hit", 1.0)]
