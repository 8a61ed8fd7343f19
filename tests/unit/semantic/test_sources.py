"""What answers rest on: once it has changed, no answer that rested on it is found again."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.unit.semantic.world import MODEL, WORDINGS, Model, picture, semantic, teach

from mmcache import Cache
from mmcache.model.errors import InvalidInputError, SettingsError
from mmcache.semantic.alias import Alias
from mmcache.semantic.ledger import FILE
from mmcache.semantic.prompt import Prompt
from mmcache.testing import FakeClock

ONE, OTHER, _ = WORDINGS["animal"]
FULL = Prompt(
    ONE,
    pictures=[picture(1)],
    tools=[{"type": "function", "function": {"name": "zoom"}}, "search"],
    documents=["manual", "faq"],
    version="v1",
)
SOURCES: list[tuple[Any, Any]] = [
    ("document", "faq"), ("tool", "zoom"), ("tool", "search"), ("prompt", "v1"), ("model", MODEL),
    ("image", picture(1)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), SOURCES, ids=[f"{kind}" for kind, _ in SOURCES])
def test_a_change_of_any_source_drops_the_answer(kind: Any, name: Any) -> None:
    model = Model()
    with Cache() as cache:
        key = cache.ask(FULL, model, model=MODEL).key
        assert key is not None
        assert cache.peek(key) is not None
        assert cache.changed(kind, name) == 1
        assert cache.peek(key) is None
        assert cache.ask(FULL, model, model=MODEL).source == "computed"
        assert cache.ask(FULL, model, model=MODEL).source == "exact"


def test_other_sources_and_tenants_do_not_matter() -> None:
    model = Model()
    with Cache() as cache:
        cache.ask(FULL, model, model=MODEL)
        for kind, name in (
            ("document", "other"),
            ("tool", "faq"),
            ("prompt", "v2"),
            ("model", "x"),
            ("image", picture(2)),
        ):
            assert cache.changed(kind, name) == 0  # type: ignore[arg-type]
        assert cache.changed("document", "faq", tenant="other") == 0
        assert cache.ask(FULL, model, model=MODEL).source == "exact"
        with pytest.raises(InvalidInputError, match="name"):
            cache.changed("document", "")


@pytest.mark.parametrize(("kind", "name"), SOURCES, ids=[f"{kind}" for kind, _ in SOURCES])
def test_a_change_holds_after_a_restart_and_in_other_processes(tmp_path: Path, kind: Any, name: Any) -> None:
    model = Model()
    with Cache(tmp_path) as cache:
        cache.ask(FULL, model, model=MODEL)
    with Cache(tmp_path) as cache, Cache(tmp_path) as other:
        assert other.ask(FULL, model, model=MODEL).source == "exact"
        cache.changed(kind, name)  # nothing is linked in this process
        assert other.ask(FULL, model, model=MODEL).source == "computed"
    assert model.calls == 2


def test_a_near_prompt_finds_no_answer_whose_picture_changed(tmp_path: Path) -> None:
    model = Model()
    with Cache(tmp_path, semantic=semantic()) as cache:
        ask = partial(cache.ask, answer=model, model=MODEL)
        teach(ask, model, 250)
        ask(Prompt(ONE, pictures=[picture(1)]))
        cache.changed("image", picture(1))
        assert ask(Prompt(OTHER, pictures=[picture(1)])).source == "computed"
        ask(Prompt(ONE, pictures=[picture(2)], documents=["faq"]))
        cache.changed("document", "faq")
        assert ask(Prompt(OTHER, pictures=[picture(2)], documents=["faq"])).source == "computed"


def test_an_alias_that_resolves_to_another_model_is_noticed() -> None:
    model, clock, stands_for = Model(), FakeClock(), ["model-1"]
    alias = Alias("latest", resolve=lambda: stands_for[0], every=60)
    with Cache(clock=clock) as cache:
        assert cache.ask(FULL, model, model=alias).source == "computed"
        stands_for[0] = "model-2"
        assert cache.ask(FULL, model, model=alias).source == "exact", "asked again after a minute"
        clock.advance(60)
        assert cache.ask(FULL, model, model=alias).source == "computed"
        stands_for[0] = "model-1"
        clock.advance(60)
        assert cache.ask(FULL, model, model=alias).source == "exact", "that model's answers are still there"


def test_an_alias_that_moves_while_it_answers_stores_nothing() -> None:
    model, clock, stands_for = Model(), FakeClock(), ["model-1"]
    alias = Alias("latest", resolve=lambda: stands_for[0], every=0)

    def moves(prompt: Prompt) -> str:
        stands_for[0] = "model-2"
        return model(prompt)

    with Cache(clock=clock) as cache:
        cache.ask(FULL, moves, model=alias)
        stands_for[0] = "model-1"
        assert cache.ask(FULL, model, model=alias).source == "computed"


def test_an_alias_that_cannot_be_resolved_makes_the_cache_step_aside() -> None:
    def offline() -> str:
        raise ConnectionError("no route")

    model = Model()
    with Cache() as cache:
        for _ in range(2):
            assert cache.ask(FULL, model, model=Alias("latest", resolve=offline)).source == "computed"
        assert cache.stats().miss_reasons == {"bypassed": 2}
    with pytest.raises(SettingsError, match="notice"):
        Alias("latest")


def test_a_fingerprint_that_changes_drops_the_aliass_answers(tmp_path: Path) -> None:
    version = ["fp-1"]

    def answer(prompt: Prompt) -> dict[str, str]:
        return {"text": prompt.text, "system_fingerprint": version[0]}

    alias = Alias("latest", fingerprint=lambda found: str(found["system_fingerprint"]))
    with Cache(tmp_path) as cache:
        cache.ask(FULL, answer, model=alias)
        assert cache.ask(FULL, answer, model=alias).source == "exact"
    version[0] = "fp-2"
    with Cache(tmp_path) as cache:
        assert cache.ask(FULL, answer, model=alias).source == "exact", "nobody can know yet"
        cache.ask(Prompt("something new"), answer, model=alias)
        reply = cache.ask(FULL, answer, model=alias)
        assert (reply.source, reply.value["system_fingerprint"]) == ("computed", "fp-2")
        assert cache.ask(FULL, answer, model=alias).source == "exact"
        assert cache.ask(Prompt("something new"), answer, model=alias).source == "computed"


def test_a_damaged_ledger_is_set_aside_and_nothing_older_is_served(tmp_path: Path) -> None:
    model = Model()
    with Cache(tmp_path, semantic=semantic()) as cache:
        cache.ask(FULL, model, model=MODEL)
        cache.changed("document", "faq")
        cache.ask(FULL, model, model=MODEL)
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"{FILE}{suffix}").unlink(missing_ok=True)
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    with Cache(tmp_path, semantic=semantic()) as cache:
        assert cache.ask(FULL, model, model=MODEL).source == "computed"
        assert cache.ask(FULL, model, model=MODEL).source == "exact"
    assert list(tmp_path.glob(f"{FILE}.damaged-*"))
