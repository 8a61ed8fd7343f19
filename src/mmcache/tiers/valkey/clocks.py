"""Deadlines between machines, without believing any wall clock. Pure: every reading is an argument.

A deadline is kept in the own time of the machine that set it, which never steps. Machines share no such time, but all
can read the server's clock; so each measures by how much that clock is ahead of its own time (its *lead*, after
F. Cristian, "Probabilistic clock synchronization", 1989), and the leads stand on the server, in one ledger:

    deadline here = deadline there + lead there − lead here

The server's clock is only where the two meet, so its skew and its drift cancel. When it steps, all leads change by the
same amount: whoever notices first, on any reading, corrects the leads of the machines whose leads were right together
with his own (a *group*), also of those that have left, in one compare-and-set. A machine that comes later is in no
group until one that has followed the clock since before it came finds the clock unmoved, and takes it in. What no
machine can vouch for is not translated: a clock may have been set while nobody looked.

A clock that is suddenly *behind* was set back: no machine's own time runs ahead. One that is suddenly ahead was set, or
the machine that reads it was paused (a suspended virtual machine cannot know). So a machine alone moves its own lead
only and leaves its group; once a second one of that group has seen the same jump, it was the server.

What a machine knows stays right while it does not look: own times never step, so the difference of two leads of one
turn does not change, whatever the server's clock does. So looks may be rare (`watch`): a quarter of a second apart
where the tier is in use. What changes meanwhile is only noticed later: a machine that is new to the ledger is missed as
`abstained` until then, and a second look is taken for it at once. Only after a minute without any (the ledger's node
is down) nothing of others is translated, as drift adds up.

Not seen: two steps that undo one another between two looks of one machine, steps of less than `NOISE`, a step in the
very moment in which the only witness was paused. A machine that was paused unawares lets what it stored live on by its
own clock, as it does in its own memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

NOISE = 0.03
"""Seconds by which a lead may be off before that is called a step."""
RATE = 1e-4
"""Relative drift of two clocks that is taken for ordinary: 100 ppm, 0.36 s an hour."""
WIDEST = 0.125
"""Seconds: a lead known less well than this is no use; half a round trip must be shorter."""
_DRIFT = 0.1
"""Seconds of possible drift since the last look beyond which drift and step cannot be told apart."""
_RENEW = 0.02
"""Seconds of possible drift after which a lead is measured anew."""
_VAGUE = 0.005
"""Seconds: a lead known less well than this is measured anew when it can be known much better."""
_LAST_TURN = 2**53
MOST_LEADS = 128
"""Of a ledger; the longest unheard-of go first, and what those machines stored is missed."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The server's clock as one round trip saw it; seconds."""

    sent: float
    """Own time before the question went out."""
    received: float
    """Own time when the answer was here."""
    server: float

    @property
    def lead(self) -> float:
        """Server's clock minus own time, give or take `error`."""
        return self.server - (self.sent + self.received) / 2

    @property
    def error(self) -> float:
        """Half the round trip."""
        return (self.received - self.sent) / 2


class Lead(msgspec.Struct, frozen=True, array_like=True):
    """One machine's line of the ledger."""

    machine: bytes
    group: int
    seconds: float
    """The server's clock minus the machine's own time."""
    error: float
    at: float
    """The machine's own time when it measured."""
    turn: int
    """The turn of the ledger in which this was written or corrected: what it says was right then."""


