"""`mmcache purge` and what `ask` keeps beside its answers."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.unit.semantic.world import MODEL, WORDINGS, semantic

from mmcache import Cache
from mmcache.cli import main
from mmcache.semantic.ledger import FILE, Ledger, Population
from mmcache.semantic.prompt import Prompt

ONE = WORDINGS["animal"][0]


def said(prompt: Prompt) -> str:
    return "x"


def population(name: str, tenant: str = "t", model: str = "m") -> Population:
    return Population(name.encode(), b"scope " + name.encode(), tenant, "n", model, "text", 0.01, 0.95, 0.05, "judge")


def at_rest(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob(f"{FILE}*"))


@pytest.mark.parametrize("running", [False, True], ids=["closed", "open in a program"])
def test_purge_leaves_no_word_of_a_question(tmp_path: Path, running: bool) -> None:
    cache = Cache(tmp_path, semantic=semantic())
    cache.ask(Prompt("my secret diagnosis"), said, model=MODEL, tenant="acme")
    cache.ask(Prompt("my other wish"), said, model=MODEL, tenant="globex")
    (tmp_path / f"{FILE}.damaged-1").write_bytes(b"secret")
    edition = cache.changed("document", "faq")
    if not running:
        cache.close()
    assert b"secret diagnosis" in at_rest(tmp_path)
    purge = partial(main, ["purge", "--tenant", "acme", "--root", str(tmp_path)])
    assert purge() == 0
    assert b"secret diagnosis" not in at_rest(tmp_path)
    assert b"acme" not in at_rest(tmp_path)
    assert b"other wish" in at_rest(tmp_path)
    assert main(["purge", "--all", "--root", str(tmp_path)]) == 0
    for word in (b"other wish", b"globex", b"secret"):
        assert word not in at_rest(tmp_path)
    with closing(Ledger(tmp_path)) as ledger:
        assert len(ledger.editions()) == 1, f"editions stay: {edition}"
    cache.close()


def test_purge_counts_questions_by_what_was_chosen(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path)) as ledger:
        ones = [population("a"), population("b", model="other"), population("c", tenant="u")]
        for one in ones:
            ledger.introduce(one)
        for number, one in enumerate(ones):
            ledger.add(bytes([number]) * 32, one.scope, b"record", 100)
            ledger.judged(one.id, b"outcome")
            ledger.fold(one.id, 1, b"state")
            ledger.count({(one.id, "asked"): 1})
        ledger.add(bytes([9]) * 32, b"of a scope that nobody named", b"record", 100)
        assert ledger.purge(None, dry_run=True) == 4
        assert ledger.purge(None, before=1.0) == 0
        assert len(ledger.populations()) == 3
        assert ledger.purge(lambda one: one.model == "other") == 1
        assert [one.id for one in ledger.populations()] == [b"a", b"c"]
        assert ledger.outcomes(b"b", 0) == (None, [])
        assert ledger.counts(b"b") == {}
        assert ledger.counts(b"a") == {"asked": 1}
        assert ledger.purge(lambda one: one.tenant == "t", before=float("inf")) == 1
        assert len(ledger.populations()) == 2, "only older questions were meant"
        assert ledger.purge(None) == 2
        assert ledger.populations() == []


def test_who_was_purged_while_asked_is_named_again(tmp_path: Path) -> None:
    with Cache(tmp_path, semantic=semantic()) as cache:
        cache.ask(Prompt(ONE), said, model=MODEL)
        assert main(["purge", "--all", "--root", str(tmp_path)]) == 0
        cache.ask(Prompt(ONE), said, model=MODEL)
        (found,) = cache.meaning.report()
        assert found.asked == 2
