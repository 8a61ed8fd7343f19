"""Stored questions read back: what is damaged, or cannot be compared, is not found, and nothing else suffers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.unit.semantic.world import MODEL, WORDINGS, Model, embed, picture, semantic

from mmcache import Cache
from mmcache.semantic import questions
from mmcache.semantic.ledger import Ledger
from mmcache.semantic.prompt import Prompt
from mmcache.semantic.questions import MOST_CHARACTERS, Record

ONE, OTHER, _ = WORDINGS["animal"]


def ask(cache: Cache, text: str, number: int = 1) -> Any:
    return cache.ask(Prompt(text, pictures=[picture(number)]), Model(), model=MODEL)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Of one stored question, in `tmp_path`."""
    with Cache(tmp_path, semantic=semantic()) as cache:
        ask(cache, ONE)
    return msgspec.msgpack.decode(rows(tmp_path)[0][2], type=Record)


def rows(folder: Path) -> list[tuple[int, bytes, bytes]]:
    ledger = Ledger(folder)
    found = ledger.entries(0)
    ledger.close()
    return found


def replace(folder: Path, *records: bytes) -> None:
    """Store `records` under keys of one scope, before and after the good one."""
    ledger = Ledger(folder)
    ((_, key, good),) = ledger.entries(0)
    ledger.forget([key])
    for number, one in enumerate(records):
        ledger.add(key[:16] + bytes([number]) * 32, key[:16], one, 100)
    ledger.add(key, key[:16], good, 100)
    ledger.close()


def damaged(record: Record) -> dict[str, bytes]:
    long = b"x" * 17
    media = [(long, None)]
    changed: dict[str, Any] = {
        "exact": {"exact": b""},
        "words": {"words": long},
        "pictures": {"pictures": media},
        "sounds": {"sounds": media},
        "sketch": {"pictures": [(bytes(16), b"no sketch")]},
        "vector": {"vector": record.vector[:-1]},
        "empty vector": {"vector": b""},
        "zero vector": {"vector": bytes(len(record.vector))},
        "infinite vector": {"vector": np.full(64, np.inf, "<f4").tobytes()},
        "huge vector": {"vector": np.full(64, 3e38, "<f4").tobytes()},
        "long text": {"text": "a" * (MOST_CHARACTERS + 1)},
        "short vector": {"vector": record.vector[:-4]},
    }
    encode = msgspec.msgpack.encode
    found = {name: encode(msgspec.structs.replace(record, **change)) for name, change in changed.items()}
    return found | {
        "no record": b"",
        "a number": encode(3),
        "text of no words": encode(record).replace(b"animal", b"\xff" * 6),
    }


def test_damaged_records_are_passed_over(tmp_path: Path, record: Record) -> None:
    bad = damaged(record)
    replace(tmp_path, *bad.values())
    with Cache(tmp_path, semantic=semantic()) as cache:
        reply = ask(cache, OTHER)
        assert reply.decision is not None, "the good one is found all the same"
        assert reply.stored_text == ONE
        assert cache.meaning.planner is not None
        assert len(cache.meaning.planner.questions) <= 3, "with the asked one, and the huge one"


def test_the_embedding_says_how_long_vectors_are_not_the_first_record(tmp_path: Path, record: Record) -> None:
    replace(tmp_path, damaged(record)["short vector"])
    with Cache(tmp_path, semantic=semantic()) as cache:
        assert ask(cache, OTHER).stored_text == ONE
        assert ask(cache, ONE).source == "exact"


def test_an_embedding_whose_vectors_change_their_length_is_told() -> None:
    with Cache(semantic=semantic(text=lambda text: embed(text)[: len(text) * 2])) as cache:
        for text in "one", "three":
            assert ask(cache, text).source == "computed"
        assert any("gave 10 numbers, and 6 before" in str(event) for event in cache.events.recent())


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e200], ids=str)
def test_the_length_of_an_embedding_does_not_matter(scale: float) -> None:
    unit = questions._unit(embed(ONE).astype(np.float64) * scale)
    assert unit.dtype == np.float32
    assert np.allclose(unit, embed(ONE), atol=1e-6)


def test_a_very_long_text_is_looked_up_exactly_only() -> None:
    embedded: list[str] = []

    def embedding(text: str) -> Any:
        embedded.append(text)
        return embed(text[:10])

    with Cache(semantic=semantic(text=embedding)) as cache:
        text = "a" * MOST_CHARACTERS
        assert [ask(cache, one).source for one in (text, text + "b", text + "b")] == ["computed", "computed", "exact"]
        assert embedded == [text]
        assert any("exact hits only" in str(event) for event in cache.events.recent())
