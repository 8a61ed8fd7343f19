"""Which judge it is."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from tests.unit.semantic.world import MODEL, semantic

from mmcache import Cache
from mmcache.semantic.identity import identity
from mmcache.semantic.ledger import Ledger
from mmcache.semantic.populations import Populations


def exact(stored: Any, computed: Any) -> bool:
    return bool(stored == computed)


def within(limit: float) -> Callable[[float, float], bool]:
    return lambda stored, computed: abs(stored - computed) < limit


class Length:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.model: Any = object()

    def __call__(self, stored: str, computed: str) -> bool:
        return len(stored) - len(computed) < self.limit


JUDGES: dict[str, Callable[[], Any]] = {
    "function": lambda: exact,
    "always": lambda: lambda stored, computed: True,
    "never": lambda: lambda stored, computed: False,
    "one of some": lambda: lambda stored, computed: stored in {"a", "b", "c"},
    "closure": lambda: within(0.1),
    "another closure": lambda: within(0.2),
    "partial": lambda: partial(exact, computed="x"),
    "another partial": lambda: partial(exact, computed="y"),
    "object": lambda: Length(1),
    "another object": lambda: Length(2),
    "method": lambda: Length(1).__call__,
    "class": lambda: Length,
    "built in": lambda: operator.eq,
    "another built in": lambda: operator.is_,
}


def test_judges_are_told_apart_by_their_code_and_values() -> None:
    found = {name: identity(make()) for name, make in JUDGES.items()}
    assert len(set(found.values())) == len(found)
    assert found == {name: identity(make()) for name, make in JUDGES.items()}, "and are the same each time"


def test_of_what_a_judge_holds_models_count_by_class_only() -> None:
    judge = Length(1)
    without = identity(judge)
    judge.model = Length(5)
    other = identity(judge)
    judge.model = Length(6)
    assert without != other == identity(judge)
    judge.model = {"me": judge}
    assert identity(judge) != other, "and one that holds itself has an end"
    nested: list[Any] = []
    nested.append(nested)
    judge.model = nested
    assert len(identity(judge)) == 16
    judge.model = [0.0] * 10_000_000
    assert len(identity(judge)) == 16


def test_another_judge_is_another_population() -> None:
    with Cache() as cache, closing(Ledger(None)) as ledger:
        scope = cache.scopes.require(cache.key("", modality="text", signature=MODEL))
        found = {
            Populations(semantic(judge=judge), ledger).of(scope, "text").id
            for judge in (lambda stored, computed: True, lambda stored, computed: False, exact)
        }
        assert len(found) == 3
