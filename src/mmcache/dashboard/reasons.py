"""What each of the eleven miss reasons means for one lookup, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mmcache.dashboard.moved import Moved
from mmcache.dashboard.rows import SpanRow
from mmcache.dashboard.telling import ago, clock, named


@dataclass(frozen=True)
class Known:
    """What is known of a miss."""

    span: SpanRow
    before: SpanRow | None
    """What it is held against: the last hit of the input, or when it was stored."""
    stored: SpanRow | None
    """When the input was stored last, if that was recorded."""
    moved: Sequence[Moved]
    sentence: str
    """About what moved, where there is more to say than its name."""

    @property
    def detail(self) -> str:
        """` (evicted from memory: space)`, or nothing."""
        return f" ({named(self.span.detail, 160)})" if self.span.detail else ""

    def last(self) -> list[str]:
        """When it was last here, and where."""
        one = self.before
        if one is None:
            return []
        did = f"hit ({named(one.tier)})" if one.lookup else "was stored"
        apart = ago(max(0.0, self.span.start - one.start))
        return [f"It last {did} at {clock(one.start)} in instance {named(one.instance)}, {apart} before."]


def _absent(known: Known) -> list[str]:
    if known.span.detail.startswith("invalidated"):
        why = "It was stored, and was invalidated: what it rests on changed. That is as it should be."
    elif known.span.detail.startswith("refused"):
        why = f"It was computed before and not kept{known.detail}: see admission, quotas and the tier's limit."
    elif known.before is not None and known.before.signature != known.span.signature:
        why = "This input was never stored for this signature, as far as is recorded; it was for another."
        if moves := _causes(known):
            why += f" {moves}."
    elif known.before is not None and known.before.instance != known.span.instance:
        why = (
            "It was in another process and not in this one: it lies where only that one finds it, or it left and "
            "nobody remembers how. What a shared tier holds, all processes find."
        )
    elif known.before is not None:
        why = "It was here and nobody remembers how it left: the process restarted, or it is too long ago."
    else:
        why = "This input was never stored, as far as is recorded. New inputs miss once; many of them are a flood."
    return [why, *known.last()]


def _expired(known: Known) -> list[str]:
    age = "" if known.stored is None else ago(max(0.0, known.span.start - known.stored.start))
    if known.span.detail.startswith("older than"):
        lines = ["It is kept, and it is older than this caller takes: no `ttl` changes that, the caller's limit does."]
        return lines + ([f"It had been stored at {clock(known.stored.start)}, {age} before."] if known.stored else [])
    lines = [f"Its deadline was over, or it was older than this caller takes{known.detail}."]
    if known.stored is not None:
        lines.append(f"It had been stored at {clock(known.stored.start)}, {age} before: a longer `ttl` would have hit.")
    left = known.before.attributes.get("cache.ttl.remaining_ms") if known.before is not None else None
    if known.before is not None and known.before.lookup and isinstance(left, int | float):
        lines.append(f"At its last hit, {clock(known.before.start)}, it had {ago(left / 1000)} left.")
    elif known.stored is None:
        lines += ["If results stay right for longer, raise `ttl`.", *known.last()]
    return lines


def _evicted(known: Known) -> list[str]:
    tier, _, why = (named(part) for part in known.span.detail.removeprefix("evicted from ").partition(": "))
    return [
        f"It was here and left{' ' * bool(tier)}{tier} for want of room{f' ({why})' if why else ''}.",
        *known.last(),
        "Give the tier more room, or whoever fills it a quota; `mmcache advise` says how much room would pay.",
    ]


def _causes(known: Known) -> str:
    return "; ".join(
        f"{named(one.component)} was {named(one.was) or '(none)'}, is {named(one.now) or '(none)'}"
        for one in known.moved
        if not one.follows
    )


def _signature(known: Known) -> list[str]:
    if moves := _causes(known):
        lines = [f"This input is stored for another signature: {moves}."]
    else:
        lines = [f"This input is stored for another signature{known.detail}."]
    if known.sentence:
        lines.append(f"{named(known.sentence[:1].upper() + known.sentence[1:], 400)}.")
    where = named(known.span.instance)
    then = f"If the change is meant, each input misses once; if not, roll it back in instance {where}."
    return [*lines, *known.last(), then]


def _simple(what: str, then: str) -> Callable[[Known], list[str]]:
    return lambda known: [f"{what}{known.detail}.", *known.last(), then]


_TOLD: dict[str, Callable[[Known], list[str]]] = {
    "absent": _absent,
    "expired": _expired,
    "evicted": _evicted,
    "signature": _signature,
    "denied": _simple(
        "The caller may not have it, or the shared tier refuses this user",
        "Check the tenant's rule, the user's rights in the shared tier, and that its password is the current one.",
    ),
    "corrupt": _simple(
        "It was found, and its bytes fail the checksum, so it was not served",
        "It is computed and stored anew. Check that host's disk and memory; `mmcache verify` reads all blocks.",
    ),
    "bypassed": _simple(
        "The cache was not asked, because that was wanted",
        "Look for `no-cache` or `bypass=True` of the caller, a mode that is off, or the net-benefit guard.",
    ),
    "abstained": _simple(
        "Something near is stored, and it is not trusted to be the answer",
        "It is computed, and the comparison teaches. More is served as evidence comes in, or with a larger error "
        "limit: see `mmcache semantic`.",
    ),
    "timeout": _simple(
        "A tier did not answer in time, so the result was computed",
        "Check the network to that tier, and its load; the time limit is in its settings.",
    ),
    "tier-down": _simple(
        "A tier is not there, so what it holds could not be used",
        "Check that it runs and can be reached from this instance; it is asked again by itself.",
    ),
    "stale-lease": _simple(
        "This process may have missed an invalidation, so it trusts nothing that it cannot check",
        "It comes back by itself as soon as the shared tier answers; check the connection of this instance.",
    ),
}


def tell(reason: str, known: Known) -> list[str]:
    """Sentences about a miss: what happened, what it was before, what to do next."""
    return _TOLD.get(reason, _simple(f"A miss of the reason {named(reason)}", "Look at the span's attributes."))(known)
