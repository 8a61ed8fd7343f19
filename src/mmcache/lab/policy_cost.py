"""What a policy itself takes: nanoseconds a request and bytes a block, by playing again what a replay asked of it."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from mmcache.lab.replay import policy_named, replay
from mmcache.lab.traces import Trace
from mmcache.model.block import Facts
from mmcache.model.key import Key
from mmcache.policies.base import Policy

ADD, TOUCH, DROP, VICTIMS = range(4)
Step = tuple[int, Any, Any, float]
"""(what, key or number of victims taken, facts, now)."""


class Tape:
    """A policy that notes what is asked of another one."""

    def __init__(self, policy: Policy) -> None:
        self.steps: list[Step] = []
        self._policy = policy
        self.refuses = bool(getattr(policy, "refuses", False))

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """See `Policy.add`."""
        self.steps.append((ADD, key, facts, now))
        self._policy.add(key, facts, now)

    def touch(self, key: Key, now: float) -> None:
        """See `Policy.touch`."""
        self.steps.append((TOUCH, key, None, now))
        self._policy.touch(key, now)

    def drop(self, key: Key) -> None:
        """See `Policy.drop`."""
        self.steps.append((DROP, key, None, 0.0))
        self._policy.drop(key)

    def victims(self, now: float) -> Iterator[Key]:
        """See `Policy.victims`; how many were taken is noted."""
        place = len(self.steps)
        self.steps.append((VICTIMS, 0, None, now))
        for taken, key in enumerate(self._policy.victims(now), 1):
            self.steps[place] = (VICTIMS, taken, None, now)
            yield key


class Nothing:
    """A policy that does nothing: what playing a tape costs by itself."""

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """Nothing."""

    def touch(self, key: Key, now: float) -> None:
        """Nothing."""

    def drop(self, key: Key) -> None:
        """Nothing."""

    def victims(self, now: float) -> Iterator[Key]:
        """None."""
        return iter(())


def record(trace: Trace, name: str, limit_bytes: int) -> list[Step]:
    """What a replay of `trace` asks of the policy called `name`."""
    tape = Tape(policy_named(name))
    replay(trace, tape, limit_bytes)
    return tape.steps


def play(steps: list[Step], policy: Policy) -> None:
    """Ask it all again."""
    add, touch, drop, victims = policy.add, policy.touch, policy.drop, policy.victims
    for kind, what, facts, now in steps:
        if kind == TOUCH:
            touch(what, now)
        elif kind == ADD:
            add(what, facts, now)
        elif kind == DROP:
            drop(what)
        else:
            for _ in islice(victims(now), what):
                pass


def nanoseconds(trace: Trace, names: Sequence[str], limit_bytes: int, rounds: int) -> dict[str, list[float]]:
    """Processor time of each policy itself, ns a request, a sample a round; what playing costs is taken off.

    Rounds take the policies in turn. Processor time, because others may be using the machine.
    """
    tapes = {name: record(trace, name, limit_bytes) for name in names}
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, steps in tapes.items():
            seconds = []
            for policy in (policy_named(name), Nothing()):
                gc.collect()
                start = time.thread_time()
                play(steps, policy)
                seconds.append(time.thread_time() - start)
            found[name].append(max(0.0, seconds[0] - seconds[1]) * 1e9 / max(1, len(trace)))
    return found


def bytes_a_block(trace: Trace, name: str, limit_bytes: int) -> float:
    """Bytes that the policy holds ÷ blocks that the cache holds, at the end of a replay; keys are not its own.

    What Python's allocators give out is traced; what an extension allocates past them, it tells by `sys.getsizeof`.
    """
    steps = record(trace, name, limit_bytes)
    held = _held(steps)
    gc.collect()
    tracemalloc.start()
    try:
        policy = policy_named(name)
        play(steps, policy)
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    return max(traced, sys.getsizeof(policy)) / max(1, held)


def _held(steps: list[Step]) -> int:
    known: set[Key] = set()
    for kind, what, _, _ in steps:
        if kind == ADD:
            known.add(what)
        elif kind == DROP:
            known.discard(what)
    return len(known)
