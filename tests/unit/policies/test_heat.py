"""The heat window against counting everything anew each time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmcache.model.block import Facts
from mmcache.model.errors import SettingsError
from mmcache.model.key import Key
from mmcache.policies.heat import HeatWindow
from mmcache.testing import make_key

CALLS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "touch", "touch", "drop"]), st.integers(0, 5), st.integers(0, 1)),
    max_size=80,
)


class Naive:
    """The definition, in O(n)."""

    def __init__(self, window: int, threshold: int) -> None:
        self.window, self.threshold = window, threshold
        self.passes: list[Key] = []
        self.references: dict[Key, int] = {}
        self.since: dict[Key, tuple[bool, int]] = {}
        """Of blocks without a use in the window: whether something refers to them, and since which call."""

    def places(self, key: Key) -> list[int]:
        first = max(0, len(self.passes) - self.window)
        return [place for place in range(first, len(self.passes)) if self.passes[place] == key]

    def last_use(self, key: Key) -> int:
        return max(place for place, used in enumerate(self.passes) if used == key)

    def called(self, call: int) -> None:
        forgotten = {key for key in self.references if not self.places(key)}
        self.since = {
            key: self.since[key]
            if key in self.since and self.since[key][0] == bool(self.references[key])
            else (bool(self.references[key]), call)
            for key in forgotten
        }

    def victims(self) -> list[Key]:
        def spared(key: Key) -> bool:
            return len(self.places(key)) >= self.threshold or self.references[key] > 0

        def order(key: Key) -> int:
            return self.since[key][1] if key in self.since else self.last_use(key)

        return sorted(self.references, key=lambda key: (spared(key), len(self.places(key)), order(key)))


@given(CALLS, st.integers(1, 12), st.integers(1, 3))
def test_equals_its_definition(calls: list[tuple[str, int, int]], window: int, threshold: int) -> None:
    policy, naive = HeatWindow(window, threshold), Naive(window, threshold)
    for now, (call, n, references) in enumerate(calls):
        key = make_key(n)
        match call:
            case "add":
                policy.add(key, Facts(1, references=references), now)
                if key not in naive.references:
                    naive.passes.append(key)
                naive.references[key] = references
            case "touch":
                policy.touch(key, now)
                if key in naive.references:
                    naive.passes.append(key)
            case "drop":
                policy.drop(key)
                naive.references.pop(key, None)
        naive.called(now)
        assert list(policy.victims(now)) == naive.victims()
        for other in map(make_key, range(6)):
            places = naive.places(other)
            gaps = [b - a for a, b in pairwise(places)]
            assert policy.uses(other) == len(places)
            assert policy.gaps(other) == gaps
            assert policy.mean_gap(other) == (pytest.approx(sum(gaps) / len(gaps)) if gaps else None)


def test_the_coldest_goes_when_everything_is_referred_to_or_hot() -> None:
    policy = HeatWindow(window=10, threshold=2)
    policy.add(make_key(1), Facts(1, references=1), 0)
    policy.add(make_key(2), Facts(1), 1)
    policy.touch(make_key(2), 2)
    assert list(policy.victims(3)) == [make_key(1), make_key(2)]
    policy.add(make_key(3), Facts(1), 4)
    assert next(policy.victims(5)) == make_key(3)


def test_what_it_remembers_is_bounded_by_the_window() -> None:
    policy = HeatWindow(window=50)
    for n in range(5000):
        policy.add(make_key(n), Facts(1), n)
        policy.drop(make_key(n))
    assert sum(policy.uses(make_key(n)) for n in range(5000)) == 50
    assert len(policy._uses._seen) == 50
    assert not len(policy._groups)
    assert len(policy._heap) < 10


def test_the_number_of_heats_is_bounded_by_the_window() -> None:
    policy, uses = HeatWindow(window=1000), (n for n in range(100) for _ in range(n))
    for now, n in enumerate([*uses, *range(1000, 3000)]):
        policy.add(make_key(n), Facts(1), now)
        assert len(policy._groups) < (2 * 1000) ** 0.5 + 2


def test_why() -> None:
    policy = HeatWindow(window=10, threshold=2)
    for n, references in enumerate([0, 1, 0]):
        policy.add(make_key(n), Facts(1, references=references), 0)
    policy.touch(make_key(2), 1)
    scores = {n: policy.explain(make_key(n), 2)["score"] for n in range(3)}
    assert list(policy.victims(2)) == sorted(map(make_key, scores), key=lambda key: policy.explain(key, 2)["score"])
    assert policy.explain(make_key(1), 2) == {"heat": 1.0, "threshold": 2.0, "references": 1.0, "score": 3}
    assert policy.explain(make_key(9), 2) == {}


@pytest.mark.parametrize(("window", "threshold"), [(0, 1), (-5, 1), (10, 0)])
def test_settings_out_of_bounds(window: int, threshold: int) -> None:
    with pytest.raises(SettingsError):
        HeatWindow(window, threshold)
