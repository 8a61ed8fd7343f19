"""What rests on a ledger that is lost, damaged, locked or forked; and what reaches other processes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.semantic.world import MODEL, WORDINGS, semantic

from mmcache import Cache
from mmcache.model.errors import FormatVersionError, TierError
from mmcache.semantic import database, populations
from mmcache.semantic.ledger import FILE, FORMAT, Ledger
from mmcache.semantic.populations import Populations
from mmcache.semantic.prompt import Prompt

ONE = WORDINGS["animal"][0]
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
SOURCE, OTHER = bytes(16), bytes(range(16))


def said(words: str) -> Callable[[Prompt], str]:
    """A model that always says the same."""
    return lambda prompt: words


def damage(path: Path, first_page: int) -> None:
    with closing(sqlite3.connect(path)) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for at in range(first_page * 4096, len(data), 4096):
        data[at : at + 4096] = rng.bytes(4096)
    path.write_bytes(data)


def in_child(check: Callable[[], bool]) -> int:
    """Exit code of a forked child: 0 where `check` holds."""
    child = os.fork()
    if not child:
        try:
            os._exit(int(not check()))
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# The file -----------------------------------------------------------------------------------------------------------


def test_each_new_file_has_an_epoch_of_its_own(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / "a")) as one, closing(Ledger(tmp_path / "a")) as same:
        assert len(one.epoch()) == 16
        assert one.epoch() == same.epoch()
        assert (tmp_path / "a" / FILE).stat().st_mode & 0o777 == 0o600
    with closing(Ledger(tmp_path / "b")) as other, closing(Ledger(None)) as memory:
        assert other.epoch() != one_epoch(tmp_path / "a")
        assert memory.epoch() == b""


def one_epoch(folder: Path) -> bytes:
    with closing(Ledger(folder)) as ledger:
        return ledger.epoch()


def test_a_lost_ledger_puts_what_rested_on_it_out_of_reach(tmp_path: Path) -> None:
    prompt = Prompt(ONE, documents=["faq"])
    with Cache(tmp_path) as cache:
        cache.ask(prompt, said("old"), model=MODEL)
    with Cache(tmp_path) as cache:
        cache.changed("document", "faq")
    for part in tmp_path.glob(f"{FILE}*"):
        part.unlink()
    with Cache(tmp_path) as cache:
        assert cache.ask(prompt, said("new"), model=MODEL).value == "new"


@pytest.mark.parametrize("suffixes", [[""], ["", "-wal", "-shm"]], ids=["without its journal", "whole"])
def test_a_file_removed_under_an_open_ledger_is_made_anew(tmp_path: Path, suffixes: list[str]) -> None:
    with closing(Ledger(tmp_path)) as ledger:
        before, epoch, edition = ledger.version(), ledger.epoch(), ledger.changed(SOURCE)
        number = ledger.judged(b"p", b"r")
        for suffix in suffixes:
            (tmp_path / (FILE + suffix)).unlink()
        assert ledger.version() != before
        assert ledger.epoch() != epoch
        assert ledger.editions() == {}, "what was in the old journal is not the new file's"
        assert ledger.changed(SOURCE) > edition
        assert ledger.judged(b"p", b"r") > number, "who has learned up to the old number learns this one, too"


@pytest.mark.parametrize("first_page", [0, 1, 2], ids=["all", "all but the first", "all but two"])
def test_a_ledger_with_damaged_pages_is_set_aside(tmp_path: Path, first_page: int) -> None:
    with Cache(tmp_path, semantic=semantic()) as cache:
        for number in range(200):
            cache.ask(Prompt(f"question {number}"), said("x"), model=MODEL)
    damage(tmp_path / FILE, first_page)
    with Cache(tmp_path, semantic=semantic()) as cache:
        assert cache.ask(Prompt("question 1"), said("new"), model=MODEL).value == "new"
    assert list(tmp_path.glob(f"{FILE}.damaged-*"))


def test_damage_found_late_is_set_aside_once_for_all_who_have_it_open(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path)) as ledger:
        for number in range(500):
            ledger.add(number.to_bytes(16, "big"), SOURCE, bytes(100), 1000)
        epoch = ledger.epoch()
    with closing(Ledger(tmp_path)) as one, closing(Ledger(tmp_path)) as other:
        damage(tmp_path / FILE, 2)
        before = one.version(), other.version()
        for ledger in (one, other):
            assert ledger.entries(0) == []
            ledger.remember("a", "1")
            assert ledger.recall("a") == "1"
        assert one.epoch() == other.epoch() != epoch
        assert one.version() != before[0]
        assert other.version() != before[1]
    aside = [path for path in tmp_path.glob(f"{FILE}.damaged-*") if not path.name.endswith(("-wal", "-shm"))]
    assert len(aside) == 1


def test_a_ledger_that_cannot_be_opened_is_of_the_error_tree(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(TierError, match="folder can be written"):
        Ledger(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(TierError, match="folder can be written"):
        Ledger(tmp_path / "file")


def test_a_newer_format_is_told(tmp_path: Path) -> None:
    Ledger(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as file, file:
        file.execute("UPDATE meta SET value = ? WHERE name = 'format'", (FORMAT + 1,))
    with pytest.raises(FormatVersionError, match="update"):
        Ledger(tmp_path)


def test_a_closed_ledger_stays_closed(tmp_path: Path) -> None:
    for folder in (tmp_path, None):
        ledger = Ledger(folder)
        ledger.close()
        ledger.close()
        with pytest.raises(TierError, match="closed"):
            ledger.version()


class Failing:
    """A connection whose first COMMIT fails."""

    def __init__(self, real: Any) -> None:
        self.real, self.failed = real, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def execute(self, query: str, *given: Any) -> Any:
        if query == "COMMIT" and not self.failed:
            self.failed = True
            raise sqlite3.OperationalError("disk I/O error")
        return self.real.execute(query, *given)


def test_a_commit_that_fails_does_not_end_the_ledger(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path)) as ledger:
        ledger.remember("a", "0")
        ledger._writing.connection = Failing(ledger._writing.connection)  # type: ignore[assignment]
        with pytest.raises(TierError, match="I/O"):
            ledger.remember("a", "1")
        assert ledger.recall("a") == "0"
        ledger.remember("a", "2")
        assert ledger.recall("a") == "2"


def test_who_reads_waits_for_nobody_who_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.01)
    with closing(Ledger(tmp_path)) as ledger, closing(sqlite3.connect(tmp_path / FILE, isolation_level=None)) as other:
        edition = ledger.changed(SOURCE)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TierError, match="Another program"):
            ledger.changed(OTHER)
        with ledger._writing._lock:  # and another thread waits for it
            assert ledger.editions() == {SOURCE: edition}
            assert ledger.outcomes(b"p", 0) == (None, [])
            with closing(Ledger(tmp_path)) as opened:
                assert opened.editions() == {SOURCE: edition}
        other.execute("ROLLBACK")
        assert ledger.changed(OTHER) > edition


# Forks --------------------------------------------------------------------------------------------------------------


@FORKS
def test_a_forked_child_sees_that_its_ledger_was_opened_anew(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path)) as ledger, closing(Ledger(tmp_path)) as other:
        before = ledger.version()

        def child() -> bool:
            other.changed(SOURCE)
            return ledger.version() != before and SOURCE in ledger.editions()

        assert in_child(child) == 0
        assert SOURCE in ledger.editions(), "and the parent goes on"
        ledger.remember("a", "1")


@FORKS
def test_a_forked_worker_hears_of_what_changed_before_its_first_request(tmp_path: Path) -> None:
    prompt = Prompt("How long is the warranty?", documents=["terms"])
    with Cache(tmp_path) as cache:
        cache.ask(prompt, said("old"), model=MODEL)
    with Cache(tmp_path) as cache, Cache(tmp_path) as other:
        _ = cache.meaning

        def child() -> bool:
            other.changed("document", "terms")
            return bool(cache.ask(prompt, said("new"), model=MODEL).value == "new")

        assert in_child(child) == 0


@FORKS
def test_a_ledger_in_memory_survives_a_fork() -> None:
    with closing(Ledger(None)) as ledger:
        edition = ledger.changed(SOURCE)
        assert in_child(lambda: ledger.editions() == {SOURCE: edition}) == 0
        assert ledger.editions() == {SOURCE: edition}


# Change -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_editions_since_are_what_changed_since(steps: list[tuple[int, bool]]) -> None:
    with closing(Ledger(None)) as ledger:
        upto, known, last = 0, dict[bytes, int](), 0
        for source, look in steps:
            edition = ledger.changed(bytes([source]) * 16)
            assert edition > last
            last = edition
            if look:
                upto, new = ledger.editions_since(upto)
                known.update(new)
                assert (upto, known) == (last, ledger.editions())
        assert ledger.editions_since(last) == (last, {})


def test_a_clock_that_goes_back_does_not_give_an_edition_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Ledger(None)) as ledger:
        first = ledger.changed(SOURCE)
        monkeypatch.setattr("time.time_ns", lambda: 0)
        assert ledger.changed(SOURCE) == first + 1
        assert ledger.changed(OTHER) == first + 2


def test_judged_since_names_populations_whose_outcomes_are_folded(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path)) as ledger:
        ledger.judged(b"a", b"1")
        upto, _ = ledger.judged_since(0)
        assert ledger.judged_since(upto) == (upto, set())
        number = ledger.judged(b"b", b"2")
        ledger.fold(b"b", number, b"state")
        assert ledger.judged_since(upto) == (number, {b"b"})
        ledger.judged(b"a", b"3")
        assert ledger.judged_since(number)[1] == {b"a"}


def test_refresh_asks_only_about_those_that_were_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = semantic()
    with Cache() as cache, closing(Ledger(tmp_path)) as ledger, closing(Ledger(tmp_path)) as foreign:
        mine, theirs = Populations(settings, ledger), Populations(settings, foreign)
        scopes = [
            cache.scopes.require(cache.key("", modality="text", signature=MODEL, tenant=f"t{number}"))
            for number in range(5)
        ]
        learners = [mine.of(scope, "text") for scope in scopes]
        foreign.judged(theirs.of(scopes[3], "text").id, b"of a newer version")
        asked: list[bytes] = []
        outcomes = ledger.outcomes

        def counted(population: bytes, after: int) -> Any:
            asked.append(population)
            return outcomes(population, after)

        monkeypatch.setattr(ledger, "outcomes", counted)
        mine.refresh()
        mine.refresh()
        assert asked == [learners[3].id]


def test_populations_asked_nothing_for_longest_leave_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(populations, "MOST_LEARNERS", 2)
    with Cache() as cache, closing(Ledger(None)) as ledger:
        kept = Populations(semantic(), ledger)
        scope = cache.scopes.require(cache.key("", modality="text", signature=MODEL))
        first, second = kept.of(scope, "a"), kept.of(scope, "b")
        assert kept.of(scope, "a") is first
        third = kept.of(scope, "c")
        assert [kept.of(scope, kind) for kind in "ac"] == [first, third]
        again = kept.of(scope, "b")
        assert again is not second
        assert again.id == second.id
        assert len(kept._by_id) == 2


def test_counters_that_cannot_be_written_are_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cache() as cache, closing(Ledger(None)) as ledger:
        kept = Populations(semantic(), ledger)
        learner = kept.of(cache.scopes.require(cache.key("", modality="text", signature=MODEL)), "text")
        kept.count(learner, "asked")

        def full(*given: Any) -> None:
            raise TierError("disk full")

        with monkeypatch.context() as patched:
            patched.setattr(ledger, "count", full)
            with pytest.raises(TierError):
                kept.flush()
        kept.count(learner, "asked", "near")
        kept.flush()
        kept.flush()
        assert ledger.counts(learner.id) == {"asked": 2, "near": 1}


def test_who_cannot_be_introduced_at_once_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cache() as cache, closing(Ledger(None)) as ledger:
        kept = Populations(semantic(), ledger)

        def full(*given: Any) -> None:
            raise TierError("disk full")

        monkeypatch.setattr(ledger, "introduce", full)
        learner = kept.of(cache.scopes.require(cache.key("", modality="text", signature=MODEL)), "text")
        assert ledger.populations() == []
        kept.count(learner, "asked")
        kept.flush()
        assert ledger.populations() == [learner.stands_for]
