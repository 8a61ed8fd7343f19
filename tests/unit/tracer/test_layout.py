"""Rates from what the kernel keeps of a key: the times of its last 128 reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.key import Key
from mmcache.tracer.layout import MARK, READ_KEY, SECOND_NS, TIMES, UNIT_NS, key_reads, rates_of
from mmcache.tracer.mark import Mark


def seen(moments: list[int]) -> np.ndarray:
    """What reads.bpf.c would have of one key that was read at these moments, in ns."""
    one = np.zeros(1, READ_KEY)
    run, last = 0, 0
    for moment in moments:
        if moment - last >= SECOND_NS:
            run = 0
        one["times"][0, run % TIMES] = moment // UNIT_NS & 0xFFFFFFFF
        run, last = run + 1, moment
    one["run"], one["last"], one["reads"] = run, last, len(moments)
    return one


@given(st.lists(st.integers(1, 400_000_000), max_size=100), st.integers(0, 3 * SECOND_NS))
def test_up_to_127_reads_in_a_second_are_counted_exactly_but_for_one_unit_of_time(gaps: list[int], idle: int) -> None:
    moments = np.cumsum([10 * SECOND_NS, *gaps]).tolist()
    now = moments[-1] + idle
    (rate,) = rates_of(seen(moments), now)
    surely = sum(now - moment < SECOND_NS - 2 * UNIT_NS for moment in moments)
    perhaps = sum(now - moment < SECOND_NS + 2 * UNIT_NS for moment in moments)
    assert (surely if idle < SECOND_NS else 0) <= rate <= perhaps


@pytest.mark.parametrize("rate", [200, 1_000, 20_000])
def test_more_are_a_rate(rate: int) -> None:
    moments = [50 * SECOND_NS + n * SECOND_NS // rate for n in range(3 * rate)]
    (found,) = rates_of(seen(moments), moments[-1])
    assert found == pytest.approx(rate, rel=0.5 if rate > 10_000 else 0.05)


def test_a_key_that_was_not_read_for_a_second_is_not_hot_any_more() -> None:
    one = seen([5 * SECOND_NS])
    one["hot_since"] = 5 * SECOND_NS
    key = np.frombuffer(bytes(range(8)), np.uint8)[None]
    (hot,) = key_reads(key, one, 5 * SECOND_NS + 1)
    (cold,) = key_reads(key, one, 7 * SECOND_NS)
    assert hot.short == "0001020304050607"
    assert (hot.hot_since, cold.hot_since, cold.per_second) == (5.0, None, 0.0)


@given(st.binary(min_size=48, max_size=48))
def test_a_keys_short_name_is_what_the_probe_computes(raw: bytes) -> None:
    words = np.frombuffer(raw, "<u8")
    assert (words[0] ^ words[2] ^ words[4]).tobytes().hex() == Key.from_bytes(raw).short


@given(st.binary(min_size=48, max_size=48), *[st.integers(0, 2**64 - 1)] * 4)
def test_a_mark_survives_the_wire(raw: bytes, at: int, reads: int, delay: int, waiting: int) -> None:
    mark = Mark(Key.from_bytes(raw), at, reads, delay, waiting)
    assert Mark.unpack(mark.pack()) == mark


@given(st.binary(max_size=200))
def test_what_is_no_mark_is_none(raw: bytes) -> None:
    assert Mark.unpack(raw) is None


def test_the_kernels_mark_is_as_long_as_its_fields() -> None:
    assert MARK.size == 88
