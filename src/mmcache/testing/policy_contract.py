"""What every `Policy` must do. Subclass it in your tests and give it your policy."""

from __future__ import annotations

import itertools
import random

from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.base import Policy
from mmcache.testing.frames import make_key

FACTS = Facts(size=100)


class PolicyContract:
    """Hook: `make_policy`.

    class TestMine(PolicyContract):
        def make_policy(self):
            return MyPolicy()
    """

    def make_policy(self) -> Policy:
        """A new policy that knows no key."""
        raise NotImplementedError

    def test_is_a_policy(self) -> None:
        assert isinstance(self.make_policy(), Policy)

    def test_a_new_policy_has_no_victims(self) -> None:
        assert list(self.make_policy().victims(0.0)) == []

    def test_unknown_keys_change_nothing(self) -> None:
        policy = self.make_policy()
        policy.touch(make_key(1), 0.0)
        policy.drop(make_key(1))
        assert list(policy.victims(1.0)) == []

    def test_every_known_key_is_a_victim_once(self) -> None:
        policy, known, rng = self.make_policy(), set[Key](), random.Random(1)
        for now in range(3000):
            key = make_key(rng.randrange(60))
            match rng.randrange(4):
                case 0:
                    policy.drop(key)
                    known.discard(key)
                case 1:
                    policy.touch(key, float(now))
                case _:
                    facts = Facts(rng.randrange(1, 1000), rng.random(), "image", entropy=rng.choice([None, 0.5]),
                                  references=rng.randrange(3))  # fmt: skip
                    policy.add(key, facts, float(now))
                    known.add(key)
            if now % 50 == 0:
                victims = list(policy.victims(float(now)))
                assert len(victims) == len(set(victims))
                assert set(victims) == known

    def test_victims_mutates_nothing_and_may_be_abandoned(self) -> None:
        policy = self.make_policy()
        for n in range(20):
            policy.add(make_key(n), FACTS, float(n))
        whole = list(policy.victims(30.0))
        abandoned = policy.victims(30.0)
        assert list(itertools.islice(abandoned, 3)) == whole[:3]
        assert list(policy.victims(30.0)) == whole
        policy.drop(whole[0])
        policy.add(make_key(99), FACTS, 31.0)
        del abandoned
        assert set(policy.victims(31.0)) == (set(whole) - {whole[0]}) | {make_key(99)}

    def test_adding_a_known_key_does_not_double_it(self) -> None:
        policy = self.make_policy()
        for size in (1, 2, 3):
            policy.add(make_key(1), Facts(size=size), float(size))
        assert list(policy.victims(4.0)) == [make_key(1)]
        policy.drop(make_key(1))
        assert list(policy.victims(5.0)) == []

    def test_a_dropped_key_starts_anew(self) -> None:
        policy = self.make_policy()
        policy.add(make_key(1), FACTS, 0.0)
        policy.drop(make_key(1))
        policy.touch(make_key(1), 1.0)
        assert list(policy.victims(2.0)) == []
        policy.add(make_key(1), FACTS, 3.0)
        assert list(policy.victims(4.0)) == [make_key(1)]

    def test_the_same_calls_give_the_same_victims(self) -> None:
        orders = []
        for _ in range(2):
            policy, rng = self.make_policy(), random.Random(7)
            for now in range(500):
                policy.add(make_key(rng.randrange(40)), FACTS, float(now))
                policy.touch(make_key(rng.randrange(40)), float(now))
            orders.append(list(policy.victims(500.0)))
        assert orders[0] == orders[1]

    def test_time_may_stand_still_and_touches_may_be_late(self) -> None:
        policy = self.make_policy()
        for n in range(10):
            policy.add(make_key(n), FACTS, 5.0)
        for n in range(10):
            policy.touch(make_key(n), 4.0)
        assert set(policy.victims(5.0)) == {make_key(n) for n in range(10)}