class Ledger(msgspec.Struct, frozen=True, array_like=True):
    """All leads. Replaced whole, by compare-and-set, so that turns are one order for all."""

    turn: int = 0
    leads: tuple[Lead, ...] = ()

    def find(self, machine: bytes) -> Lead | None:
        """The latest lead of a machine."""
        return max((lead for lead in self.leads if lead.machine == machine), key=lambda lead: lead.turn, default=None)

    def vouched(self, group: int) -> int:
        """The last turn in which a member of the group found its leads right."""
        return max((lead.turn for lead in self.leads if lead.group == group), default=-1)

    def encode(self) -> bytes:
        """msgpack."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(raw: bytes) -> Ledger:
        """What cannot be read, or is not sane, is an empty ledger: it is begun anew, and nothing is vouched for."""
        try:
            ledger = _decode(raw)
        except msgspec.MsgspecError:
            return Ledger()
        sane = all(map(math.isfinite, (x for lead in ledger.leads for x in (lead.seconds, lead.error, lead.at))))
        sane = sane and 0 <= ledger.turn < _LAST_TURN
        return ledger if sane and len(ledger.leads) <= MOST_LEADS else Ledger()


_decode = msgspec.msgpack.Decoder(Ledger).decode


def translate(ledger: Ledger, here: bytes, there: bytes, deadline: float) -> float | None:
    """A deadline of machine `there` in the own time of `here`; None when nobody can vouch for it.

    At most as late as the two leads may be wrong, so never early: by under 0.4 s, a few hundredths on a quick network.
    """
    if here == there:
        return deadline
    mine, theirs = ledger.find(here), ledger.find(there)
    if mine is None or theirs is None or mine.group != theirs.group:
        return None
    return deadline + theirs.seconds - mine.seconds + theirs.error + mine.error + 3 * NOISE


def follow(ledger: Ledger, here: bytes, reading: Reading) -> tuple[Ledger, bool]:
    """What the ledger must become after a reading, and whether `here` may translate by it.

    The ledger must have been fetched before the reading was taken, and be replaced only if it is still the same: then
    take a new reading. It is the same object when nothing is to be changed.
    """
    mine = ledger.find(here)
    if reading.error > WIDEST:
        return ledger, False
    if mine is None:
        return _begin(ledger, here, reading, leave=False), True
    drift = RATE * max(0.0, reading.received - mine.at)
    moved = reading.lead - mine.seconds
    known = mine.error + reading.error + min(drift, _DRIFT)
    if abs(moved) <= known + NOISE:
        better = mine.error > _VAGUE and reading.error < mine.error / 4
        renew = abs(moved) <= known and (drift > _RENEW or better)
        return _steady(ledger, mine, reading if renew else None), True
    if drift > _DRIFT:
        return _begin(ledger, here, reading, leave=False), True
    if moved < 0:
        return _stepped(ledger, mine, reading, known), True
    others = _jumped_alike(ledger, mine, moved, known)
    if others is not None:
        return _stepped(ledger, mine, reading, known, others), True
    return _begin(ledger, here, reading, leave=True), True


def _renewed(mine: Lead, reading: Reading, group: int, turn: int) -> Lead:
    return Lead(mine.machine, group, reading.lead, reading.error, reading.received, turn)


def _begin(ledger: Ledger, here: bytes, reading: Reading, *, leave: bool) -> Ledger:
    """A group of its own. One that leaves is remembered where it was, for others that jump alike."""
    turn, mine = ledger.turn + 1, ledger.find(here)
    rest = [lead for lead in ledger.leads if lead.machine != here or (leave and lead is mine)]
    return _bounded(turn, [*rest, Lead(here, turn, reading.lead, reading.error, reading.received, turn)])


def _steady(ledger: Ledger, mine: Lead, renew: Reading | None) -> Ledger:
    """The clock has not stepped since `mine` was written: nor since any group was vouched for after that."""
    turn = ledger.turn + 1
    fresh = {
        lead.group for lead in ledger.leads if lead.group != mine.group and ledger.vouched(lead.group) > mine.turn
    }  # fmt: skip
    if not fresh and renew is None:
        return ledger
    leads = [
        msgspec.structs.replace(lead, group=mine.group) if lead.group in fresh else lead
        for lead in ledger.leads
        if renew is None or lead is not mine
    ]
    if renew is not None:
        leads.append(_renewed(mine, renew, mine.group, turn))
    return _bounded(turn, leads)


def _stepped(ledger: Ledger, mine: Lead, reading: Reading, known: float, others: int | None = None) -> Ledger:
    """The server's clock was set: all leads of the group change alike; `others` is a group that knew before."""
    turn = ledger.turn + 1
    by, leads = reading.lead - mine.seconds, [_renewed(mine, reading, mine.group, turn)]
    for lead in ledger.leads:
        if lead is mine:
            continue
        if lead.group == others:
            leads.append(msgspec.structs.replace(lead, group=mine.group))
        elif lead.group != mine.group:
            leads.append(lead)
        elif lead is ledger.find(lead.machine) and lead.error + known <= WIDEST:
            leads.append(
                Lead(lead.machine, lead.group, lead.seconds + by, lead.error + known, lead.at, turn)
            )  # fmt: skip
    return _bounded(turn, leads)


def _jumped_alike(ledger: Ledger, mine: Lead, moved: float, known: float) -> int | None:
    """The group of a machine that left ours with the same jump since we looked."""
    for old in ledger.leads:
        new = ledger.find(old.machine)
        if old.group != mine.group or new is None or new.group == mine.group or new.turn <= mine.turn:
            continue
        if abs(new.seconds - old.seconds - moved) <= known + old.error + new.error + 2 * NOISE:
            return new.group
    return None


def _bounded(turn: int, leads: Iterable[Lead]) -> Ledger:
    """One lead a machine and group, the latest; the longest unheard-of beyond the bound are forgotten."""
    latest: dict[tuple[bytes, int], Lead] = {}
    for lead in sorted(leads, key=lambda lead: lead.turn):
        latest[lead.machine, lead.group] = lead
    kept = sorted(latest.values(), key=lambda lead: lead.turn)
    return Ledger(turn, tuple(kept[-MOST_LEADS:]))
