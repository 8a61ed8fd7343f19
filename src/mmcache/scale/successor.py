"""Who takes a primary's place when it dies in the middle of a step that needs it."""

from __future__ import annotations

from collections.abc import Sequence

from mmcache.model.errors import ScaleError
from mmcache.scale.present import Cancelled, Present
from mmcache.scale.views import View

_DEAD = frozenset({"fail", "noaddr"})
_ELECTION_SECONDS = 10.0
"""Beside the time after which a node is taken for dead, twice: doubted by one, then by most."""


def successor(
    name: str, witness: str, present: Present, cancelled: Cancelled, node_timeout_seconds: float
) -> str | None:
    """The replica that is primary now; None where it still serves itself, or nobody takes its place in time.

    witness: who must have heard of it, too.
    """
    id_ = present.identity(name)
    replicas = [other for other, node in present.seen.nodes.items() if node.primary == id_]
    found: list[str] = []

    def taken() -> bool:
        found.extend(other for other in replicas if _is_primary(other, witness, present))
        return bool(found)

    if not replicas or (not taken() and _answers(name, present)):
        return None
    present.patiently(taken, cancelled, 2 * node_timeout_seconds + _ELECTION_SECONDS)
    return found[0] if found else None


def tell_owner(slots: Sequence[int], owner: str, name: str, present: Present) -> None:
    """A node to which a slot is open hears of no new owner by gossip, as Redis has it.

    It goes on to believe in one that is dead, and while a slot is a dead one's it serves nothing at all, nor takes what
    is moved to it. Raises `ScaleError`.
    """
    id_, view = present.identity(owner), present.view(name)
    if lost := [slot for slot in slots if _lost(view, slot)]:
        if strange := set(lost) - present.view(owner).me.slots:
            raise ScaleError(f"slot {min(strange)} is {owner}'s no more")
        present.chorus(name).insist([[("CLUSTER", "SETSLOT", slot, "NODE", id_)] for slot in lost])


def _lost(view: View, slot: int) -> bool:
    """Whether it is nobody's who could serve it, in this view."""
    owner = view.owner(slot)
    return owner is None or bool(view.others[owner].primary or view.others[owner].flags & _DEAD)


def _is_primary(name: str, witness: str, present: Present) -> bool:
    try:
        me, known = present.view(name).me, present.view(witness).others
        return not me.primary and me.id in known and not known[me.id].primary
    except ScaleError:
        return False


def _answers(name: str, present: Present) -> bool:
    member = present.member(name)
    try:
        return bool(present.access.ask(member.host, member.port, "PING"))
    except ScaleError:
        return False
