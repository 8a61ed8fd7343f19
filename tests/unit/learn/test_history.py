"""Uses in steps against cutting a list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mmcache.learn.history import History
from mmcache.model.key import Key
from mmcache.policies.forecast import SEQUENCE
from mmcache.testing import make_key


@given(st.lists(st.integers(0, 4), min_size=1, max_size=150), st.integers(1, 5))
def test_steps_of_so_many_uses(uses: list[int], per: int) -> None:
    history = History(per, 1e9)
    ended = sum(sum(1 for _ in history.use(make_key(n), float(now))) for now, n in enumerate(uses))
    assert ended == len(uses) // per
    steps = [uses[place * per : (place + 1) * per] for place in range(ended)]
    past = history.past()
    assert (past is None) == (ended < SEQUENCE)
    if past is None:
        return
    window = steps[-SEQUENCE:]
    expected = {make_key(n): [step.count(n) for step in window] for n in {n for step in window for n in step}}
    assert dict(zip(past.keys, past.counts.tolist(), strict=True)) == expected
    asked = tuple(make_key(n) for n in range(6))
    assert history.since(asked).tolist() == [sum(step.count(n) for step in window) for n in range(6)]


def drain(history: History, key: Key, now: float) -> int:
    return sum(1 for _ in history.use(key, now))


def test_steps_of_so_many_seconds() -> None:
    history = History(100, 10.0)
    assert drain(history, make_key(1), 0.0) == 0
    assert drain(history, make_key(1), 9.9) == 0
    assert drain(history, make_key(2), 10.0) == 1
    assert drain(history, make_key(3), 41.0) == 3
    assert history.since((make_key(1), make_key(2), make_key(3))).tolist() == [2.0, 1.0, 0.0]


def test_a_long_rest_empties_it_without_a_step_for_each_second() -> None:
    history = History(100, 1.0)
    drain(history, make_key(1), 0.0)
    assert drain(history, make_key(2), 1e9) == 2 * SEQUENCE
    assert history.since((make_key(1),)).tolist() == [0.0]
    past = history.past()
    assert past is not None
    assert past.keys == ()
    assert drain(history, make_key(2), 1e9 + 1) == 1


def test_what_came_before_is_there_once_it_can_be_judged() -> None:
    history = History(1, 1e9)
    for now in range(2 * SEQUENCE):
        assert (history.past(ago=SEQUENCE) is not None) == (now >= 2 * SEQUENCE)
        drain(history, make_key(now), float(now))
    past = history.past(ago=SEQUENCE)
    assert past is not None
    assert past.keys == tuple(make_key(n) for n in range(SEQUENCE))
