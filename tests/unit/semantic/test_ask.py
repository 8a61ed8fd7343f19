"""`Cache.ask`: what is served for what, and what never is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.semantic.world import MODEL, WORDINGS, Model, embed, picture, semantic, teach

from mmcache import Cache
from mmcache.model.errors import InvalidInputError, SettingsError, TierClosedError
from mmcache.model.event import Failed, Missed, MissReason, NearHit
from mmcache.semantic.prompt import Prompt
from mmcache.semantic.settings import Semantic

ONE, OTHER, THIRD = WORDINGS["animal"]
PROMPT = Prompt(
    ONE,
    pictures=[picture(1), picture(2)],
    system="Be brief.",
    tools=[{"name": "zoom"}],
    history=[{"role": "user", "content": "hello"}],
    sampling={"temperature": 0.0},
    schema={"type": "string"},
    documents=["manual"],
    version="v1",
    other={"user": "anna"},
)


def test_the_same_prompt_is_answered_once() -> None:
    model = Model()
    with Cache() as cache:
        first = cache.ask(PROMPT, model, model=MODEL)
        again = cache.ask(replace(PROMPT, pictures=[picture(1), picture(2)]), model, model=MODEL)
    assert (first.source, again.source, again.hit) == ("computed", "exact", True)
    assert first.value == again.value
    assert first.key == again.key
    assert model.calls == 1


CHANGES: dict[str, dict[str, Any]] = {
    "text": {"text": OTHER},
    "other picture": {"pictures": [picture(1), picture(3)]},
    "order of pictures": {"pictures": [picture(2), picture(1)]},
    "one picture less": {"pictures": [picture(1)]},
    "no pictures": {"pictures": []},
    "a sound": {"sounds": [(np.sin(np.arange(16000) / 9).astype(np.float32), 16000)]},
    "system": {"system": "Be verbose."},
    "tools": {"tools": [{"name": "zoom"}, {"name": "crop"}]},
    "history": {"history": [{"role": "user", "content": "Hello"}]},
    "no history": {"history": []},
    "sampling": {"sampling": {"temperature": 0.5}},
    "sampling's type": {"sampling": {"temperature": 0}},
    "schema": {"schema": {"type": "number"}},
    "documents": {"documents": ["manual", "faq"]},
    "documents with content": {"documents": {"manual": "text"}},
    "version": {"version": "v2"},
    "other": {"other": {"user": "berta"}},
}


@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("near", [False, True], ids=["exact only", "semantic"])
def test_any_other_prompt_is_computed(changed: dict[str, Any], near: bool) -> None:
    model = Model()
    with Cache(semantic=semantic(max_error=0.2) if near else None) as cache:
        for _ in range(2):
            cache.ask(PROMPT, model, model=MODEL)
        reply = cache.ask(replace(PROMPT, **changed), model, model=MODEL)
    assert reply.source == "computed"
    assert model.calls == 2


@pytest.mark.parametrize(
    "options", [{"tenant": "other"}, {"namespace": "other"}, {"model": "toy-vlm 1.1"}, {"bypass": True}]
)
def test_nothing_is_shared_between_tenants_namespaces_and_models(options: dict[str, Any]) -> None:
    model = Model()
    with Cache(semantic=semantic()) as cache:
        cache.ask(PROMPT, model, model=MODEL)
        assert cache.ask(PROMPT, model, **({"model": MODEL} | options)).source == "computed"
    assert model.calls == 2


def test_other_words_are_served_once_that_was_learned() -> None:
    model = Model()
    with Cache(semantic=semantic()) as cache:
        ask = partial(cache.ask, answer=model, model=MODEL)
        first = [ask(Prompt(text, pictures=[picture(5)])) for text in (ONE, OTHER)]
        teach(ask, model, 200)
        taught = model.calls
        replies = []
        for number in range(3000, 3060):
            ask(Prompt(ONE, pictures=[picture(number)]))
            replies.append(ask(Prompt(OTHER, pictures=[picture(number)])))
        near = [reply for reply in replies if reply.source == "near"]
        events = [event for event in cache.events.recent() if isinstance(event, NearHit)]
    assert first[1].source == "computed"
    assert first[1].decision is not None
    assert first[1].decision.reason.startswith("words: CONTENT differs")
    assert len(near) > 40
    assert model.calls - taught == 120 - len(near)
    for number, reply in zip(range(3000, 3060), replies, strict=True):
        assert reply.value == f"animal {int(picture(number).sum())}"
    assert near[0].stored_text == ONE
    assert events[-1].key != events[-1].stored
    assert events[-1].stored == near[-1].key


def test_trust_in_words_does_not_blind_to_pictures_or_to_what_is_exact() -> None:
    model = Model()
    with Cache(semantic=semantic()) as cache:
        ask = partial(cache.ask, answer=model, model=MODEL)
        teach(ask, model, 250)
        ask(Prompt(ONE, pictures=[picture(1), picture(2)]))
        for prompt in (
            Prompt(OTHER, pictures=[picture(2), picture(1)]),
            Prompt(OTHER, pictures=[picture(1), picture(3)]),
            Prompt(OTHER, pictures=[picture(1)]),
            Prompt(OTHER, pictures=[picture(1), picture(2)], system="Be brief."),
            Prompt(OTHER, pictures=[picture(1), picture(2)], sampling={"seed": 1}),
            Prompt(WORDINGS["colour"][0], pictures=[picture(1), picture(2)]),
        ):
            reply = ask(prompt)
            assert reply.source == "computed"
            assert "animal" not in reply.value or reply.value == model.truth(prompt)


def test_wrong_answers_end_the_trust() -> None:
    model = Model()
    with Cache(semantic=semantic(check_share=0.3)) as cache:
        ask = partial(cache.ask, answer=model, model=MODEL)
        teach(ask, model, 250)
        model.truth = lambda prompt: f"{prompt.text} {np.asarray(prompt.pictures[0]).sum()}"  # each wording its own
        served = 0
        for number in range(5000, 5100):
            ask(Prompt(ONE, pictures=[picture(number)]))
            served += ask(Prompt(OTHER, pictures=[picture(number)])).source == "near"
        assert served < 20
        late = [ask(Prompt(text, pictures=[picture(n)])).source for n in range(6000, 6010) for text in (ONE, OTHER)]
    assert late == ["computed"] * 20


def test_it_goes_on_after_a_restart(tmp_path: Path) -> None:
    model = Model()
    with Cache(tmp_path, semantic=semantic()) as cache:
        ask = partial(cache.ask, answer=model, model=MODEL)
        teach(ask, model, 250)
        for number in range(20):
            ask(Prompt(ONE, pictures=[picture(number)]))
    with Cache(tmp_path, semantic=semantic()) as cache:
        replies = [cache.ask(Prompt(OTHER, pictures=[picture(n)]), model, model=MODEL) for n in range(20)]
    assert sum(reply.source == "near" for reply in replies) > 8
    with Cache(tmp_path, semantic=semantic(embedder="toy 2")) as cache:
        reply = cache.ask(Prompt(THIRD, pictures=[picture(3)]), model, model=MODEL)
        assert reply.decision is None, "vectors of another embedding are never compared"


def test_another_process_learns_and_finds_the_same(tmp_path: Path) -> None:
    model = Model()
    with Cache(tmp_path, semantic=semantic()) as one, Cache(tmp_path, semantic=semantic()) as two:
        teach(partial(one.ask, answer=model, model=MODEL), model, 250)
        one.ask(Prompt(ONE, pictures=[picture(7)]), model, model=MODEL)
        one.flush()
        sources = [two.ask(Prompt(OTHER, pictures=[picture(7)]), model, model=MODEL).source]
        for number in range(40):
            one.ask(Prompt(ONE, pictures=[picture(number)]), model, model=MODEL)
            one.flush()
            sources.append(two.ask(Prompt(OTHER, pictures=[picture(number)]), model, model=MODEL).source)
    assert sources.count("near") > 20


def test_an_answer_that_is_gone_is_not_served() -> None:
    model = Model()
    with Cache(semantic=semantic()) as cache:
        ask = partial(cache.ask, answer=model, model=MODEL)
        teach(ask, model, 250)
        stored = ask(Prompt(ONE, pictures=[picture(1)]))
        assert stored.key is not None
        cache.invalidate(stored.key)
        assert ask(Prompt(OTHER, pictures=[picture(1)])).source == "computed"


def test_an_unknown_part_makes_the_cache_step_aside() -> None:
    model = Model()
    with Cache(semantic=semantic()) as cache:
        for _ in range(2):
            reply = cache.ask(Prompt(ONE, other={"callback": object()}), model, model=MODEL)
        assert cache.stats().miss_reasons == {"bypassed": 2}
    assert (reply.source, reply.key, model.calls) == ("computed", None, 2)


def test_what_the_embedding_and_the_judge_raise_costs_no_request() -> None:
    def broken(*_: Any) -> Any:
        raise ConnectionError("no embedding today")

    model = Model()
    for changes in ({"text": broken}, {"judge": broken}, {"text": lambda text: [float("nan")] * 3}):
        with Cache(semantic=semantic(**changes)) as cache:
            for text in (ONE, OTHER, ONE):
                reply = cache.ask(Prompt(text, pictures=[picture(1)]), model, model=MODEL)
            assert reply.source == "exact"
            assert [e for e in cache.events.recent() if isinstance(e, Failed) and e.where == "semantic"]


def test_shadow_mode_learns_and_serves_nothing() -> None:
    model = Model()
    with Cache(semantic=semantic(), mode="shadow") as cache:
        ask = partial(cache.ask, answer=model, model=MODEL)
        teach(ask, model, 150)
        sources = {ask(Prompt(text, pictures=[picture(2)])).source for text in (ONE, OTHER, ONE)}
        assert sources == {"computed"}
        cache.switch("on")
        assert ask(Prompt(ONE, pictures=[picture(2)])).source == "exact"
        (found,) = cache.meaning.report()
        assert found.near == 0
        assert found.compared >= 150
        cache.switch("off")
        assert ask(Prompt(ONE, pictures=[picture(2)])).source == "computed"


def test_misses_have_a_reason() -> None:
    model = Model()
    with Cache(semantic=semantic()) as cache:
        cache.ask(Prompt(ONE, pictures=[picture(1)]), model, model=MODEL)
        cache.ask(Prompt(OTHER, pictures=[picture(1)]), model, model=MODEL)
        reasons = [event.reason for event in cache.events.recent() if isinstance(event, Missed)]
    assert reasons == [MissReason.ABSENT, MissReason.ABSTAINED]


def test_a_failing_model_reaches_the_caller_and_nothing_is_stored() -> None:
    model = Model()
    with Cache(semantic=semantic()) as cache:

        def fail(prompt: Prompt) -> str:
            raise RuntimeError("out of memory")

        with pytest.raises(RuntimeError, match="out of memory"):
            cache.ask(Prompt(ONE), fail, model=MODEL)
        assert cache.ask(Prompt(ONE), model, model=MODEL).source == "computed"
        assert cache.ask(Prompt(ONE), model, model=MODEL).source == "exact"


def test_bad_input_is_told() -> None:
    with Cache() as cache:
        with pytest.raises(InvalidInputError, match="a Prompt is asked"):
            cache.ask("what is it?", Model(), model=MODEL)  # type: ignore[arg-type]
        with pytest.raises(InvalidInputError):
            cache.ask(Prompt("what?", pictures=[b"no picture"]), Model(), model=MODEL)
        with pytest.raises(InvalidInputError):
            cache.ask(Prompt("lone \ud800"), Model(), model=MODEL)
        with pytest.raises(SettingsError):
            cache.ask(Prompt("what?"), Model(), model="")
        with pytest.raises(TypeError, match="tennant"):
            cache.ask(Prompt("what?"), Model(), model=MODEL, tennant="x")  # type: ignore[call-arg]
    for changes in ({"max_error": 0}, {"max_error": 0.5}, {"confidence": 1}, {"check_share": -1}, {"most_entries": 0}):
        with pytest.raises(SettingsError):
            Semantic(**changes)
    with pytest.raises(SettingsError, match="embedder"):
        Semantic(text=embed)


def test_a_closed_cache_says_so() -> None:
    with Cache() as cache:
        cache.ask(Prompt("what?"), Model(), model=MODEL)
    with pytest.raises(TierClosedError):
        cache.ask(Prompt("what?"), Model(), model=MODEL)
    with pytest.raises(TierClosedError):
        cache.ask_stream(Prompt("what?"), Model().stream, model=MODEL)


def test_the_model_is_given_canonical_pictures() -> None:
    model = Model()
    with Cache() as cache:
        cache.ask(Prompt("Cafe\u0301?", pictures=[picture(1)]), model, model=MODEL)
    assert model.asked[0].text == "Café?"


def test_what_prompts_look_like_is_watched_for_drift(tmp_path: Path) -> None:
    from mmcache.keys.drift.watch import saved

    model = Model()
    with Cache(tmp_path, semantic=semantic()) as cache:
        for number in range(70):
            cache.ask(Prompt(ONE, pictures=[picture(number)]), model, model=MODEL)
    ((monitor, _),) = saved(tmp_path)
    assert {name: status.learned for name, status in monitor.status().items()} == {"text": 70, "image": 70}
