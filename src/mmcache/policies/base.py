"""`Policy`: who goes when space is short. Pure; time is an argument; only eventually consistent with the map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

from mmcache.model.block import Facts
from mmcache.model.key import Key


@runtime_checkable
class Policy(Protocol):
    """Four methods. `touch` and `drop` of an unknown key do nothing; `add` of a known key updates its facts.

    A tier tells of a new block by `add` before it asks for `victims`. A policy with an attribute `refuses = True` may
    yield that block among them: then it is not stored, and dropped again. Otherwise it is passed over.
    """

    def add(self, key: Key, facts: Facts, now: float) -> None:
        """A block was stored."""

    def touch(self, key: Key, now: float) -> None:
        """A block was used. Touches may arrive late, and some are lost."""

    def drop(self, key: Key) -> None:
        """A block is gone."""

    def victims(self, now: float) -> Iterator[Key]:
        """Known keys, each once, the first to go first. Yields, never mutates."""


@runtime_checkable
class Explains(Protocol):
    """A policy that can say why: optional, one method more. What it says stands in `cache.explain(key)`."""

    def explain(self, key: Key, now: float) -> Mapping[str, float]:
        """The parts of the score of `key` by name, with the score itself as `score`; a low score goes first.

        Empty for a key that it does not know. Not on the hot path, but on that of evictions: no search, no sort.
        """
