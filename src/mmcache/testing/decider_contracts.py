"""What every `Admission`, `Lifetime` and `References` must do. Subclass them in your tests."""

from __future__ import annotations

import math
import random
import threading
from typing import ClassVar

import pytest

from mmcache.admission.base import Admission, Admit, Reject, Wait
from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.refs.base import MOST_GONE, Checked, References
from mmcache.testing.frames import make_key
from mmcache.ttl.base import Lifetime

ODD_FACTS = [
    Facts(size=0),
    Facts(size=1 << 45, cost=1e9, modality="hologram", tenant="", entropy=0.0, references=10**6),
    Facts(size=1, cost=0.0, modality="", tenant="täglich", entropy=None),
]


class AdmissionContract:
    """Hook: `make_admission`."""

    def make_admission(self) -> Admission:
        """A new admission."""
        raise NotImplementedError

    def test_is_an_admission(self) -> None:
        assert isinstance(self.make_admission(), Admission)

    @pytest.mark.parametrize("facts", ODD_FACTS)
    def test_answers_whatever_it_is_asked(self, facts: Facts) -> None:
        verdict = self.make_admission().judge(make_key(1), facts, 0.0)
        assert isinstance(verdict, Admit | Reject | Wait)
        if isinstance(verdict, Wait):
            assert 0 < verdict.seconds < math.inf

    @pytest.mark.parametrize("facts", ODD_FACTS)
    def test_two_of_a_kind_agree(self, facts: Facts) -> None:
        verdicts = [self.make_admission().judge(make_key(1), facts, 7.0) for _ in range(2)]
        assert verdicts[0] == verdicts[1]


class LifetimeContract:
    """Hook: `make_lifetime`."""

    def make_lifetime(self) -> Lifetime:
        """A new lifetime."""
        raise NotImplementedError

    def test_is_a_lifetime(self) -> None:
        assert isinstance(self.make_lifetime(), Lifetime)

    @pytest.mark.parametrize("now", [0.0, 1e-3, 1e9])
    @pytest.mark.parametrize("facts", ODD_FACTS)
    def test_a_deadline_is_never_in_the_past(self, facts: Facts, now: float) -> None:
        lifetime = self.make_lifetime()
        for n in range(50):
            deadline = lifetime.deadline(make_key(n), facts, now)
            assert deadline is None or now <= deadline < math.inf

    def test_two_of_a_kind_agree(self) -> None:
        one, two = self.make_lifetime(), self.make_lifetime()
        for n in range(50):
            assert one.deadline(make_key(n), ODD_FACTS[1], 5.0) == two.deadline(make_key(n), ODD_FACTS[1], 5.0)

    def test_any_feedback_is_taken(self) -> None:
        lifetime = self.make_lifetime()
        for n in range(200):
            lifetime.used(make_key(n % 50), now=float(n) / 2)
            lifetime.ended(make_key(n), age=float(n % 7), stale=n % 2 == 0)
        lifetime.ended(make_key(0), age=0.0, stale=True)
        self.test_a_deadline_is_never_in_the_past(ODD_FACTS[0], 100.0)
        deadline = lifetime.deadline(make_key(1), ODD_FACTS[0], 100.0)
        assert deadline is None or deadline >= 100.0


