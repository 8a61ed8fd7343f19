"""Who takes a primary's place when it dies in the middle of a step that needs it."""

from __future__ import annotations

from mmcache.model.errors import ScaleError
from mmcache.scale.present import Cancelled, Present

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
