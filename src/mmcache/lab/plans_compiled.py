"""A compiled lookup: for one combination of scopes, everything that does not change is bound before.

No part of the product: it was equal and faster, but not by enough for a caller to notice (table `plans`).

It answers only when every part is a plain hit in memory, and says None before it has changed anything otherwise: then
the general path does all of it, as if this had not been. So misses, their reasons, expiry and staleness have one
implementation, and what is compiled is the case that recurs. Nothing is generated from stored data: a plan is a
closure over objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mmcache.attribution import UNKNOWN, Attribution, current
from mmcache.events import Events
from mmcache.ledger import Labels
from mmcache.lookup import Lookup, Make
from mmcache.model.clock import Clock
from mmcache.model.event import Hit
from mmcache.model.key import WHOLE, Key
from mmcache.scopes import Scope
from mmcache.stats import Tally
from mmcache.store import Store

Compiled = Callable[[Sequence[Key]], list[Lookup] | None]


@dataclass(frozen=True, slots=True)
class Part:
    """One key's place in a combination."""

    scope: bytes
    whole: bool
    """No region: the whole input."""


Combination = tuple[Part, ...]


def combination(keys: Sequence[Key]) -> Combination:
    """What `keys` have in common with others that are looked up in the same way."""
    return tuple(Part(key[:16], key.endswith(WHOLE)) for key in keys)


def plan(
    parts: Combination, scopes: Sequence[Scope], store: Store, tally: Tally, events: Events, clock: Clock
) -> Compiled:
    """The lookup of `parts`, of which `scopes` are the scopes: what `Answers.look_up` gives, or None and no trace.

    It holds its scopes: should the cache forget one meanwhile (65 536 newer ones), it still counts under its modality.
    """
    memory = store.memory
    name, check_open, catch_up = memory.name, memory.check_open, store.catch_up
    entry_of, touched = memory._entries.get, memory.reads.touched  # as its own hit index is: the tier's one dict
    now, add, emit = clock.monotonic, tally.lookups.add, events.emit
    checks = tuple((part.scope, part.whole) for part in parts)

    def labels_of(by: Attribution) -> tuple[Labels, ...]:
        return tuple(
            ("hit", name, "", scope.signature.modality or "", "exact" if part.whole else "region", scope.tenant,
             by.route, by.region)
            for part, scope in zip(parts, scopes, strict=True)
        )  # fmt: skip

    known: tuple[Attribution, tuple[Labels, ...]] = (UNKNOWN, labels_of(UNKNOWN))

    def look_up(keys: Sequence[Key]) -> list[Lookup] | None:
        nonlocal known
        check_open()
        catch_up()
        entries = []
        for key, (scope, whole) in zip(keys, checks, strict=True):
            if type(key) is not Key or not key.startswith(scope) or key.endswith(WHOLE) is not whole:
                return None
            entry = entry_of(key)
            if entry is None or ((deadline := entry[2]) is not None and deadline <= now()):
                return None
            entries.append(entry)
        by, labels = known
        if by is not (asked := current()):
            labels = labels_of(asked)
            known = asked, labels
        for key in keys:
            touched(key)
        looks = []
        for key, entry, label in zip(keys, entries, labels, strict=True):
            value, make, deadline, frame, _, _ = entry
            add(label, 1, frame.header.cost, frame.size)
            emit(Hit(key, name))
            looks.append(Lookup(_always(value) if make is None else make, name, frame=frame, deadline=deadline))
        return looks

    return look_up


def _always(value: object) -> Make:
    return lambda: value
