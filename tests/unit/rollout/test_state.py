"""The switch itself: every change, and what is refused. Who is in the canary."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.errors import FormatVersionError, MMCacheError, RolloutError, SettingsError
from mmcache.rollout.assignment import place, within
from mmcache.rollout.report import Counts, Report
from mmcache.rollout.report import decode as decode_report
from mmcache.rollout.state import MOST_BYTES, State, check_name, decode, first


def test_a_rollout_from_beginning_to_end() -> None:
    state = first("v1", 10.0)
    tried = state.canary("v2", 5, 11.0)
    assert (tried.stable, tried.candidate, tried.percent, tried.revision) == ("v1", "v2", 5.0, 1)
    more = tried.canary("v2", 50, 12.0)
    assert (more.seed, more.trial) == (tried.seed, tried.trial)  # nobody falls out, and counting goes on
    promoted = more.promote(13.0)
    assert (promoted.stable, promoted.previous, promoted.candidate) == ("v2", "v1", "")
    back = promoted.rollback(14.0)
    assert (back.stable, back.previous) == ("v1", "")
    assert back.revision == 4
    assert back.follows(state)
    with pytest.raises(RolloutError, match="nothing to roll back"):
        back.rollback(15.0)


def test_a_rollback_first_ends_what_is_tried() -> None:
    promoted = first("v1", 0).canary("v2", 5, 0).promote(0)
    tried = promoted.canary("v3", 5, 0)
    assert (tried.rollback(0).stable, tried.rollback(0).previous) == ("v2", "v1")


def test_what_makes_no_sense_is_refused() -> None:
    state = first("v1", 0)
    with pytest.raises(RolloutError, match="nothing is being tried"):
        state.promote(0)
    with pytest.raises(RolloutError, match="stable version already"):
        state.canary("v1", 5, 0)
    with pytest.raises(RolloutError, match="v2 is being tried"):
        state.canary("v2", 5, 0).canary("v3", 5, 0)
    for percent in (-1, 101, float("nan"), True, "5"):
        with pytest.raises(SettingsError, match="0 to 100"):
            state.canary("v2", percent, 0)  # type: ignore[arg-type]
    for version in ("", "a\nb", "x" * 201):
        with pytest.raises(SettingsError, match="printable"):
            state.canary(version, 5, 0)
    for name in ("", "../x", "a.b", "a/b", "-a", "x" * 65):
        with pytest.raises(SettingsError, match="name"):
            check_name(name)


def test_a_hold_is_resumed_with_counts_of_its_own() -> None:
    tried = first("v1", 0).canary("v2", 5, 0)
    held = tried.held("it failed", 0)
    assert not held.trying
    with pytest.raises(RolloutError, match="on hold: it failed"):
        held.promote(0)
    assert held.promote(0, force=True).stable == "v2"
    resumed = held.canary("v2", 10, 0)
    assert resumed.trying
    assert resumed.seed == tried.seed
    assert resumed.trial == resumed.revision > tried.trial


def test_each_candidate_draws_its_tenants_anew() -> None:
    state = first("v1", 0)
    seeds = {state.canary("v2", 5, 0).seed for _ in range(3)}
    assert len(seeds) == 3


def test_a_state_is_read_as_it_was_written() -> None:
    state = first("v1", 1.5).canary("v2", 12.5, 2.5).held("why", 3.5)
    assert decode(state.encode()) == state


@given(st.binary(max_size=300))
def test_damage_is_found_and_never_raises_anything_else(raw: bytes) -> None:
    with pytest.raises((RolloutError, FormatVersionError)):
        decode(raw)
    assert decode_report(raw) == Report()


@given(st.data())
def test_a_damaged_byte_never_raises_anything_else(data: st.DataObject) -> None:
    raw = bytearray(first("v1", 1.5).canary("v2", 12.5, 2.5).encode())
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MMCacheError):
        decode(bytes(raw))


@pytest.mark.parametrize(
    "changes",
    [
        {"percent": 101.0},
        {"percent": float("nan")},
        {"revision": -1},
        {"born": ""},
        {"stable": ""},
        {"candidate": "v1"},
        {"candidate": "v2", "seed": ""},
        {"changed": 1e30},
        {"stable": "x" * MOST_BYTES},
    ],
    ids=str,
)
def test_nonsense_is_damage(changes: dict[str, object]) -> None:
    with pytest.raises(RolloutError, match="damaged"):
        decode(msgspec.structs.replace(first("v1", 0), **changes).encode())


def test_a_newer_format_is_left_alone() -> None:
    with pytest.raises(FormatVersionError):
        decode(b'{"format": 2, "everything": "else"}')


UNITS = st.tuples(st.text(max_size=20), st.text(max_size=20))


@given(st.text(max_size=40), UNITS, st.floats(0, 100), st.floats(0, 100))
def test_who_is_in_stays_in_when_the_share_grows(seed: str, unit: tuple[str, str], one: float, other: float) -> None:
    where = place(seed, *unit)
    assert 0 <= where < 1
    assert where == place(seed, *unit)
    if within(where, min(one, other)):
        assert within(where, max(one, other))
    assert not within(where, 0)
    assert within(where, 100)


def test_the_share_is_one_of_units() -> None:
    for seed in ("one", "two"):
        count = sum(within(place(seed, f"tenant {n}"), 5) for n in range(20_000))
        assert 850 < count < 1150  # 1000 expected, standard deviation 31
        sessions = sum(within(place(seed, "everybody", f"session {n}"), 5) for n in range(20_000))
        assert 850 < sessions < 1150
    both = sum(within(place("one", f"t{n}"), 5) and within(place("two", f"t{n}"), 5) for n in range(20_000))
    assert both < 100  # 50 expected: another candidate has other tenants


def test_a_tenant_and_a_unit_do_not_run_together() -> None:
    assert place("s", "ab", "c") != place("s", "a", "bc")


def counted(**fields: float) -> Counts:
    return Counts(**fields)  # type: ignore[arg-type]


def test_counts_of_processes_add_up() -> None:
    report = Report().plus("b", 1, counted(candidate=2, compared=2, agreement=1.5, lowest=0.5), {"v1": "m1"})
    report = report.plus("b", 1, counted(candidate=1, compared=1, agreement=1.0, lowest=1.0), {"v2": "m2"})
    assert report.counts == counted(candidate=3, compared=3, agreement=2.5, lowest=0.5)
    assert report.counts.mean == pytest.approx(2.5 / 3)
    assert report.models == {"v1": "m1", "v2": "m2"}
    late = report.plus("b", 0, Counts(), {}).plus("", 0, counted(), {"v3": "m3"})
    assert late.counts == report.counts  # a process without a trial only says what it has
    newer = late.plus("b", 4, counted(candidate=7), {})
    assert newer.counts == counted(candidate=7)
    assert newer.plus("b", 1, counted(candidate=9), {}).counts == counted(candidate=7)
    assert newer.of(State(stable="v1", born="b", trial=4)).candidate == 7
    assert newer.of(State(stable="v1", born="b", trial=5)) == Counts()
    assert decode_report(newer.encode()) == newer
    assert Counts().mean is None
