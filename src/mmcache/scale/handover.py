"""A replica takes its primary's place: the server's own `CLUSTER FAILOVER`, and how long to leave it alone after that.

The primary serves no writes meanwhile, and the replica has all of them before it begins: nothing is lost. `TAKEOVER`
asks nobody, waits for nothing and is only for a primary that is gone; one that failed to hand over is never overtaken.
"""

from __future__ import annotations

from mmcache.model.errors import ScaleError
from mmcache.scale.epochs import read_epochs
from mmcache.scale.present import Cancelled, Present
from mmcache.scale.steps import Failover

_ATTEMPT_SECONDS = 6.0
"""The server gives its own attempt up after five (`cluster-manual-failover-timeout`), whatever the node timeout is."""
_MOST_SECONDS = 60.0
"""For a replica that was not let: whatever else is to be done waits, too."""


def failover(step: Failover, present: Present, cancelled: Cancelled) -> None:
    """The replica is primary at its end. Raises `ScaleError`."""
    node = present.contact(step.replica)
    if _taken(step.replica, present):
        return
    if step.taken:
        _unchanged(step.replica, present)
        node.ask("CLUSTER", "FAILOVER", "TAKEOVER")
        longest = max(_ATTEMPT_SECONDS, present.access.timeout_seconds)
        if not present.patiently(lambda: _taken(step.replica, present), cancelled, longest) and not cancelled():
            raise ScaleError(f"{step.replica} did not take its primary's place in {longest:g} s")
        return
    before = read_epochs(step.replica, present).heard
    node.ask("CLUSTER", "FAILOVER")
    if present.patiently(lambda: _taken(step.replica, present), cancelled, _ATTEMPT_SECONDS) or cancelled():
        return
    told = f"{step.replica} did not take its primary's place in {_ATTEMPT_SECONDS:g} s"
    if read_epochs(step.replica, present).heard == before:
        raise ScaleError(f"{told}: its primary does not know it yet, or it has not caught up")
    # It has asked for votes, for which it took a new epoch, and has too few. It asks again after four times the node
    # timeout; whoever makes it try sooner stops the writes of its clients for nothing.
    rest = max(0.0, min(_MOST_SECONDS, 4 * node.node_timeout_ms() / 1000 + 1.0) - _ATTEMPT_SECONDS)
    over = present.patiently(lambda: _over(step.replica, present), cancelled, rest)
    if over and _taken(step.replica, present):
        return
    again = ", and its primary is none any more, or gone" if over else "; it can ask them again now"
    raise ScaleError(f"{told}: too few of the primaries voted for it{'' if cancelled() else again}")


def _taken(replica: str, present: Present) -> bool:
    return not present.view(replica).me.primary


def _unchanged(replica: str, present: Present) -> None:
    """It, and all that follow the same primary, still do: none was elected since the look. Raises `ScaleError`."""
    primary = present.seen.nodes[replica].primary
    for name in [other for other, node in present.seen.nodes.items() if node.primary == primary]:
        if present.view(name).me.primary != primary:
            raise ScaleError(f"{name} replicated {primary[:8]} when it was looked at; it will be looked at again")


def _over(replica: str, present: Present) -> bool:
    """It has become a primary after all, or its primary answers no more, and then something else is to be done."""
    primary = present.named(present.seen.nodes[replica].primary)
    if _taken(replica, present) or primary is None:
        return True
    try:
        return bool(present.view(primary).me.primary)
    except ScaleError:
        return True
