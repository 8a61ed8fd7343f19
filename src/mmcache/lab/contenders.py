"""Policies of the table `boundary`, as the cache would drive them: with attention measured, or with a forecast."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np

from mmcache import plugins
from mmcache.lab.replay import Hits, policy_named, replay
from mmcache.lab.scene_load import NOISE, Load, linked
from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.base import Policy
from mmcache.policies.freshness import HeatFreshness
from mmcache.policies.heat import HeatWindow
from mmcache.policies.ranked import Ranked, Tracked
from mmcache.ttl.fixed import FixedTTL

TTL_SECONDS = 1800.0
LONG_WINDOW = 10_000
ENTROPY, LINKED = "entropy-lfu", "entropy-lfu/linked"
LFU_TTL = "lfu+ttl"
LONG = f"heat/{LONG_WINDOW}"


class Attending:
    """Every use of a block is a cross-attention over it, whose entropy its policy is told, as `cache.attended` does."""

    def __init__(self, policy: Policy, load: Load, seed: int) -> None:
        self._policy = policy
        self._random = np.random.default_rng([seed, 9])
        self._facts: dict[Key, Facts] = {}
        self._entropies = dict(zip(load.trace.keys, load.entropies.tolist(), strict=True))

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """See `Policy.add`."""
        self._facts[key] = facts
        noisy = self._entropies[key] * float(np.exp(NOISE * self._random.standard_normal()))
        self._policy.add(key, replace(facts, entropy=noisy), now)

    def touch(self, key: Key, now: float) -> None:
        """See `Policy.touch`."""
        if key in self._facts:
            self._policy.touch(key, now)
            self.add(key, self._facts[key], now)

    def drop(self, key: Key) -> None:
        """See `Policy.drop`."""
        self._facts.pop(key, None)
        self._policy.drop(key)

    def victims(self, now: float) -> Iterator[Key]:
        """See `Policy.victims`."""
        return self._policy.victims(now)


class Learning:
    """`HeatFreshness` with its trainer, which works between two calls instead of beside them: the same every time."""

    def __init__(self, seed: int) -> None:
        from mmcache.learn.lstm import LSTMTrainer

        self._policy = HeatFreshness()
        self._trainer = LSTMTrainer(self._policy, seed=seed)
        self._every = self._policy.window.passes // 8
        self.steps = self.trusted = 0
        self.drop = self._policy.drop
        self.victims = self._policy.victims

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """See `Policy.add`."""
        self._policy.add(key, facts, now)
        self._learn()

    def touch(self, key: Key, now: float) -> None:
        """See `Policy.touch`."""
        self._policy.touch(key, now)
        self._learn()

    def _learn(self) -> None:
        history = self._policy.history
        if history is not None and len(history) >= self._every:
            ended = self._trainer.step()
            self.steps += ended
            self.trusted += ended * self._trainer.trusted

    def report(self) -> Mapping[str, float]:
        """See `LSTMTrainer.report`."""
        return self._trainer.report()


@dataclass(frozen=True)
class Outcome:
    """One replay."""

    hits: Hits
    report: Mapping[str, float]
    """Of a forecast; empty without one."""


def uses(block: Tracked, now: float) -> float:
    """The score of an LFU."""
    return block.uses


def names() -> list[str]:
    """All policies of this package that are registered, with variants, and the published rival."""
    registered = [name for name in plugins.names("policies") if name != ENTROPY]
    return [*registered, LONG, ENTROPY, LINKED, LFU_TTL]


def contend(name: str, load: Load, limit_bytes: int, seed: int) -> Hits:
    """What became of the block requests of `load` under the policy called `name`."""
    lifetime = FixedTTL(TTL_SECONDS) if name == LFU_TTL else None
    made: dict[str, Callable[[], Policy]] = {
        LONG: lambda: HeatWindow(LONG_WINDOW),
        LFU_TTL: lambda: Ranked(uses),
        ENTROPY: lambda: Attending(policy_named(ENTROPY), load, seed),
        LINKED: lambda: Attending(policy_named(ENTROPY), linked(load, seed), seed),
    }
    policy = made[name]() if name in made else policy_named(name)
    return replay(load.trace, policy, limit_bytes, lifetime=lifetime).hits


def learns() -> bool:
    """Whether a forecast can be trained here."""
    return find_spec("torch") is not None


def foreseen(load: Load, limit_bytes: int, seed: int) -> Outcome:
    """`heat-freshness` with its LSTM."""
    policy = Learning(seed)
    with one_core():
        hits = replay(load.trace, policy, limit_bytes).hits
    return Outcome(hits, {**policy.report(), "trusted": policy.trusted / max(1, policy.steps)})


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """torch on one core: for matrices this small, several wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
