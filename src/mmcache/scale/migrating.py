"""Slots go key by key: MIGRATE, as all servers have it. A slot is open meanwhile: both sides answer for it.

While a slot is open, the source answers for the keys that it has and sends clients to the target for all others
(`ASK`). So whatever is new is at the target, and whatever the source has, it has the last word on: a copy of it at the
target is left over from a MIGRATE of which the end was not heard, and is written over (`REPLACE`). The target is told
first that the slot is its own now, then the source, then the others: in between nobody is sent in a circle.

This may be cut off anywhere. Done again, it goes on where it was. One thing is not mended then: where the source did
not hear of the end of a MIGRATE, and a client deletes the key there before it is sent anew, the copy at the target is
the key again; nothing tells it from one that went over. A block of mmcache it befalls only while that is computed anew:
its scripts name the block, its lease and its fence, and an open slot refuses who names several keys unless all are
there.

A source forgets a key when the target has it, not when the target's replica has. So the next load is sent, and a slot
closed, when one has: a target that dies takes one load with it at most, and that only before it has passed it on. To
copy first (MIGRATE COPY) and delete when the replica has it would lose nothing, but a key that a client deletes at the
source meanwhile would be answered from the copy. Any order has one of the two: whoever dies between "the replica has
it" and "the source forgets it" leaves two copies, of which one can be deleted, and nobody knows. To lose a block is the
lesser evil.

The move of a target that dies goes on to the replica that takes its place. Redis, and Valkey before 8, do not tell a
replica which slots are open: where whoever moves them dies with the target, nobody knows what has gone ahead to the
replica; where the source dies, its replica answers for what has gone ahead as if it were not there, and who drops a
block is told that it is gone. All that is lost, `GROUP_BYTES` or so, and discarded wherever it lies, lest it comes back
when it has been dropped: a target's keys are believed only while the source says that the slot is open to that target.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from mmcache.model.errors import ScaleError, TierError
from mmcache.scale.access import Contact
from mmcache.scale.epochs import await_rank
from mmcache.scale.present import Cancelled, Present
from mmcache.scale.replication import Replication
from mmcache.scale.strays import discard, unlink
from mmcache.scale.successor import successor, tell_owner
from mmcache.scale.talk import Command, Word
from mmcache.scale.views import fields, whole

LOAD_BYTES = 256 << 10
"""That the source sends in one go. It serves nobody meanwhile, and a target that dies may take as much with it."""
LOAD_KEYS = 200
REST_SECONDS = 0.1
"""The source answers its clients after a load for as long as that took, at most for so long."""
GROUP_SLOTS = 64
"""That are open at a time, if they are empty (to close one is told to every node, and few can be served meanwhile)…"""
GROUP_BYTES = 8 << 20
"""…and if they are not, so many bytes: what has begun is brought to its end before `cancelled` is heard."""
_ATTEMPTS = 3
_BYTES_A_MS = 10_000
"""That a slow network still brings over."""


class Sides:
    """A source and a target, and what is to be known of both to move keys. Raises `ScaleError`."""

    def __init__(self, present: Present, source: str, target: str) -> None:
        self.present, self.names = present, (source, target)
        self.source, self.target = present.contact(source), present.contact(target)
        self.source_id, self.target_id = present.identity(source), present.identity(target)
        found = present.view(source).others.get(self.target_id)
        member = present.member(target)
        known = found is not None and found.host and found.port
        # As the source itself finds it: another network than ours may lie between them.
        self.place: tuple[Word, ...] = (found.host, found.port) if found and known else (member.host, member.port)
        self.login = present.access.migrating()
        self.node_timeout_ms = self.source.node_timeout_ms()
        self.unsure: list[bytes] = []
        """Keys that the source has, though the target may, too."""
        self.unwanted: list[bytes] = []
        """Keys that were discarded at the target. A replica that missed it may take its place."""

    def open(self, slots: Sequence[int], inherited: Sequence[bytes] | None = None) -> None:
        """The target first, so that nobody is sent to one who does not expect him.

        What the target has already is discarded, unless the source says that the slot is open to it: only then is it
        what went ahead, and has been answered for since. A target may say so of itself though it was cut off before it
        was cleared, or restarted with keys that are not its own; and a replica of Redis that took the source's place
        has answered for the keys that went ahead as if they were not there, also for those that clients dropped.

        inherited: the target's keys came to a primary whose place it took, but for these. The source has them still, or
        has dropped them, or that primary was not to have them.
        """
        source, target = map(self.present.chorus, self.names)
        tell_owner(slots, *self.names, self.present)
        target.insist([[("CLUSTER", "SETSLOT", slot, "IMPORTING", self.source_id)] for slot in slots])
        if inherited is None:
            begun = self.present.view(self.names[0]).migrating
            self.unwanted = discard([slot for slot in slots if begun.get(slot) != self.target_id], self.target)
        else:
            self.unwanted = list(inherited)
            unlink(inherited, self.target)
        if self.unwanted:  # whoever takes its place would have it still, as if it had gone ahead
            with self.replication() as replication:
                replication.caught_up()
        source.insist([[self._opened(slot)] for slot in slots])

    def replication(self) -> Replication:
        """Of the target."""
        return Replication(self.present, self.names[1], self.node_timeout_ms / 1000)

    def remaining(self, slots: Sequence[int]) -> dict[int, list[bytes]]:
        """Some keys that the source still has, by slot. It has been told once more that the slot is open.

        A replica that took its place meanwhile would not know, and would take new keys instead of sending them on.
        """
        asked = [[self._opened(slot), ("CLUSTER", "GETKEYSINSLOT", slot, LOAD_KEYS)] for slot in slots]
        replies = self.present.chorus(self.names[0]).insist(asked)
        if not all(isinstance(keys, list) and all(isinstance(key, bytes) for key in keys) for _, keys in replies):
            raise ScaleError(f"{self.source.place}: CLUSTER GETKEYSINSLOT names no keys")
        return {slot: keys for slot, (_, keys) in zip(slots, replies, strict=True) if keys}

    def close(self, slots: Sequence[int]) -> None:
        """They are the target's, and everyone is told."""
        await_rank(*self.names, self.present, lambda: False)
        closing: list[Command] = [("CLUSTER", "SETSLOT", slot, "NODE", self.target_id) for slot in slots]
        source, target = map(self.present.chorus, self.names)
        target.insist([[command] for command in closing])
        replies = source.tell([[command] for command in closing])
        view = self.present.view(self.names[0])
        if view.me.slots & set(slots):  # else it has become a replica with its last slot, and heard it by gossip
            refused = next((str(reply) for (reply,) in replies if isinstance(reply, TierError)), "it does not say why")
            raise ScaleError(f"{self.source.place} does not give a slot away: {refused}")
        self.present.tell_others(self.names, closing)

    def loads(self, parcels: Sequence[tuple[int, Sequence[bytes], int]]) -> None:
        """Each is the keys of one slot, and their bytes. Raises `ScaleError`."""
        size = sum(parcel[2] for parcel in parcels)
        patience = self._patience_ms(size)
        commands = [self._migrate(keys, patience) for _, keys, _ in parcels]
        replies = self.source.tell(commands, self._seconds(patience, len(commands)))
        errors = [(keys, reply) for (_, keys, _), reply in zip(parcels, replies, strict=True)
                  if isinstance(reply, TierError)]  # fmt: skip
        self._again([key for keys, error in errors for key in keys if str(error).startswith("IOERR")], patience)
        for _, error in errors:
            if not str(error).startswith("IOERR"):
                raise ScaleError(f"{self.source.place}: MIGRATE: {error}") from error

    def _again(self, keys: Sequence[bytes], patience: int) -> None:
        """It was not heard whether they arrived. Those that the source still has are sent anew, one by one.

        One that a client deletes in between is deleted at the target, too: it may have got there.
        """
        found = self.source.tell([("EXISTS", key) for key in keys]) if keys else []
        self.unsure = [key for key, here in zip(keys, found, strict=True) if here == 1]
        while self.unsure:
            key = self.unsure[0]
            for attempt in range(1, 1 + _ATTEMPTS):
                (reply,) = self.source.tell([self._migrate([key], patience)], self._seconds(patience, 1))
                if reply == "NOKEY":
                    self.target.tell([("ASKING",), ("DEL", key)])
                if not isinstance(reply, TierError):
                    break
                if attempt == _ATTEMPTS or not str(reply).startswith("IOERR"):
                    raise ScaleError(f"{self.source.place}: MIGRATE: {reply}") from reply
            del self.unsure[0]

    def _opened(self, slot: int) -> Command:
        return "CLUSTER", "SETSLOT", slot, "MIGRATING", self.target_id

    def _migrate(self, keys: Sequence[bytes], patience_ms: int) -> Command:
        return ("MIGRATE", *self.place, "", 0, patience_ms, "REPLACE", *self.login, "KEYS", *keys)

    def _patience_ms(self, size: int) -> int:
        """The source is deaf while it waits for the target: not so long that it is taken for dead, if that can be."""
        return max(500, min(5000, self.node_timeout_ms // 2)) + size // _BYTES_A_MS

    def _seconds(self, patience_ms: int, commands: int) -> float:
        return self.present.access.timeout_seconds + 2 * patience_ms * commands / 1000


def migrate(slots: Sequence[int], source: str, target: str, present: Present, cancelled: Cancelled) -> None:
    """Slots that the source serves. Between groups of them `cancelled` ends it. Raises `ScaleError`."""
    if not await_rank(source, target, present, cancelled):
        return
    sides = Sides(present, source, target)
    for group in _groups(slots, sides.source):
        if cancelled():
            return
        sides.open(group)
        try:
            _carry(group, sides)
        except ScaleError:
            heir = successor(sides.names[1], source, present, cancelled, sides.node_timeout_ms / 1000)
            if heir is None or not await_rank(source, heir, present, cancelled):
                raise
            old, sides = sides, Sides(present, source, heir)
            left = [slot for slot in group if slot in present.view(source).me.slots]
            sides.open(left, inherited=[*old.unsure, *old.unwanted])
            _carry(left, sides)


def _carry(slots: Sequence[int], sides: Sides) -> None:
    """Open slots, with all their keys, to where they are closed."""
    with sides.replication() as replication:
        left = slots
        while left := list(remaining := sides.remaining(left)):
            for load in _loads(remaining, sides.source):
                replication.caught_up()
                began = time.monotonic()
                sides.loads(load)
                time.sleep(min(REST_SECONDS, time.monotonic() - began))
        replication.caught_up()
    sides.close(slots)


def _groups(slots: Sequence[int], source: Contact) -> Iterator[list[int]]:
    """Empty ones first: they are quick, and what is left to others then is less."""
    told = source.insist([("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots])
    counts = {slot: count if isinstance(count, int) else 1 for slot, count in zip(slots, told, strict=True)}
    empty = [slot for slot in slots if not counts[slot]]
    for at in range(0, len(empty), GROUP_SLOTS):
        yield empty[at : at + GROUP_SLOTS]
    group: list[int] = []
    room = GROUP_BYTES
    mean = _mean_bytes(source)
    for slot in slots:
        if not counts[slot]:
            continue
        group.append(slot)
        room -= counts[slot] * mean
        if room <= 0 or len(group) == GROUP_SLOTS:
            yield group
            group, room = [], GROUP_BYTES
    if group:
        yield group


Parcel = tuple[int, Sequence[bytes], int]


def _loads(remaining: dict[int, list[bytes]], source: Contact) -> Iterator[list[Parcel]]:
    """What is sent in one go, at most `LOAD_BYTES` or one key. Commands that came together are done together."""
    keys = [(slot, key) for slot, some in remaining.items() for key in some]
    for at in range(0, len(keys), LOAD_KEYS):
        some = keys[at : at + LOAD_KEYS]
        sizes = source.tell([("MEMORY", "USAGE", key) for _, key in some])
        load: dict[int, tuple[list[bytes], int]] = {}
        total = 0
        for (slot, key), told in zip(some, sizes, strict=True):
            size = told if isinstance(told, int) else 0  # it is gone, or we may not ask
            if load and total + size > LOAD_BYTES:
                yield [(each, *parcel) for each, parcel in load.items()]
                load, total = {}, 0
            of_slot, before = load.get(slot, ([], 0))
            load[slot] = [*of_slot, key], before + size
            total += size
        if load:
            yield [(each, *parcel) for each, parcel in load.items()]


def _mean_bytes(source: Contact) -> int:
    """Of a key; a guess, for how many slots to open at a time."""
    keys, info = source.insist([("DBSIZE",), ("INFO", "memory")])
    used = whole(fields(info, "INFO").get("used_memory", ""))
    return used // max(1, keys) if isinstance(keys, int) else LOAD_BYTES
