"""Declared types come back as they were, field by field: nothing of the type's own runs on a hit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import KW_ONLY, FrozenInstanceError, InitVar, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from tests.unit.codecs.test_pipeline import back, frozen

from mmcache.codecs.pipeline import thaw
from mmcache.codecs.structure import Structures
from mmcache.model.errors import UnsupportedValueError


@dataclass
class Doubling:
    x: Any

    def __post_init__(self) -> None:
        self.x = self.x * 2


@dataclass
class Tightened:
    x: int
    strict: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.strict:
            raise RuntimeError("no more of these")


@dataclass
class Base:
    name: str
    scale: InitVar[int]
    size: int = field(init=False)

    def __post_init__(self, scale: int) -> None:
        self.size = len(self.name) * scale


@dataclass
class Child(Base):
    _: KW_ONLY
    note: str = ""

    @cached_property
    def loud(self) -> str:
        return self.name.upper()


@dataclass(frozen=True, slots=True)
class Slotted:
    a: int
    b: list[int] = field(default_factory=list, init=False)


@dataclass
class Hoarder:
    a: int

    def __post_init__(self) -> None:
        self.extra = 1


@dataclass
class Listed(list[int]):
    a: int = 0


class Checked(NamedTuple):
    x: int
    y: tuple[int, ...] = ()


class Strict(Checked):
    __slots__ = ()

    def __new__(cls, x: int) -> Strict:
        return super().__new__(cls, x * 2)


@dataclass
class Output(OrderedDict[str, Any]):
    """As transformers' `ModelOutput`: what is not None is an item too."""

    hidden: Any = None
    pooled: Any = None

    def __post_init__(self) -> None:
        for name in ("hidden", "pooled"):
            if getattr(self, name) is not None:
                self[name] = getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()


def declaring(*classes: type) -> Structures:
    structures = Structures()
    for cls in classes:
        structures.declare(cls)
    return structures


def again(value: Any) -> Any:
    return back(value, structures=declaring(type(value))).value()


def test_post_init_does_not_run_again() -> None:
    assert (again(Doubling(np.ones(2))).x == 2).all()


def test_a_constructor_that_now_raises_fails_no_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    structures = declaring(Tightened)
    frame = frozen(Tightened(3), structures=structures)
    monkeypatch.setattr(Tightened, "strict", True)
    assert thaw(frame, structures).value().x == 3  # type: ignore[attr-defined]


def test_all_fields_come_back_of_parents_too() -> None:
    made = Child("ab", 5, note="n")
    made.size = 11
    assert made.loud == "AB"
    value = again(made)
    assert (value, value.size, value.loud) == (made, 11, "AB")


def test_frozen_and_slotted() -> None:
    made = Slotted(1)
    made.b.append(7)
    value = again(made)
    assert value == made
    assert value.b is not again(made).b
    with pytest.raises(FrozenInstanceError):
        value.a = 2


def test_named_tuples_skip_their_constructor() -> None:
    assert again(Strict(2)) == (4, ())
    assert type(again(Strict(2))) is Strict


def test_a_dict_of_fields_is_usable_by_key_and_attribute() -> None:
    made = Output(hidden=[1])
    value = again(made)
    assert (type(value), value, list(value), value.hidden) == (Output, made, ["hidden"], [1])
    assert value["hidden"] is value.hidden
    assert value.pooled is None


def test_a_field_set_later_is_no_item_as_before() -> None:
    made = Output(hidden=[1])
    made.pooled = 2
    value = again(made)
    assert (list(value), value.pooled) == (["hidden"], 2)


def test_what_would_be_lost_is_refused() -> None:
    strange = Output(hidden=1)
    strange["other"] = 2
    unset = Child.__new__(Child)
    for value in (Hoarder(1), strange, unset):
        with pytest.raises(UnsupportedValueError, match=r"lost|without all"):
            again(value)
    for cls in (Listed, dataclass(type("Failed", (ValueError,), {}))):
        with pytest.raises(UnsupportedValueError, match="more than its fields"):
            Structures().declare(cls)


def test_other_fields_than_were_stored_are_refused() -> None:
    frame = frozen(Slotted(1), structures=declaring(Slotted))

    def now(cls: type) -> Structures:
        cls.__module__, cls.__qualname__ = Slotted.__module__, Slotted.__qualname__
        return declaring(cls)

    @dataclass
    class Narrower:
        a: int

    with pytest.raises(UnsupportedValueError, match="fields"):
        thaw(frame, now(Narrower))
