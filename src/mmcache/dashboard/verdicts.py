"""What a person on call reads of a cause: what happened, where, since when, and what to do next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mmcache.dashboard.rows import KeyRow
from mmcache.dashboard.swap import Swap
from mmcache.dashboard.telling import Where, clock, count, named, pace, percent, place


@dataclass(frozen=True)
class Facts:
    """What is known of a cause. Pairs: in the baseline, now."""

    where: Where
    share: float
    misses: float = 0.0
    since: float | None = None
    seconds: tuple[float, float] = (1.0, 1.0)
    lookups: tuple[float, float] = (0.0, 0.0)
    missed: tuple[float, float] = (0.0, 0.0)
    matched: tuple[float, float] = (0.0, 0.0)
    """Misses for its own reason."""
    detail: str = ""
    """Any one's."""
    keys: Sequence[KeyRow] = ()
    swap: Swap | None = None
    others: bool = False
    """Other causes were found."""

    @property
    def there(self) -> str:
        """Where, and since when."""
        return place(self.where) + (f", since {clock(self.since)}" if self.since is not None else "")

    @property
    def cost(self) -> str:
        """`812 more misses, 58 % of the fall.`"""
        return f"{count(self.misses)} more misses, {percent(self.share)} of the fall."

    @property
    def of_lookups(self) -> str:
        """`31 % of lookups there, 2 % before`."""
        before, now = (part / all_ if all_ else 0.0 for part, all_ in zip(self.matched, self.lookups, strict=True))
        return f"{percent(now)} of lookups there, {percent(before)} before"


def _signature(facts: Facts) -> str:
    swap = facts.swap
    if swap is None or not swap.moved:
        return (
            f"Stored for another signature ({facts.there}): {facts.of_lookups}. {facts.cost} "
            "Open an example to see what it is stored for."
        )
    first = [one for one in swap.moved if not one.follows]
    said = "; ".join(
        f"{named(one.component)} was {named(one.was) or '(none)'}, is {named(one.now) or '(none)'}" for one in first
    )
    return (
        f"Another signature ({facts.there}): {said}. What was stored for the old one is not used. {facts.cost} "
        "If the change is meant, the misses end as results are stored anew; if not, roll it back there."
    )


def _flood(facts: Facts) -> str:
    before, now = (part / length if length else 0.0 for part, length in zip(facts.lookups, facts.seconds, strict=True))
    grown = f"{now / before:.1f} times as many lookups" if before else "lookups that were not there before"
    missed = facts.missed[1] / facts.lookups[1] if facts.lookups[1] else 0.0
    keys, looked = sum(row.keys for row in facts.keys), sum(row.lookups for row in facts.keys)
    inputs = f", for {count(keys)} different keys among those recorded" if keys and looked else ""
    return (
        f"Other traffic ({facts.there}): {grown} ({pace(now)}, {pace(before)} before), {percent(missed)} of them "
        f"misses{inputs}. {facts.cost} The others' hit ratio is not changed by it, unless their blocks are evicted. "
        "Give a batch its own tenant with a quota, or let it bypass the cache."
    )


def _lull(facts: Facts) -> str:
    before, now = (part / length if length else 0.0 for part, length in zip(facts.lookups, facts.seconds, strict=True))
    hit = 1 - facts.missed[0] / facts.lookups[0] if facts.lookups[0] else 0.0
    return (
        f"Traffic went away ({facts.there}): {pace(now)}, {pace(before)} before, of which {percent(hit)} hit. "
        f"{percent(facts.share)} of the fall. The cache is as good as it was; ask who stopped sending."
    )


def _rest(facts: Facts) -> str:
    if facts.share < 0:
        return f"Meanwhile other lookups hit more than before, which took {percent(-facts.share)} off the fall."
    if not facts.others:
        return "The fall is spread thinly: no reason, process, tenant or route holds an outstanding part of it."
    return f"The rest, spread thinly: {percent(facts.share)} of the fall."


def _detailed(facts: Facts) -> str:
    return f" ({named(facts.detail)})" if facts.detail else ""


_REASONS: dict[str, tuple[str, str]] = {
    "absent": (
        "Inputs that were never stored",
        "New content, new arguments, or invalidated data: compare two examples' keys.",
    ),
    "expired": ("Blocks past their deadline", "Lifetimes are shorter than the time between two lookups: see `ttl`."),
    "evicted": (
        "Blocks that left for want of room",
        "Give the tier more room, or the tenant a quota, and see who fills it.",
    ),
    "denied": ("Refused", "Check the tenant's rights and the shared tier's user rules."),
    "corrupt": ("Bytes that fail their checksum", "Check that host's disk or memory; run `mmcache verify`."),
    "bypassed": ("Asked for without the cache", "Look for `no-cache`, a switched-off cache, or the net-benefit guard."),
    "abstained": ("Near ones that are not trusted", "Inputs or the error limit changed: see `mmcache semantic`."),
    "timeout": ("A tier was late", "Check the network to the shared tier and its load."),
    "tier-down": ("A tier is not there", "Check that it runs and can be reached from there."),
    "stale-lease": (
        "An invalidation may have been missed",
        "The process lost its change feed; it comes back by itself once the shared tier answers.",
    ),
}
_OWN: dict[str, Callable[[Facts], str]] = {"signature": _signature, "flood": _flood, "lull": _lull, "other": _rest}


def tell(kind: str, facts: Facts) -> str:
    """A cause in a few sentences. Names that came from outside are escaped."""
    if (own := _OWN.get(kind)) is not None:
        return own(facts)
    what, then = _REASONS.get(kind, (f"Misses of the reason {named(kind)}", "Open an example."))
    return f"{what}{_detailed(facts)} ({facts.there}): {facts.of_lookups}. {facts.cost} {then}"
