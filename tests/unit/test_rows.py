"""Names of rows: equal where a change event and a program mean one row, apart everywhere else."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.countdown import Countdown
from mmcache.model.errors import InvalidInputError
from mmcache.rows import ANY, Row, RowIds

IDS = RowIds(bytes(32))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
KEYS = st.lists(NAMES, min_size=1, max_size=3)


@given(st.lists(st.tuples(NAMES, KEYS, st.none() | NAMES.filter(lambda name: name != ANY)), max_size=8))
def test_rows_that_differ_rest_on_different_sources(rows: list[tuple[str, list[str], str | None]]) -> None:
    apart = {(table, tuple(key), group) for table, key, group in rows}
    assert len({IDS.of(Row(table, key, group)) for table, key, group in apart}) == len(apart)


@given(NAMES, KEYS, NAMES.filter(lambda name: name != ANY))
def test_a_row_rests_on_its_table_itself_and_its_columns(table: str, key: list[str], group: str) -> None:
    assert IDS.of(Row(table, tuple(key), group)) == (
        IDS.table(table), IDS.row(table, key), IDS.group(table, key, group),
    )  # fmt: skip
    assert IDS.of(Row(table, tuple(key)))[2] == IDS.group(table, key, ANY)


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (42, "42"),
        (Decimal("1.50"), "1.50"),
        (Decimal("0.00000001"), "0.00000001"),
        (Decimal("1E+3"), "1000"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x01\x02", "AQI="),
        ((42,), 42),
        ((1, "a"), ["1", "a"]),
    ],
)
def test_a_key_is_the_same_as_a_change_event_writes_it(one: object, same: object) -> None:
    assert IDS.of(Row("t", one)) == IDS.of(Row("t", same))


@pytest.mark.parametrize("key", [None, True, 1.5, (), (1, None), object(), "\ud800"])
def test_what_names_no_row_is_refused(key: object) -> None:
    with pytest.raises(InvalidInputError):
        IDS.of(Row("t", key))


@pytest.mark.parametrize("wrong", [("", 1), (3, 1), ("t", 1, ""), ("t", 1, ANY), ("t", 1, 4)])
def test_tables_and_groups_have_names(wrong: tuple[object, ...]) -> None:
    with pytest.raises(InvalidInputError):
        Row(*wrong)  # type: ignore[arg-type]


def test_other_secrets_name_other_sources() -> None:
    assert IDS.table("t") != RowIds(bytes([1]) * 32).table("t")
    assert "0" not in repr(IDS)


def test_a_countdown_calls_once_after_all_have_come() -> None:
    called: list[int] = []
    countdown = Countdown(lambda: called.append(1))
    one, other = countdown.one_more(), countdown.one_more()
    one()
    one()
    countdown.end()
    assert not called
    other()
    assert called == [1]
    Countdown(lambda: called.append(2)).end()
    assert called == [1, 2]