class ReferencesContract:
    """Hook: `make_references`. `strong`: whether a link counts in `holds`."""

    strong: ClassVar[bool] = True

    def make_references(self) -> References:
        """A new graph without links."""
        raise NotImplementedError

    def test_is_references(self) -> None:
        assert isinstance(self.make_references(), References)

    def test_unknown_keys_reach_themselves(self) -> None:
        references = self.make_references()
        references.leave(make_key(1))
        references.unlink(make_key(1))
        references.link(make_key(1), [])
        assert references.reach([make_key(1), make_key(2)]) == {make_key(1), make_key(2)}
        assert references.reach([]) == set()
        assert references.holds(make_key(1)) == 0
        assert not references.surplus()
        assert not list(references.dangling(lambda key: True))

    def test_parents_are_reached_and_children_are_not(self) -> None:
        references = self.make_references()
        references.link(make_key(1), [make_key(2)])
        references.link(make_key(2), iter([make_key(3)]))
        assert references.reach([make_key(3)]) == {make_key(n) for n in (1, 2, 3)}
        assert references.reach([make_key(1)]) == {make_key(1)}

    def test_links_add_up_and_are_no_multiset(self) -> None:
        references = self.make_references()
        for children in ([make_key(1)], [make_key(1), make_key(2), make_key(2)], []):
            references.link(make_key(9), children)
        assert [references.holds(make_key(n)) for n in (1, 2)] == [self.strong, self.strong]
        references.leave(make_key(9))
        assert [references.holds(make_key(n)) for n in (1, 2)] == [0, 0]
        references.link(make_key(9), [make_key(2)])
        assert [references.holds(make_key(n)) for n in (1, 2)] == [self.strong, self.strong], "it is back"
        assert references.parents() == [make_key(9)]
        assert [references.unlink(make_key(9)) for _ in range(2)] == [True, False]
        assert not references.parents()
        assert [references.holds(make_key(n)) for n in (1, 2)] == [0, 0]
        assert references.reach([make_key(1), make_key(2)]) == {make_key(1), make_key(2)}

    def test_what_was_made_from_a_block_that_left_is_still_reached(self) -> None:
        references = self.make_references()
        references.link(make_key(1), [make_key(2)])
        references.link(make_key(2), [make_key(3)])
        references.leave(make_key(2))
        assert references.reach([make_key(3)]) == {make_key(n) for n in (1, 2, 3)}
        references.leave(make_key(1))
        assert references.reach([make_key(3)]) == {make_key(n) for n in (1, 2, 3)}

    @pytest.mark.parametrize("length", [1, 2, 50, 3000])
    def test_cycles_end(self, length: int) -> None:
        references = self.make_references()
        cycle = [make_key(n) for n in range(length)]
        for n, key in enumerate(cycle):
            references.link(key, [cycle[(n + 1) % length]])
        assert references.reach([cycle[0]]) == set(cycle)
        references.unlink(cycle[0])
        assert references.reach([cycle[0]]) == set(cycle)
        assert references.reach([cycle[1 % length]]) == {cycle[1 % length]}
        for key in cycle:
            references.unlink(key)
        assert references.reach(cycle[:1]) == set(cycle[:1])

    def test_equals_a_set_of_edges(self) -> None:
        references, rng = self.make_references(), random.Random(3)
        edges, left = set[tuple[Key, Key]](), set[Key]()
        for _ in range(600):
            parent, child = make_key(rng.randrange(12)), make_key(rng.randrange(12))
            match rng.randrange(10):
                case 0 | 1:
                    references.leave(parent)
                    left.add(parent)
                case 2:
                    dropped = references.reach([parent]) if rng.random() < 0.2 else {parent}
                    for key in dropped:
                        references.unlink(key)
                    edges = {edge for edge in edges if edge[0] not in dropped}
                case _:
                    references.link(parent, [child])
                    edges.add((parent, child))
                    left.discard(parent)
            reached = {child}
            while more := {p for p, c in edges if c in reached} - reached:
                reached |= more
            assert references.reach([child]) == reached
            assert set(references.parents()) == {p for p, _ in edges}
            living = {edge for edge in edges if edge[0] not in left}
            assert references.holds(child) == (sum(c == child for _, c in living) if self.strong else 0)
            held = {key for key in map(make_key, range(12)) if rng.random() < 0.5}
            lost = [(p, c) for p, c in living if p in held and c not in held]
            assert sorted(references.dangling(held.__contains__)) == sorted(lost)

    def test_what_parents_leave_behind_does_not_pile_up(self) -> None:
        references, most = self.make_references(), 0
        for n in range(5 * MOST_GONE):
            references.link(make_key(n), [make_key(n, scope=2), make_key(0, scope=3)])
            references.leave(make_key(n))
            for key in references.reach(references.surplus()):
                references.unlink(key)
            most = max(most, len(references.reach([make_key(0, scope=3)])) if n % 256 == 0 else 0)
        assert most <= MOST_GONE
        assert not references.surplus()

    def test_a_checked_tracker_finds_whatever_it_would_reach(self) -> None:
        for seed in range(30):
            references, rng = self.make_references(), random.Random(seed)
            if not isinstance(references, Checked):
                pytest.skip("not a `Checked` tracker")
            keys = [make_key(n) for n in range(30)]
            for _ in range(40):
                references.link(rng.choice(keys), rng.sample(keys, 2))
                if rng.random() < 0.2:
                    references.leave(rng.choice(keys))
            changed = set(rng.sample(keys, 2))
            reached = references.reach(changed)
            assert all(map(references.valid, keys))
            for key in changed:
                references.unlink(key)
            assert {key for key in set(keys) - changed if not references.valid(key)} == reached - changed
            for key in reached:
                references.unlink(key)
            assert all(map(references.valid, keys)), "the rest is as good as before"

    def test_threads_lose_no_link(self) -> None:
        references = self.make_references()

        def work(worker: int) -> None:
            for n in range(200):
                key = make_key(1000 * worker + n)
                references.link(key, [make_key(0)])
                references.reach([make_key(0)])
                if n % 2:
                    references.leave(key)
                if n % 4 == 3:
                    references.unlink(key)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(references.reach([make_key(0)])) == 1 + 4 * 150
        assert references.holds(make_key(0)) == (4 * 100 if self.strong else 0)
