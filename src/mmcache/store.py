"""`Store`: the tiers as one. Finds and gates frames, promotes them, stores new ones everywhere, says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from mmcache.changes import Changes
from mmcache.codecs.pipeline import Thawed, freeze, thaw
from mmcache.codecs.structure import Structures
from mmcache.countdown import Countdown
from mmcache.events import Events
from mmcache.fates import Fates
from mmcache.keeping import Keeping, Until
from mmcache.lookup import ABSENT, Kept, Lookup, Make, more_telling
from mmcache.missing import Misses
from mmcache.model.block import Facts
from mmcache.model.clock import Clock
from mmcache.model.errors import CodecError, CorruptFrameError, IntegrityError, MMCacheError, UnsupportedValueError
from mmcache.model.event import (
    Event,
    Evicted,
    Expired,
    Failed,
    Invalidated,
    MissReason,
    Moved,
    Refused,
    RefuseReason,
    Stored,
)
from mmcache.model.frame import Frame
from mmcache.model.key import Key
from mmcache.observing import Observer
from mmcache.refs.waves import waves
from mmcache.scopes import Scope, Scopes
from mmcache.seen import RecentSignatures, SignatureIndex
from mmcache.settings import MemorySettings
from mmcache.spread import Elsewhere, Spread
from mmcache.tiers.base import Found, Tier, TierStats
from mmcache.tiers.broadcast import Broadcast
from mmcache.tiers.hit_index import Below
from mmcache.tiers.memory import MemoryTier
from mmcache.tiers.owed import OwedDrops
from mmcache.tiers.write_behind import WriteBehind

TOLD_AT_ONCE = 1024
"""Invalidated keys between two times that this process catches up: the ring that all share must not overrun it."""


class Store:
    """Memory first, then the lower tiers in order. No error of a tier leaves it: it becomes an event."""

    def __init__(
        self,
        *,
        memory: MemorySettings,
        keeping: Keeping,
        lower: Sequence[Tier],
        scopes: Scopes,
        structures: Structures,
        clock: Clock,
        events: Events,
        signatures: SignatureIndex | None,
        below: Below,
        broadcast: Broadcast | None,
        elsewhere: Elsewhere | None = None,
        doom: Callable[[Iterable[Key] | None], None],
    ) -> None:
        self.lower = list(lower)
        self._owed = {
            id(tier): tier.owed if isinstance(tier, WriteBehind) else OwedDrops(tier.drop) for tier in self.lower
        }
        self._scopes, self._structures, self._events = scopes, structures, events
        self.keeping, self._clock, self._signatures = keeping, clock, signatures
        self._own_signatures = RecentSignatures()  # told at once; the index of the folder hears of what is written
        self.fates = Fates()
        seen = [self._own_signatures, *([] if signatures is None else [signatures])]
        self.misses = Misses(scopes, self.fates, seen, clock)
        self.observer: Observer | None = None
        keeping.lifetime.report = self.emit
        self._doom = doom
        self.changes = Changes()
        shared = broadcast.sequence if broadcast is not None else None
        self.memory = MemoryTier(
            memory, keeping.policy, self._thaw, clock=clock, emit=self.emit, below=below, shared=shared,
            holds=keeping.references.holds, catch_up=self.catch_up, lives=keeping.lifetime,
            refresh_window=keeping.refresh_window, grace_seconds=keeping.grace_seconds, quotas=keeping.quotas,
            victims_of=keeping.victims_of,
        )  # fmt: skip
        self._spread = Spread(
            self.memory, self.lower, self._owed, broadcast=broadcast, elsewhere=elsewhere,
            references=keeping.references, changes=self.changes, doom=doom, emit=self.emit, invalidate=self.invalidate,
        )  # fmt: skip
        self._last = self.lower[-1].name if self.lower else self.memory.name

    def _thaw(self, frame: Frame) -> Thawed:
        return thaw(frame, self._structures)

    def emit(self, event: Event) -> None:
        """Pass an event on; remember what became of its block; what left the last tier needs nothing any more."""
        if isinstance(event, Evicted | Expired | Refused) and event.tier in (self._last, "cache"):
            try:
                self.keeping.references.leave(event.key)
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; it holds what it held
                self._events.emit(Failed("references", f"they raised {error!r}"))
        if isinstance(event, Failed):
            self.misses.heard(event)
        self.fates.note(event, self._clock.monotonic())
        self._events.emit(event)

    def modality(self, key: Key) -> str | None:
        """Of what `key` stands for, where that is known."""
        scope = self._scopes.find(key)
        return None if scope is None else scope.signature.modality

    def catch_up(self) -> int:
        """Apply what other processes of this machine invalidated; see `Spread.catch_up`."""
        return self._spread.catch_up()

    def find_near(self, keys: Sequence[Key], *, counted: bool = True, stale: bool = False) -> list[Lookup]:
        """Look keys up in memory alone; never blocks for long."""
        self.catch_up()
        return [self._find_near(key, counted, stale) for key in keys]

    def find(self, keys: Sequence[Key], *, counted: bool = True, stale: bool = False) -> list[Lookup]:
        """Look all keys up, a batch a tier, in the order of `keys`. `counted`: memory hits count, and are uses.
        `stale`: what is over and may be served while it is revalidated is found too, where no tier has it alive."""
        found = self.find_near(keys, counted=counted, stale=stale)
        for tier in self.lower:
            missing = [i for i, look in enumerate(found) if look.make is None or look.stale]
            if not missing:
                break
            for i, look in zip(missing, self.find_below(tier, [keys[i] for i in missing]), strict=True):
                if look.make is not None or (not found[i].stale and more_telling(look.reason, found[i].reason)):
                    found[i] = look
        for key, look in zip(keys, found, strict=True):
            if counted and look.stale:
                self.memory.used(key)
        return [self.name_miss(key, look) for key, look in zip(keys, found, strict=True)]

    def _find_near(self, key: Key, counted: bool, stale: bool) -> Lookup:
        entry = self.memory.entry(key, stale=stale)
        if isinstance(entry, MissReason):
            return Lookup(None, reason=entry, detail="" if entry is MissReason.ABSENT else self.memory.name)
        value, make, deadline, frame, _, _ = entry
        over = stale and deadline is not None and deadline <= self._clock.monotonic()
        if counted and not over:
            self.memory.used(key)
        return Lookup(make or (lambda: value), self.memory.name, frame=frame, deadline=deadline, stale=over)

    def find_below(self, tier: Tier, keys: list[Key]) -> list[Lookup]:
        """Look keys up in one of the lower tiers; what is found goes to memory."""
        if owed := self._owed[id(tier)].settle(keys):
            asked = iter(self.find_below(tier, [key for key in keys if key not in owed]))
            held = "what it may hold was dropped, and it has not forgotten it yet"
            down = partial(self.misses.of_tier, tier.name, MissReason.TIER_DOWN, words=held)
            return [down(key) if key in owed else next(asked) for key in keys]
        then = self.changes.now
        try:
            return [self._accept(tier, key, found, then) for key, found in zip(keys, tier.get(keys), strict=True)]
        except Exception as error:  # noqa: BLE001 - a plug-in's tier may raise anything; the caller computes
            self.emit(Failed(tier.name, f"lookup failed: {error!r}"))
            return [self.misses.of_tier(tier.name, MissReason.TIER_DOWN, key, repr(error)) for key in keys]

    def _accept(self, tier: Tier, key: Key, found: Found | MissReason, then: int) -> Lookup:
        missed = partial(self.misses.of_tier, tier.name, key=key)
        if isinstance(found, MissReason):
            return missed(found)
        if found.deadline is not None and found.deadline <= self._clock.monotonic():
            return missed(MissReason.EXPIRED)
        if not self._scopes.gate(key, found.frame):
            self.emit(Failed(tier.name, "refused at the gate: another key's, tenant's or signature's frame", key))
            return missed(MissReason.SIGNATURE)
        try:
            if not found.verified and not found.frame.intact():
                raise CorruptFrameError("its payload fails its checksum")
            make: Make = self._thaw(found.frame).value
            make()  # a decoder that fails must fail here, before the memory tier relies on it
            moved = self.memory.promote(found.frame, found.deadline, lambda: self.changes.since(key, then))
        except UnsupportedValueError as error:
            self.emit(Failed(tier.name, f"cannot be rebuilt here: {error}", key))
            return missed(MissReason.SIGNATURE)
        except (CodecError, CorruptFrameError) as error:
            self.emit(Failed(tier.name, f"cannot be decoded: {error}", key))
            self._drop_from(tier, [key])
            return missed(MissReason.CORRUPT)
        if moved:
            self.emit(Moved(key, tier.name, self.memory.name))
            self._promote_to_disk(tier, found, lambda: self.changes.since(key, then))
        return Lookup(make, tier.name, frame=found.frame, deadline=found.deadline)

    def _promote_to_disk(self, source: Tier, found: Found, outdated: Callable[[], bool]) -> None:
        """What came from another host, and was worth a place in memory, is worth one on this machine's disk."""
        key = found.frame.key
        for tier in self.lower:
            if tier is source:
                return
            if isinstance(tier, WriteBehind) and tier.promote(found.frame, found.deadline, outdated):
                self.emit(Moved(key, source.name, tier.name))

    def name_miss(self, key: Key, look: Lookup = ABSENT) -> Lookup:
        """Tell `absent` apart: evicted or expired earlier, or here under another signature."""
        return self.misses.name(key, look)

    def freeze(self, key: Key, scope: Scope, value: object, cost: float) -> tuple[Frame, Make]:
        """The frame of a value, and the maker of what hits will get. Raises `UnsupportedValueError`."""
        frame = freeze(
            value, key=key, signature=scope.signature, modality=scope.signature.modality, tenant=scope.tenant,
            namespace=scope.namespace, cost=cost, created=self._clock.wall(), chain=scope.chain,
            structures=self._structures,
        )  # fmt: skip
        return frame, self._thaw(frame).value

    def put(
        self, key: Key, scope: Scope, value: object, *, cost: float, ttl: float | None, done: Callable[[], None],
        unless: Callable[[], bool] = lambda: False, follows: bool = False,
    ) -> Kept:  # fmt: skip
        """Store everywhere that takes it. An older value of `key` never outlives a put, even a refused one.

        `cost` in seconds; `ttl` in seconds, None = the lifetime decides. `done` is called once the block is readable
        by other processes and hosts, or cannot be. `follows`: a lookup of `key` missed. Raises `UnsupportedValueError`
        for what cannot be stored at all.
        """
        observer = self.observer
        began = 0 if observer is None else observer.begin(key if follows else None)
        kept = self._put(key, scope, value, cost, ttl, done, unless)
        if observer is not None and began:
            observer.stored(key, scope, kept.size, cost, kept.kept, began)
        return kept

    def _put(
        self, key: Key, scope: Scope, value: object, cost: float, ttl: float | None, done: Callable[[], None],
        unless: Callable[[], bool],
    ) -> Kept:  # fmt: skip
        stored = False

        def finish() -> None:
            if stored and self._signatures is not None:
                self._signatures.note(scope.content_id(key), scope.signature.digest)
            done()

        written = Countdown(finish)
        try:
            frame, make = self.freeze(key, scope, value, cost)
            facts = Facts(frame.size, cost, scope.signature.modality, scope.tenant)
            now = self._clock.monotonic()
            try:
                verdict = self.keeping.judge(key, facts, ttl, now, self.memory.space)
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything; the caller has its value
                self.emit(Failed("cache", f"not stored: {error!r}", key))
                verdict = Until(now)
            if isinstance(verdict, RefuseReason):
                self.drop([key])
                self.emit(Refused(key, "cache", verdict))
                return Kept(make, False, frame.size)
            self.changes.mark([key])
            deadline = verdict.deadline
            if deadline is not None and not deadline > now:  # nor what is no number
                self.drop([key])
                return Kept(make, False, frame.size)
            refused = self.memory.put([frame], [deadline], unless)[0]
            near = kept = self._report(key, self.memory, refused, facts)
            if refused is RefuseReason.INVALIDATED:
                return Kept(make, False, frame.size)
            stored = True
            for tier in self.lower:
                kept = self._put_below(tier, frame, deadline, facts, written, unless) or kept
            self._own_signatures.note(scope.content_id(key), scope.signature.digest)
            if self.lower and not near:  # a reader may have promoted the older value meanwhile
                self.changes.mark([key])
                self.memory.drop([key])
            return Kept(make, kept, frame.size)
        finally:
            written.end()

    def _put_below(
        self, tier: Tier, frame: Frame, deadline: float | None, facts: Facts, written: Countdown,
        unless: Callable[[], bool],
    ) -> bool:  # fmt: skip
        """Whether it took it."""
        key, owed = frame.key, self._owed[id(tier)]
        came = written.one_more()
        try:
            if isinstance(tier, WriteBehind):
                refused = tier.put_then(frame, deadline, came, unless)
            else:
                (refused,) = tier.put([frame], [deadline])
                came()
        except Exception as error:  # noqa: BLE001 - a plug-in's tier may raise anything; it may hold an older value
            came()
            owed.add([key])
            self.emit(Failed(tier.name, f"put failed: {error!r}", key))
            return False
        if refused is None:
            if not isinstance(tier, WriteBehind):  # which forgives when it is written, if it ever is
                owed.forgive(key)
        elif refused is not RefuseReason.INVALIDATED:  # then what the tier holds is newer
            owed.refused(key)
        return self._report(key, tier, refused, facts)

    def _report(self, key: Key, tier: Tier, refused: RefuseReason | None, facts: Facts) -> bool:
        if refused is None:
            self.emit(Stored(key, tier.name, facts.size, facts.cost))
        elif tier is not self.memory:  # which says it itself, with the policy's reasons
            self.emit(Refused(key, tier.name, refused))
        return refused is None

    def drop(self, keys: Iterable[Key]) -> int:
        """Forget keys in every tier; in how many tiers the fullest had them."""
        keys = list(keys)
        self.changes.mark(keys)
        dropped = max(self.memory.drop(keys), *(self._drop_from(tier, keys) for tier in self.lower), 0)
        if self.lower:  # again: a reader may have promoted what it read before the lower tiers forgot it
            self.changes.mark(keys)
            self.memory.drop(keys)
        return dropped

    def _drop_from(self, tier: Tier, keys: list[Key]) -> int:
        try:
            return tier.drop(keys)
        except Exception as error:  # noqa: BLE001 - a plug-in's tier may raise anything; the debt is remembered
            self._owed[id(tier)].add(keys)
            self.emit(Failed(tier.name, f"drop failed: {error!r}", keys[0] if keys else None))
            return 0

    def settle(self) -> None:
        """Try once more to drop what tiers failed to forget; say so where it fails again."""
        for tier in self.lower:
            if left := self._owed[id(tier)].settle_all():
                self.emit(Failed(tier.name, f"{left} blocks could not be dropped and may be served after a restart"))

    def invalidate(self, keys: Sequence[Key]) -> int:
        """Drop keys and what was made from them, here and in every process of every host; how many were held."""
        observer = self.observer
        began = 0 if observer is None else observer.begin()
        dropped = count = 0
        for going in waves(self.keeping.references, keys):
            self._doom(going)
            ordered = [*going]
            for start in range(0, len(ordered), TOLD_AT_ONCE):
                dropped += self.forget(ordered[start : start + TOLD_AT_ONCE])
            for key in going:
                self.emit(Invalidated(key))
            count += len(ordered)
        if observer is not None and began:
            observer.invalidated(count, began)
        return dropped

    def forget(self, keys: list[Key]) -> int:
        """Drop `keys` here and in every process of every host; how many were held. Told first, so that nobody writes
        them any more; dropped; and told again, for whoever read them meanwhile."""
        self._spread.to_machine(keys)
        dropped = self.drop(keys)
        self._spread.to_machine(keys)
        self._spread.to_hosts(keys)
        self.catch_up()
        return dropped

    def hear(self, keys: Sequence[Key] | None) -> None:
        """Other hosts invalidated `keys`; None = nobody knows what."""
        self._spread.hear(keys)

    def replaces(self, key: Key) -> bool:
        """Whether other processes may hold an older value of `key` in their memory."""
        return self._spread.replaces(key)

    def tell_others(self, key: Key) -> None:
        """A newer value of `key` is readable: all others must forget theirs."""
        self._spread.replaced(key)

    def tier_stats(self) -> dict[str, TierStats]:
        """Gauges by tier, nearest first."""
        self.memory.maintain()
        return {tier.name: tier.stats() for tier in (self.memory, *self.lower)}

    def check_integrity(self) -> None:
        """Raises `IntegrityError`."""
        self.memory.maintain()
        self.memory.check_integrity()
        for tier in self.lower:
            for held in tier.scan():
                if held.size < 0:
                    raise IntegrityError(f"{tier.name} holds {held.size} bytes for {held.key}")

    def close(self) -> None:
        """Close every tier, memory last: the lower ones still write; then the file that invalidations go through."""
        self.settle()
        self.each(lambda tier: tier.close(), [*self.lower, self.memory])
        self._spread.close()

    def each(self, action: Callable[[Tier], None], tiers: Sequence[Tier] | None = None) -> None:
        """Do something to every tier; failures become events."""
        for tier in (self.memory, *self.lower) if tiers is None else tiers:
            try:
                action(tier)
            except (MMCacheError, OSError) as error:
                self.emit(Failed(tier.name, str(error)))
